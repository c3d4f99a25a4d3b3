// sparse24 makes a matrix X of N rows and K columns, and stores it, like this: of every four weights of a row the two
// of the largest magnitude are kept (the earlier ones of equals), and become integers of four bits with a scale in fp16
// for each group of G weights, or for a whole row.
//
//   scale = fp16(absmax / 7.5), q = w / scale rounded to nearest (halves to even), within [-8, 7];
//   a weight is scale * q
//
//   X.weight_sparse24 uint8 (N, P / 32, 12), X.weight_scale f16 (N, P / G), P = K rounded up to whole groups;
//   of whole rows P = K rounded up to whole units of 32, and X.weight_scale is f16 (N, 1).
//
// A unit of 32 weights has eight quads of four, and 12 bytes. Byte u has the two integers that quad u keeps, in
// two's complement, the one of the smaller column in the lower nibble. Then byte 8 + u / 2 has where they are, in
// its lower nibble for an even u: the column within the quad of the first one in two bits, then that of the second
// one. The first column is the smaller one.
//
// A row is held as its scale, if it has one alone, and then for each group its scale and its units. It is for the
// host and, with relaxed constexpr, for CUDA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "tenon/sdk/convert.h"
#include "tenon/sdk/stored.h"

namespace tenon::sparse24 {

inline constexpr uint32_t kUnit = 32, kUnitBytes = 12, kQuads = 8, kHalfBytes = 2;
inline constexpr const char* kWeight = "weight_sparse24";
inline constexpr const char* kScale = "weight_scale";
enum TensorIndex : uint32_t { kScaleTensor, kWeightTensor };  // files have them in this order, by name

// Groups have an index; 0 is a whole row.
inline constexpr uint32_t kGroups[] = {0, 32, 64, 128};
inline constexpr uint32_t kGroupCount = 4;

constexpr uint64_t groups_of(uint32_t group, uint64_t k) {
  return group == 0 ? 1 : (k + group - 1) / group;
}
constexpr uint64_t units_of(uint32_t group, uint64_t k) {
  return group == 0 ? (k + kUnit - 1) / kUnit : groups_of(group, k) * (group / kUnit);
}
constexpr uint64_t row_bytes(uint32_t group, uint64_t k) {
  return groups_of(group, k) * kHalfBytes + units_of(group, k) * kUnitBytes;
}

// Two of four weights are kept, in these columns.
struct Kept {
  uint32_t first, second;  // these are columns within the quad, first < second
};
constexpr Kept kept_of(const float (&w)[4]) {
  const auto magnitude = [&](uint32_t i) { return w[i] < 0 ? -w[i] : w[i]; };
  uint32_t best = 0;
  for (uint32_t i = 1; i < 4; ++i) best = magnitude(i) > magnitude(best) ? i : best;
  uint32_t next = best == 0 ? 1 : 0;
  for (uint32_t i = next + 1; i < 4; ++i) next = i != best && magnitude(i) > magnitude(next) ? i : next;
  return best < next ? Kept{best, next} : Kept{next, best};
}

// These return the bits of the scale of weights of that largest magnitude, and the integer of a weight.
constexpr uint16_t scale_bits(float largest) {
  return sdk::float_to_half(largest / 7.5F);
}
constexpr int integer_of(float w, float scale) {
  constexpr float kWhole = 12582912;  // 1.5 * 2^23
  const float q = scale > 0 ? (w / scale + kWhole) - kWhole : 0;
  return static_cast<int>(q < -8 ? -8 : q > 7 ? 7 : q);
}

// A unit has this of each quad: both integers, and both columns.
struct Quad {
  uint32_t integers;  // 8 bits
  uint32_t columns;   // 4 bits
};
constexpr Quad quad_of(const float (&w)[4], float scale) {
  const Kept kept = kept_of(w);
  const auto four_bits = [&](uint32_t i) { return static_cast<uint32_t>(integer_of(w[i], scale)) & 15; };
  return {four_bits(kept.first) | four_bits(kept.second) << 4, kept.first | kept.second << 2};
}
constexpr void put_quad(uint8_t* unit, uint32_t u, const Quad& quad) {
  unit[u] = static_cast<uint8_t>(quad.integers);
  uint8_t& columns = unit[kQuads + u / 2];
  columns = static_cast<uint8_t>(u % 2 == 0 ? quad.columns : columns | quad.columns << 4);
}
constexpr Quad quad_at(const uint8_t* unit, uint32_t u) {
  return {unit[u], static_cast<uint32_t>(unit[kQuads + u / 2]) >> (u % 2 * 4) & 15};
}
// Says whether the columns of a quad are two different ones in order.
constexpr bool in_order(const Quad& quad) {
  return (quad.columns & 3) < quad.columns >> 2;
}

// Gives the tensors of a matrix of n rows.
inline void tensors_of(uint32_t group, int64_t n, int64_t k, tenon_stored (&to)[2]) {
  const auto width = static_cast<uint64_t>(k);
  to[kScaleTensor] = {kScale, TENON_F16, 2, {n, static_cast<int64_t>(groups_of(group, width)), 0, 0}};
  to[kWeightTensor] = {kWeight, TENON_U8, 3, {n, static_cast<int64_t>(units_of(group, width)), kUnitBytes, 0}};
}
// A stored matrix has a format of the scheme's own, by its group's index.
inline constexpr tenon_format kStored = 1U << 17;
constexpr bool is_stored(tenon_format source) {
  return source >= kStored;
}
// Returns 0 for a matrix that is not stored by this scheme. Throws Refused for tensors that do not fit together, with
// what would be right for the group that they come nearest to.
inline tenon_format stored_format(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  if (sdk::find_tensor(m, kWeight) == nullptr) return 0;
  const auto same = [&](const tenon_stored& a) {
    const tenon_stored* b = sdk::find_tensor(m, a.name);
    return b != nullptr && a.format == b->format && a.rank == b->rank && std::equal(a.dim, a.dim + a.rank, b->dim);
  };
  tenon_stored tensors[2];
  uint32_t nearest = kGroupCount - 1;
  int most = 0;
  for (uint32_t i = 0; i < kGroupCount; ++i) {
    tensors_of(kGroups[i], s.out_dim[mat], s.in_dim, tensors);
    const int fitting = (same(tensors[0]) ? 1 : 0) + (same(tensors[1]) ? 1 : 0);
    if (fitting > most) nearest = i;
    most = std::max(most, fitting);
  }
  tensors_of(kGroups[nearest], s.out_dim[mat], s.in_dim, tensors);
  sdk::need_tensors(m, tensors);
  return kStored + nearest;
}

}  // namespace tenon::sparse24
