#include "kernels.h"
#include "table.h"

namespace tenon::none {

constinit const sdk::cpu::KernelTable kAvx512Kernels = kTable;

}  // namespace tenon::none
