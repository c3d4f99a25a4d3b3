#include "kernels.h"
#include "tenon/sdk/cpu/int8_formats.h"

namespace tenon::gguf {

constinit const sdk::cpu::Int8Table kAvx512VnniInt8 = sdk::cpu::kInt8Table;

}  // namespace tenon::gguf
