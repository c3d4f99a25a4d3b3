// Weights in two bits have blocks of 32 with one scale, w = scale * (code - 1), code 0 to 3.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"

namespace acme {

inline constexpr uint32_t kTwoBits = tenon::sdk::cpu::kOwnFormats;
inline constexpr uint32_t kBlock = 32;
// A unit of sixteen rows has their scales in f16, then 128 bytes of codes. A byte has the codes of one k in steps s, s
// + 2, s + 4 and s + 6, from the lowest bits up.
inline constexpr uint32_t kUnitBytes = 32 + 128;

}  // namespace acme

// These are the tables of each instruction set; plugin.cc takes those that it has a use for.
namespace acme::scalar {
extern const tenon::sdk::cpu::KernelTable kKernels;
extern const tenon::sdk::cpu::PackedTable kPacked;
}  // namespace acme::scalar
namespace acme::avx2 {
extern const tenon::sdk::cpu::KernelTable kKernels;
extern const tenon::sdk::cpu::PackedTable kPacked;
}  // namespace acme::avx2
namespace acme::avx_vnni {
extern const tenon::sdk::cpu::KernelTable kKernels;
extern const tenon::sdk::cpu::PackedTable kPacked;
}  // namespace acme::avx_vnni
namespace acme::avx512 {
extern const tenon::sdk::cpu::KernelTable kKernels;
extern const tenon::sdk::cpu::PackedTable kPacked;
}  // namespace acme::avx512
namespace acme::avx512_vnni {
extern const tenon::sdk::cpu::KernelTable kKernels;
extern const tenon::sdk::cpu::PackedTable kPacked;
}  // namespace acme::avx512_vnni
