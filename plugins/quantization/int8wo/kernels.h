// The row kernels of each instruction set; equal to the bit.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::int8wo {

extern const sdk::cpu::KernelTable kScalarKernels, kAvx2Kernels, kAvx512Kernels;

}  // namespace tenon::int8wo
