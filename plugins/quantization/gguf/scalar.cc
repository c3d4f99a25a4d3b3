#include "kernels.h"
#include "table.h"

namespace tenon::gguf {

constinit const sdk::cpu::KernelTable kScalarKernels = kTable;

}  // namespace tenon::gguf
