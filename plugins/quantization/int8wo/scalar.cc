#include "kernels.h"
#include "table.h"

namespace tenon::int8wo {

constinit const sdk::cpu::KernelTable kScalarKernels = kTable;

}  // namespace tenon::int8wo
