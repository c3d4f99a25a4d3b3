#include "kernels.h"
#include "table.h"

namespace tenon::none {

constinit const sdk::cpu::KernelTable kScalarKernels = kTable;

}  // namespace tenon::none
