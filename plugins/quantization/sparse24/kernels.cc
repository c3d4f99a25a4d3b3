// Compiled once for each instruction set. A weight is scale * (code - 8), with code = integer + 8, which scale * code and
// scale * 8 give exactly, since a scale has 11 bits.
#include "../coded/kernels.h"

#include "definition.h"
#include "tenon/sdk/cpu/coded_rows.h"
#include "tenon/sdk/cpu/products.h"

namespace tenon::sparse24 {
namespace {

using namespace sdk::cpu;

#if defined(__AVX2__)

inline float scale_at(const uint8_t* p) {
  return half_scale(p);
}
// The codes of the weights 16 * kHalf to 16 * kHalf + 15 of a unit: a lane has a quad, and each of its two integers is
// shifted to its column's byte. Where there is none the code is 8.
template <uint32_t kHalf>
inline Codes16 sparse_codes(const uint8_t* unit) {
  int32_t bytes;
  uint16_t places;
  memcpy(&bytes, unit + 4 * kHalf, sizeof(bytes));
  memcpy(&places, unit + kQuads + 2 * kHalf, sizeof(places));
  const __m128i integers = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
  const __m128i columns = _mm_srlv_epi32(_mm_set1_epi32(places), _mm_setr_epi32(0, 4, 8, 12));
  const __m128i bits = _mm_set1_epi32(0x18);  // of a shift by whole bytes
  const __m128i first =
      _mm_sllv_epi32(_mm_and_si128(integers, _mm_set1_epi32(15)), _mm_and_si128(_mm_slli_epi32(columns, 3), bits));
  const __m128i second = _mm_sllv_epi32(_mm_srli_epi32(integers, 4), _mm_and_si128(_mm_slli_epi32(columns, 1), bits));
  return _mm_xor_si128(_mm_or_si128(first, second), _mm_set1_epi8(8));
}

#else

inline float scale_at(const uint8_t* p) {
  return sdk::half_to_float(static_cast<uint16_t>(p[0] | p[1] << 8));
}
template <uint32_t kHalf>
inline Codes16 sparse_codes(const uint8_t* unit) {
  Codes16 codes;
  memset(codes.code, 8, sizeof(codes.code));
  for (uint32_t u = 0; u < 4; ++u) {
    const uint32_t integers = unit[4 * kHalf + u];
    const uint32_t columns = static_cast<uint32_t>(unit[kQuads + 2 * kHalf + u / 2]) >> (u % 2 * 4);
    codes.code[4 * u + (columns & 3)] = (integers & 15) ^ 8;
    codes.code[4 * u + (columns >> 2 & 3)] = static_cast<uint8_t>(integers >> 4 ^ 8);
  }
  return codes;
}

#endif

// The weights of a unit, for a sink of products.h.
template <class Sink>
inline void unit_weights(const uint8_t* unit, uint32_t first, Floats16 scale, Floats16 offset, Sink&& sink) {
  sink(first, fma(floats_of(sparse_codes<0>(unit)), scale, offset));
  sink(first + 1, fma(floats_of(sparse_codes<1>(unit)), scale, offset));
}

// Groups of G weights, each with its scale.
template <uint32_t kIndex>
struct GroupRow {
  static constexpr uint32_t kCode = kOwnFormats + kIndex, kElements = kGroups[kIndex], kHeader = 0, kColumns = 4;
  static constexpr uint32_t kUnits = kElements / kUnit;
  static constexpr size_t kBytes = kHalfBytes + kUnits * kUnitBytes;
  static float scale(const uint8_t*) { return 1; }
  template <class Sink>
  static void block(const uint8_t* group, Sink&& sink) {
    const float s = scale_at(group);
    const Floats16 scale = Floats16::all(s), offset = Floats16::all(-8 * s);
#pragma GCC unroll 4
    for (uint32_t u = 0; u < kUnits; ++u) {
      unit_weights(group + kHalfBytes + u * kUnitBytes, 2 * u, scale, offset, sink);
    }
  }
};
// A row with one scale.
struct WholeRow {
  static constexpr uint32_t kCode = kOwnFormats, kElements = kUnit, kHeader = kHalfBytes, kColumns = 8;
  static constexpr size_t kBytes = kUnitBytes;
  static float scale(const uint8_t* row) { return scale_at(row); }
  template <class Sink>
  static void block(const uint8_t* unit, Sink&& sink) {
    unit_weights(unit, 0, Floats16::all(1), Floats16::all(-8), sink);
  }
};
constexpr RowFormat kFormats[] = {row_format<WholeRow>(), row_format<GroupRow<1>>(), row_format<GroupRow<2>>(),
                                  row_format<GroupRow<3>>()};

constexpr KernelTable kTable{kRowOps, &tile_product, kFormats, kGroupCount};

}  // namespace
}  // namespace tenon::sparse24

namespace tenon::coded {
constinit const sdk::cpu::KernelTable TENON_ISA::kKernels = sparse24::kTable;
}  // namespace tenon::coded
