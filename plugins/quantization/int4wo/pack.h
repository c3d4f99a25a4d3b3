// How quantization.int4wo holds a row: groups of G weights, each scale and zero point in bf16, then G / 2 bytes. Of
// every 32 weights, byte j holds weight j (low nibble) and j + 16 (high nibble). The last group is filled up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::int4wo {

inline constexpr uint32_t kGroupHeader = 4;

// The row format's code of a group size.
constexpr uint32_t code_of(uint32_t group) {
  return sdk::cpu::kOwnFormats + group;
}
constexpr uint64_t row_bytes(uint64_t k, uint32_t group) {
  return (k + group - 1) / group * (kGroupHeader + group / 2);
}
// Per group: s = max((max - min) / 15, 1e-6), z = min + 8 s, both rounded to bf16 before
// q = (w - (z - 8 s)) / s to the nearest (halves to even) within [0, 15]; the weight stands for (q - 8) s + z.
// Weights past k are left out of min and max, and stand for z.  Throws sdk::Failed: a weight that bf16 cannot hold.
void pack_row(const float* w, uint32_t k, uint32_t group, uint8_t* row);

}  // namespace tenon::int4wo
