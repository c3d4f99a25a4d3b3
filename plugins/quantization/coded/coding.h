// This says how nf4, fp4, fp8, fp6 and uintx store a matrix X of N rows and K columns, in the file and in
// memory. All of them have codes of a few bits, in units of 32 (tenon/sdk/packed_codes.h), and scales. In the file G
// weights share a scale, and a row is filled up to P columns, whole groups of G and whole units.
//
//   scaling    a weight stands for            tensors beside the codes
//   kRow       scale * value(code)            weight_scale f32 (N)
//              of integers of b bits: scale * (code - 2^(b - 1))
//   kGroup     scale * value(code)            weight_scale f32 (N, P / G)
//   kTwoLevel  row_scale * c * value(code)    weight_row_scale f32 (N), weight_scale u8 (N, P / G): c
//   kZeroPoint scale * (code - zero)          weight_scale bf16 (N, P / G), weight_zero u8 (N, P / G)
//   kHalfZeroPoint  the same                  weight_scale f16 (N, P / G), weight_zero u8 (N, P / G)
//   kOffset    scale * code + offset          weight_scale f32 (N, P / G), weight_offset f32 (N, P / G)
//   kExponent  2^(c - 127) * value(code)      weight_scale e8m0 (N, P / G): c
//   kSixteens  row_scale * s * value(code)    weight_row_scale f32 (N), weight_scale e4m3 (N, P / 16): s, of either
//                                             half of 32
//   kEights    scale * (code - zero)          as kZeroPoint: memory has a scale and a zero point of each eight of 32
//
// The codes are a tensor u8 (N, P / 32, 4 bits), or (N, K) in a format of one byte. In memory a row has the scale of
// the row, if there is one; then, group by group, the group's scale and zero point and its units. Where G is a multiple
// of the coding's group, or of eight in kEights, memory has copies of the file's scale. Example: G of 96 is held as three
// groups of 32 with equal scales, and G of 24 as three eights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tenon/sdk/packed_codes.h"
#include "tenon/sdk/stored.h"

namespace tenon::coded {

enum class Scaling : uint32_t {
  kRow,
  kGroup,
  kTwoLevel,
  kZeroPoint,
  kHalfZeroPoint,
  kOffset,
  kExponent,
  kSixteens,
  kEights
};
// Says whether weights have scales in bf16 and zero points of a byte.
constexpr bool has_zero_points(Scaling scaling) {
  return scaling == Scaling::kZeroPoint || scaling == Scaling::kEights;
}

// This is a tensor of scales or zero points.
struct Field {
  const char* name;
  tenon_format format;
  uint32_t bytes;
  bool grouped;  // a group has one; else a row has one
};

struct Coding {
  uint32_t bits = 0;
  uint32_t group = 0;  // so many weights share what is grouped; 32 if nothing is
  Scaling scaling = Scaling::kRow;
  const char* weight = "weight";  // the codes' tensor; schemes whose tensors are alike have names of their own
  tenon_format weight_format = TENON_U8;

  // They come by name, as the host has them after the codes.
  constexpr std::span<const Field> fields() const {
    switch (scaling) {
      case Scaling::kRow:
        return kRowFields;
      case Scaling::kGroup:
        return kGroupFields;
      case Scaling::kTwoLevel:
        return kTwoLevelFields;
      case Scaling::kHalfZeroPoint:
        return kHalfZeroPointFields;
      case Scaling::kOffset:
        return kOffsetFields;
      case Scaling::kExponent:
        return kExponentFields;
      case Scaling::kSixteens:
        return kSixteensFields;
      case Scaling::kEights:
        return kEightsFields;
      default:
        return kZeroPointFields;
    }
  }
  constexpr uint32_t row_header() const { return header(false); }
  constexpr uint32_t group_header() const { return header(true); }
  constexpr uint32_t scales() const { return scaling == Scaling::kEights ? 4 : 1; }  // a group has so many in memory
  constexpr uint32_t units() const { return group / sdk::kUnitCodes; }               // a group has so many
  constexpr uint32_t group_bytes() const { return group_header() + units() * sdk::unit_bytes(bits); }
  constexpr uint64_t groups(uint64_t k) const { return (k + group - 1) / group; }
  constexpr uint64_t row_bytes(uint64_t k) const { return row_header() + groups(k) * group_bytes(); }
  // Rows may lie sixteen side by side (packings.h).
  constexpr bool packs() const { return scaling != Scaling::kEights; }
  // Codes of bytes lie in the file without the last group's filling.
  constexpr bool plain_bytes() const { return weight_format != TENON_U8; }

 private:
  static constexpr Field kRowFields[] = {{"weight_scale", TENON_F32, 4, false}};
  static constexpr Field kGroupFields[] = {{"weight_scale", TENON_F32, 4, true}};
  static constexpr Field kTwoLevelFields[] = {{"weight_row_scale", TENON_F32, 4, false},
                                              {"weight_scale", TENON_U8, 1, true}};
  static constexpr Field kZeroPointFields[] = {{"weight_scale", TENON_BF16, 2, true},
                                               {"weight_zero", TENON_U8, 1, true}};
  static constexpr Field kHalfZeroPointFields[] = {{"weight_scale", TENON_F16, 2, true},
                                                   {"weight_zero", TENON_U8, 1, true}};
  static constexpr Field kOffsetFields[] = {{"weight_scale", TENON_F32, 4, true},
                                            {"weight_offset", TENON_F32, 4, true}};
  static constexpr Field kExponentFields[] = {{"weight_scale", TENON_E8M0, 1, true}};
  static constexpr Field kSixteensFields[] = {{"weight_row_scale", TENON_F32, 4, false},
                                              {"weight_scale", TENON_F8E4M3, 2, true}};
  static constexpr Field kEightsFields[] = {{"weight_scale", TENON_BF16, 8, true}, {"weight_zero", TENON_U8, 4, true}};

  constexpr uint32_t header(bool grouped) const {
    uint32_t bytes = 0;
    for (const Field& f : fields()) bytes += f.grouped == grouped ? f.bytes : 0;
    return bytes;
  }
};

// So many of a scheme's codings, the first ones, pack.
constexpr size_t packing_codings(std::span<const Coding> all) {
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const Coding& c) { return c.packs(); }));
}

// A matrix is held in a scheme's coding of this index, and so many weights of a row share a scale in the file, or are to
// while they are quantized.
struct Holding {
  uint32_t index, group;
};

// Returns the columns that a row of k has in a file where `group` weights share a scale.
inline int64_t filled(int64_t k, uint32_t group) {
  const int64_t whole = std::lcm(int64_t{group}, int64_t{sdk::kUnitCodes});
  return (k + whole - 1) / whole * whole;
}

// They are the tensors of a matrix of n rows and k columns in which `group` weights share a scale, codes first.
inline std::vector<tenon_stored> tensors_of(const Coding& c, uint32_t group, int64_t n, int64_t k) {
  const int64_t columns = filled(k, group), groups = columns / group;
  std::vector<tenon_stored> all{
      {c.weight, c.weight_format, 3, {n, columns / sdk::kUnitCodes, sdk::unit_bytes(c.bits), 0}}};
  if (c.plain_bytes()) all[0] = {c.weight, c.weight_format, 2, {n, k, 0, 0}};
  for (const Field& f : c.fields())
    all.push_back({f.name, f.format, f.grouped ? 2U : 1U, {n, f.grouped ? groups : 0, 0, 0}});
  return all;
}

// It calls f(tensor, offset in the tensor's row, offset in the row as it is held, bytes) for each piece of a row of k
// weights, of which `group` share a scale in the file.
template <class F>
void each_piece(const Coding& c, uint32_t group, uint32_t k, const F& f) {
  const std::span<const Field> fields = c.fields();
  uint64_t at = 0;
  // The scales and zero points of a group lie side by side; they are for the weights from `column` on.
  const auto put = [&](bool grouped, uint64_t column) {
    for (uint32_t i = 0; i < fields.size(); ++i) {
      if (fields[i].grouped != grouped) continue;
      const uint32_t scales = grouped ? c.scales() : 1, bytes = fields[i].bytes / scales;
      for (uint32_t s = 0; s < scales; ++s, at += bytes) {
        f(i + 1, (column + s * c.group / scales) / group * bytes, at, bytes);
      }
    }
  };
  put(false, 0);
  const uint32_t bytes = c.units() * sdk::unit_bytes(c.bits);
  for (uint64_t g = 0; g < c.groups(k); ++g, at += bytes) {
    put(true, g * c.group);
    f(0, g * bytes, at, c.plain_bytes() ? std::min<uint64_t>(bytes, k - g * bytes) : bytes);
  }
}

// It finds how matrix `mat` of the file is to be held, and gives nothing for a plain matrix of another format. It throws
// Refused for tensors that fit no coding, with what is wrong with them for the one that they come nearest to. A scheme
// may have guessed from the tensors' shapes.
inline std::optional<Holding> stored_holding(const tenon_linear& s, uint32_t mat, std::span<const Coding> codings,
                                             std::optional<Holding> guess) {
  const auto plain = sdk::plain_format(s, mat);
  if (plain && *plain != codings[0].weight_format) return {};
  const tenon_matrix& m = s.matrix[mat];
  const auto same = [](const tenon_stored& a, const tenon_stored* b) {
    return b != nullptr && a.format == b->format && a.rank == b->rank && std::equal(a.dim, a.dim + a.rank, b->dim);
  };
  const auto tensors = [&](const Holding& h) {
    return tensors_of(codings[h.index], h.group, s.out_dim[mat], s.in_dim);
  };
  Holding nearest{0, codings[0].group};
  size_t most = 0;
  const auto try_on = [&](const Holding& h) {
    size_t fitting = 0;
    for (const tenon_stored& t : tensors(h)) {
      if (same(t, sdk::find_tensor(m, t.name))) ++fitting;
    }
    if (fitting > most) nearest = h;
    most = std::max(most, fitting);
  };
  if (guess) try_on(*guess);
  for (uint32_t i = 0; i < codings.size(); ++i) try_on({i, codings[i].group});
  sdk::need_tensors(m, tensors(nearest));
  return nearest;
}

// It calls f with the index as a constant: std::integral_constant<uint32_t, index>. There are kCount of them.
template <size_t kCount, class F>
void with_index(uint32_t index, const F& f) {
  const auto any_of = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    ((index == kIndex ? f(std::integral_constant<uint32_t, kIndex>{}) : void()), ...);
  };
  any_of(std::make_index_sequence<kCount>{});
}

// What a file has is a format of tenon/abi/types.h, or kStoredCodings plus the index of a coding.
inline constexpr tenon_format kStoredCodings = 1U << 17;
inline constexpr tenon_format kPublished = 1U << 18;  // it is a published checkpoint's form (../published/matrix.h)
constexpr bool is_stored(tenon_format source) {
  return source >= kStoredCodings;
}

}  // namespace tenon::coded
