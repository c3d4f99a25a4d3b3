#include "kernels.h"
#include "tenon/sdk/cpu/bf16_products.h"

namespace tenon::gguf {

constinit const sdk::cpu::Bf16Table kAvx512Bf16 = {&sdk::cpu::to_bf16, &sdk::cpu::bf16_product};

}  // namespace tenon::gguf
