#include "kernels.h"
#include "table.h"

namespace tenon::gguf {

constinit const sdk::cpu::KernelTable kAvx512Kernels = kTable;

}  // namespace tenon::gguf
