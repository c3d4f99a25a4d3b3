// These are the formats of a link (docs/glossary.md): a product alone reads what another one, or attention, gives, and
// both have agreed on its format (x_format, y_format and out_format in tenon/abi). A format is a tenon_format, to which
// kTiled, or kTiled and kStaggered, may be added. The tensor is
//   f32, f16, bf16             (rows, columns)
//   f8e4m3                     (rows, columns + 128): after its codes a row has its scale, an f32, by which they are to
//                              be multiplied. Where rows begin at less than whole 128 bytes, cuBLASLt is up to a fifth
//                              slower
//   f16, bf16 | kTiled         (bands, columns / 8, rows of a band, 8), for steps of few rows on Hopper
//                              (tenon/cuda/tile_gemm.cuh)
//   f16 | kTiled | kStaggered  (bands, columns / 16, 2, rows of a band, 8): the second of each two octets holds
//                              sixteenths
// A tiled row is cut into stretches of 32 columns, and each of these into four octets of 8 values, in the order in
// which tensor cores read them. Octet i (0 to 3) has the columns 2i and 2i + 1 of each 8 columns: octet 0 has columns
// 0, 1, 8, 9, 16, 17, 24 and 25. Rows that are not live hold anything.
//
// Where an RMSNorm stands between the two, others may read the first one's result as well: the residual goes on. That
// product leaves its y in f32 as ever and, beside it, a tensor of the link, whose format has kNormed, too
// (tenon_linear_call.normed). It holds y times the norm's weights and times a power of two that the row has; f16 alone
// needs one other than 1, and what is too large becomes its largest number. After the columns each row has numbers in
// f32, four in 16 bytes of an octet: for each summed_columns() columns the sum of the squares of y, then 1 over that
// power. So the second product, which takes the norm, multiplies its sums by that and by 1 / sqrt(mean + eps).
#pragma once

#include <cstdint>

#include "tenon/sdk/recorder.h"

namespace tenon::sdk {

inline constexpr uint32_t kTiled = 1U << 16, kStaggered = 1U << 17, kNormed = 1U << 18;

// These are the formats of links, of which a host offers those first that two modules do best with. Where a norm stands
// between, the tiled ones are offered, with kNormed.
inline constexpr tenon_format kLinkFormats[] = {
    TENON_F16 | kTiled | kStaggered, TENON_F16 | kTiled, TENON_BF16 | kTiled, TENON_F8E4M3, TENON_BF16, TENON_F16};

constexpr tenon_format element_of(uint32_t link) {
  return static_cast<tenon_format>(link & 0xffff);
}
constexpr bool is_tiled(uint32_t link) {
  return (link & kTiled) != 0;
}
constexpr bool is_normed(uint32_t link) {
  return (link & kNormed) != 0;
}
inline bool is_tiled(const tenon_tensor& t) {
  return t.rank > 2;
}
inline bool is_staggered(const tenon_tensor& t) {
  return t.rank > 4;
}

inline constexpr int64_t kScaleBytes = 128;  // so many bytes at the end of a row of codes are for its scale

// A row before a norm has a sum of squares for so many columns, as blocks that finish them have: fewer where rows are few
// (tenon/cuda/cluster_gemm.cuh). It has whole octets of four sums.
inline constexpr int64_t kFewRows = 16;
constexpr int64_t summed_columns(int64_t rows) {
  return rows <= kFewRows ? 64 : 128;
}
constexpr int64_t octet_of_sums_columns(int64_t rows) {
  return 4 * summed_columns(rows);
}
// Returns how many columns of halves the numbers after a row before a norm take, in a tensor of so many rows: pairs of
// octets, so many that all columns of such a tensor are no multiple of 64, as those of others are.
constexpr int64_t number_columns(int64_t columns, int64_t rows) {
  const int64_t octets = columns / octet_of_sums_columns(rows) + 1;
  return ((octets + 1) / 2 | 1) * 16;
}

// Returns how many rows a band of a tiled tensor has.
constexpr uint32_t tiled_band_rows(uint32_t rows) {
  constexpr uint32_t kOneBand = 128, kMost = 256;
  return rows <= kOneBand ? rows : rows <= kMost ? rows / 2 : kMost;
}
// Says whether a tensor with so many rows and columns exists in the format `link`.
constexpr bool has_linked_rows(uint32_t link, uint32_t rows, int64_t columns) {
  if (is_normed(link) && columns % octet_of_sums_columns(rows) != 0) return false;
  if (is_tiled(link)) return rows % tiled_band_rows(rows) == 0 && columns % 64 == 0;
  return link != TENON_F8E4M3 || columns % 128 == 0;
}
// Describes that tensor.
inline tenon_tensor linked_rows(uint32_t link, uint32_t rows, int64_t columns) {
  const tenon_format element = element_of(link);
  const int64_t band = tiled_band_rows(rows), bands = rows / band;
  if (is_normed(link)) columns += number_columns(columns, rows);
  if ((link & kStaggered) != 0) return tensor(element, {bands, columns / 16, 2, band, 8});
  if (is_tiled(link)) return tensor(element, {bands, columns / 8, band, 8});
  return tensor(element, {rows, columns + (element == TENON_F8E4M3 ? kScaleBytes : 0)});
}
// Returns how many rows such a tensor has.
inline int64_t rows_of(const tenon_tensor& t) {
  return is_tiled(t) ? t.dim[0] * t.dim[t.rank - 2] : t.dim[0];
}
// Returns how many columns a tiled tensor has, with those of the numbers after its rows.
inline int64_t tiled_columns(const tenon_tensor& t) {
  return t.dim[1] * (is_staggered(t) ? 16 : 8);
}
// Says whether it has rows before a norm.
inline bool is_normed(const tenon_tensor& t) {
  return is_tiled(t) && tiled_columns(t) % 64 != 0;
}

}  // namespace tenon::sdk
