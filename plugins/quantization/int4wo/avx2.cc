#include "kernels.h"
#include "table.h"

namespace tenon::int4wo {

constinit const sdk::cpu::KernelTable kAvx2Kernels = kTable;

}  // namespace tenon::int4wo
