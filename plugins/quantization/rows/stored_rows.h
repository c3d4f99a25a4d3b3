// int8wo and int4wo store a matrix X of N rows and K columns as these tensors, and hold it as these rows.
//   int8: X.weight int8 (N, K), X.weight_scale f32 (N). A weight stands for q * scale.
//   int4 in groups of G: X.weight uint8 (N, P / 2), X.weight_scale and X.weight_zero bf16 (N, P / G), P = K rounded up
//   to
//     whole groups. Of every 32 weights byte j of 16 holds weight j (low nibble) and j + 16 (high). A weight stands for
//     (q - 8) * scale + zero. The last group of a row is filled up with q = 8.
// A row is held as
//   int8: scale f32, then an int8 a weight, zeros up to a multiple of 16
//   int4: for each group scale and zero point in bf16, then G / 2 bytes
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tenon/sdk/stored.h"

namespace tenon::rows {

// Both schemes have these formats beside those of tenon/abi/types.h.
inline constexpr tenon_format kInt8Rows = 1U << 17;
// `group` is 32, 64, 128 or 256 weights.
constexpr tenon_format int4_rows(uint32_t group) {
  return kInt8Rows + group;
}
// Returns the group of int4 rows; 0 for any other format.
constexpr uint32_t int4_group(tenon_format format) {
  const uint32_t group = format - kInt8Rows;
  return format > kInt8Rows && (group == 32 || group == 64 || group == 128 || group == 256) ? group : 0;
}

constexpr uint64_t int8_row_bytes(uint64_t k) {
  return 4 + (k + 15) / 16 * 16;
}
constexpr uint64_t int4_row_bytes(uint64_t k, uint32_t group) {
  return (k + group - 1) / group * (4 + group / 2);
}

// The tensors are in this order, which is that of their names.
enum { kWeight, kScale, kZero };

// Says whether a file has a matrix in the scheme's own tensors, rightly or not; plain ones are floats or blocks.
inline bool has_own_tensors(const tenon_matrix& m, tenon_format weight) {
  const tenon_stored* t = sdk::find_tensor(m, "weight");
  return t != nullptr && (t->format == weight || m.n_tensors > 1);
}

// Throws Refused for tensors that do not fit together.
inline tenon_format need_int8(const tenon_linear& s, uint32_t mat) {
  const int64_t n = s.out_dim[mat];
  const tenon_stored expected[] = {{"weight", TENON_I8, 2, {n, s.in_dim, 0, 0}},
                                   {"weight_scale", TENON_F32, 1, {n, 0, 0, 0}}};
  sdk::need_tensors(s.matrix[mat], expected);
  return kInt8Rows;
}
inline tenon_format need_int4(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  const tenon_stored* scale = sdk::find_tensor(m, "weight_scale");
  const int64_t n = s.out_dim[mat], groups = scale != nullptr && scale->rank == 2 ? scale->dim[1] : 0;
  // This group makes so many of a row; a short row is one group of any size, which the weights tell.
  uint32_t group = 64;
  for (const uint32_t g : {32U, 64U, 128U, 256U}) {
    const tenon_stored* weight = sdk::find_tensor(m, "weight");
    const bool fits = (s.in_dim + g - 1) / g == groups && weight != nullptr && weight->rank == 2;
    if (fits && weight->dim[1] == groups * g / 2) group = g;
  }
  const int64_t all = (s.in_dim + group - 1) / group;
  const tenon_stored expected[] = {{"weight", TENON_U8, 2, {n, all * group / 2, 0, 0}},
                                   {"weight_scale", TENON_BF16, 2, {n, all, 0, 0}},
                                   {"weight_zero", TENON_BF16, 2, {n, all, 0, 0}}};
  sdk::need_tensors(m, expected);
  return int4_rows(group);
}

// These make a row of what the tensors have of it.
inline void join_int8_row(const uint8_t* weight, const uint8_t* scale, uint32_t k, uint8_t* row) {
  std::memcpy(row, scale, sizeof(float));
  std::memcpy(row + sizeof(float), weight, k);
  std::fill(row + sizeof(float) + k, row + int8_row_bytes(k), uint8_t{0});
}
// A row's weights, scales and zero points in the three tensors.
struct Int4Tensors {
  const uint8_t *weight, *scale, *zero;
};
inline void join_int4_row(const Int4Tensors& from, uint32_t k, uint32_t group, uint8_t* row) {
  for (uint64_t g = 0; g < (k + group - 1) / group; ++g, row += 4 + group / 2) {
    std::memcpy(row, from.scale + 2 * g, 2);
    std::memcpy(row + 2, from.zero + 2 * g, 2);
    std::memcpy(row + 4, from.weight + g * (group / 2), group / 2);
  }
}

}  // namespace tenon::rows
