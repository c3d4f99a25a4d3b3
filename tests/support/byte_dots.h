// The instruction sets of this machine that have dot products of bytes, in which x may be multiplied in 16 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/abi/device.h"

namespace tenon::test {

uint64_t machine_isa();  // support/component.h

inline constexpr uint64_t kByteDots = TENON_ISA_AVX_VNNI | TENON_ISA_AVX512_VNNI | TENON_ISA_AVX512_BF16;

struct ByteDotSet {
  const char* name;
  uint64_t isa;
};
inline std::vector<ByteDotSet> byte_dot_sets() {
  constexpr uint64_t kAvxVnni = TENON_ISA_AVX2 | TENON_ISA_AVX_VNNI;
  constexpr uint64_t kAvx512Vnni = TENON_ISA_AVX2 | TENON_ISA_AVX512 | TENON_ISA_AVX512_VNNI;
  std::vector<ByteDotSet> sets;
  if ((machine_isa() & kAvxVnni) == kAvxVnni) sets.push_back({"avxvnni", kAvxVnni});
  if ((machine_isa() & kAvx512Vnni) == kAvx512Vnni) sets.push_back({"avx512vnni", kAvx512Vnni});
  return sets;
}

}  // namespace tenon::test
