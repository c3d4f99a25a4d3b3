// These are a scheme's row kernels for each instruction set, equal to the bit. kernels.cc of its folder makes them.
#pragma once

#include "tenon/sdk/cpu/linear_site.h"

namespace tenon::coded {

namespace scalar {
extern const sdk::cpu::KernelTable kKernels;
}
namespace avx2 {
extern const sdk::cpu::KernelTable kKernels;
}
namespace avx512 {
extern const sdk::cpu::KernelTable kKernels;
}
// Only fp8 has kernels of this set.
namespace avx512_vbmi {
extern const sdk::cpu::KernelTable kKernels;
}
// Only schemes with products of x in 16 bits have kernels of these sets (wide_rows.h).
namespace avx_vnni {
extern const sdk::cpu::PackedTable kPacked;
}
namespace avx512_vnni {
extern const sdk::cpu::PackedTable kPacked;
}

// Returns a scheme's kernels with those of products of x in 16 bits, for instruction sets with dot products of bytes.
inline sdk::cpu::Kernels wide_kernels(sdk::cpu::Isa isa, sdk::cpu::PackingOf packing) {
  return sdk::cpu::KernelSets{&scalar::kKernels,  &avx2::kKernels,       &avx512::kKernels,
                              &avx_vnni::kPacked, &avx512_vnni::kPacked, packing}
      .of(isa);
}

}  // namespace tenon::coded
