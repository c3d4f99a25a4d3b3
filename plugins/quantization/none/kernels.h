// These are the row kernels of each instruction set; they are equal to the bit.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::none::scalar {
extern const sdk::cpu::KernelTable kKernels;
}
namespace tenon::none::avx2 {
extern const sdk::cpu::KernelTable kKernels;
}
namespace tenon::none::avx512 {
extern const sdk::cpu::KernelTable kKernels;
}
