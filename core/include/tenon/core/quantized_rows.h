// Rows that `tenon quantize` makes before it takes them apart into tensors of safetensors: formats beside those of
// tenon/abi/types.h. Rows are contiguous, and a row is
//   int8 rows: scale f32, then an int8 a weight, zeros up to a multiple of 16. A weight stands for q * scale.
//   int4 rows in groups of G: for each group scale and zero point in bf16, then G / 2 bytes; of every 32 weights byte j
//     holds weight j (low nibble) and j + 16 (high). A weight stands for (q - 8) * scale + zero. The last group of a
//     row is filled up with q = 8.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/abi/types.h"

namespace tenon::sdk {

inline constexpr tenon_format kInt8Rows = 1U << 17;
// group: 32, 64, 128 or 256 weights.
constexpr tenon_format int4_rows(uint32_t group) {
  return kInt8Rows + group;
}
// The group of int4 rows; 0 for any other format.
constexpr uint32_t int4_group(tenon_format format) {
  const uint32_t group = format - kInt8Rows;
  return format > kInt8Rows && (group == 32 || group == 64 || group == 128 || group == 256) ? group : 0;
}
constexpr bool is_quantized_rows(tenon_format format) {
  return format == kInt8Rows || int4_group(format) != 0;
}

constexpr uint64_t int8_row_bytes(uint64_t k) {
  return 4 + (k + 15) / 16 * 16;
}
constexpr uint64_t int4_row_bytes(uint64_t k, uint32_t group) {
  return (k + group - 1) / group * (4 + group / 2);
}
// Bytes of k weights of a row as stored in any format; 0 where that has no such rows.
constexpr uint64_t row_bytes(tenon_format format, uint64_t k) {
  if (format == kInt8Rows) return int8_row_bytes(k);
  if (const uint32_t group = int4_group(format); group != 0) return int4_row_bytes(k, group);
  const tenon_block block = tenon_format_block(format);
  return block.elements == 0 || k % block.elements != 0 ? 0 : k / block.elements * block.bytes;
}

// tenon_format_name, also for these: "int8 rows", "int4 rows in groups of 64".
inline std::string format_name(tenon_format format) {
  if (format == kInt8Rows) return "int8 rows";
  if (const uint32_t group = int4_group(format); group != 0) return "int4 rows in groups of " + std::to_string(group);
  return tenon_format_name(format);
}

}  // namespace tenon::sdk
