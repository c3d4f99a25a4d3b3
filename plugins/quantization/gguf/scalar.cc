#include "kernels.h"
#include "table.h"
#include "tenon/sdk/cpu/int8_formats.h"

namespace tenon::gguf {

constinit const sdk::cpu::KernelTable kScalarKernels = kTable;
constinit const sdk::cpu::Int8Table kScalarInt8 = sdk::cpu::kInt8Table;

}  // namespace tenon::gguf
