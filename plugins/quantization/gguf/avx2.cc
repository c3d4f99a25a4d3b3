#include "kernels.h"
#include "table.h"

namespace tenon::gguf {

constinit const sdk::cpu::KernelTable kAvx2Kernels = kTable;

}  // namespace tenon::gguf
