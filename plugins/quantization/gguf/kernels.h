// These are the row kernels of each instruction set and its products of packed rows; they are equal to the bit.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::gguf::scalar {
extern const sdk::cpu::KernelTable kKernels;
extern const sdk::cpu::PackedTable kPacked;
}  // namespace tenon::gguf::scalar
namespace tenon::gguf::avx2 {
extern const sdk::cpu::KernelTable kKernels;
extern const sdk::cpu::PackedTable kPacked;
}  // namespace tenon::gguf::avx2
namespace tenon::gguf::avx_vnni {
extern const sdk::cpu::PackedTable kPacked;
}
namespace tenon::gguf::avx512 {
extern const sdk::cpu::KernelTable kKernels;
}
namespace tenon::gguf::avx512_vnni {
extern const sdk::cpu::PackedTable kPacked;
}
namespace tenon::gguf::avx512_bf16 {
extern const sdk::cpu::Bf16Table kBf16;
}
