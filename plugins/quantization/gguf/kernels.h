// The row kernels of each instruction set; equal to the bit.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::gguf {

extern const sdk::cpu::KernelTable kScalarKernels, kAvx2Kernels, kAvx512Kernels;
extern const sdk::cpu::PackedTable kScalarPacked, kAvx2Packed, kAvxVnniPacked, kAvx512VnniPacked;
extern const sdk::cpu::Bf16Table kAvx512Bf16;

}  // namespace tenon::gguf
