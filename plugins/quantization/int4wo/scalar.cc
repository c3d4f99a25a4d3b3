#include "kernels.h"
#include "table.h"

namespace tenon::int4wo {

constinit const sdk::cpu::KernelTable kScalarKernels = kTable;

}  // namespace tenon::int4wo
