// The row kernels of each instruction set; equal to the bit.
#pragma once

#include "tenon/sdk/cpu/linear_site.h"

namespace tenon::sparse24 {

namespace scalar {
extern const sdk::cpu::KernelTable kKernels;
}
namespace avx2 {
extern const sdk::cpu::KernelTable kKernels;
}
namespace avx512 {
extern const sdk::cpu::KernelTable kKernels;
}

inline sdk::cpu::Kernels kernels(sdk::cpu::Isa isa) {
  using sdk::cpu::Isa;
  return {isa >= Isa::kAvx512 ? &avx512::kKernels : isa >= Isa::kAvx2 ? &avx2::kKernels : &scalar::kKernels};
}

}  // namespace tenon::sparse24
