// The row kernels of each instruction set; equal to the bit.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::gguf {

extern const sdk::cpu::KernelTable kScalarKernels, kAvx2Kernels, kAvx512Kernels;
extern const sdk::cpu::Int8Table kScalarInt8, kAvx2Int8, kAvx512VnniInt8;

}  // namespace tenon::gguf
