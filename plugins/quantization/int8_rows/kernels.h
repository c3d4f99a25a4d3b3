// These are a scheme's kernels for each instruction set, equal to the bit. kernels.cc and
// products.cc of the scheme's folder make them.
#pragma once

#include "tenon/sdk/cpu/linear_site.h"

namespace tenon::int8_rows {

inline constexpr uint32_t kInt8Row = sdk::cpu::kOwnFormats;

namespace scalar {
extern const sdk::cpu::KernelTable kKernels;
extern const sdk::cpu::PackedTable kProducts;
}  // namespace scalar
namespace avx2 {
extern const sdk::cpu::KernelTable kKernels;
extern const sdk::cpu::PackedTable kProducts;
}  // namespace avx2
namespace avx_vnni {
extern const sdk::cpu::PackedTable kProducts;
}
namespace avx512 {
extern const sdk::cpu::KernelTable kKernels;
}
namespace avx512_vnni {
extern const sdk::cpu::PackedTable kProducts;
}

// Rows lie as they are, not sixteen side by side: there is no packing.
inline const sdk::cpu::Packing* no_packing(uint32_t) {
  return nullptr;
}
inline sdk::cpu::Kernels kernels(sdk::cpu::Isa isa) {
  using sdk::cpu::Isa;
  switch (isa) {
    case Isa::kAvx512Bf16:
    case Isa::kAvx512Vnni:
      return {&avx512::kKernels, &avx512_vnni::kProducts, nullptr, &no_packing};
    case Isa::kAvx512:
      return {&avx512::kKernels, &avx2::kProducts, nullptr, &no_packing};
    case Isa::kAvxVnni:
      return {&avx2::kKernels, &avx_vnni::kProducts, nullptr, &no_packing};
    case Isa::kAvx2:
      return {&avx2::kKernels, &avx2::kProducts, nullptr, &no_packing};
    default:
      return {&scalar::kKernels, &scalar::kProducts, nullptr, &no_packing};
  }
}

}  // namespace tenon::int8_rows
