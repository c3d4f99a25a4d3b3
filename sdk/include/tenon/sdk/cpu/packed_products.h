// Products of rows of x in int8 with packed rows (packed_rows.h), by integer dot products. For sources that are
// compiled once for each instruction set (tenon_add_kernels; see vector.h): AVX-512 VNNI, AVX-VNNI, AVX2 or plain code.
//
// A scheme brings formats (PackedWeights, below) and makes a table of them, in a source of its own:
//
//   constexpr PackedFormat kFormats[] = {packed_format<MyWeights>()};
//   constinit const PackedTable TENON_ISA::kPacked = {kFormats, 1};
//
// A product of a row of x and a row of weights is always summed in the same order: of each 32 k the codes, less what
// the format subtracts from them, times x (of Q6_K also times the scale of 16 k) make an exact integer, which times
// (weight scale * activation scale) goes into the sum by fused multiply-add; behind it, where the format has minima, so
// does minimum * (activation scale * sum of x).
#pragma once

#include <concepts>

#include "tenon/sdk/cpu/row_kernels.h"
#include "tenon/sdk/cpu/vector.h"

#if !defined(__AVX2__)
#include "tenon/sdk/convert.h"
#endif

namespace tenon::sdk::cpu {
namespace {

// Rows of a group that are multiplied side by side: a lane each. Floats is their sums or scales, Ints their integers,
// Codes 4 codes of each.
#if defined(__AVX512VNNI__)

constexpr uint32_t kSide = 16, kMostXRows = 8;
struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Codes {
  __m512i v;
};
inline Floats no_floats() {
  return {_mm512_setzero_ps()};
}
inline Floats splat_floats(float f) {
  return {_mm512_set1_ps(f)};
}
inline Floats mul(Floats a, Floats b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Floats negative(Floats a) {
  return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0F))};
}
inline void store(float* p, Floats a) {
  _mm512_storeu_ps(p, a.v);
}
inline Floats halves_at(const uint8_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Floats bytes_at(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_bytes(p)))};
}
inline Ints signed_bytes_at(const uint8_t* p) {
  return {_mm512_cvtepi8_epi32(load_bytes(p))};
}
inline Ints mul(Ints a, Ints b) {
  return {_mm512_mullo_epi32(a.v, b.v)};
}
inline Ints add(Ints a, Ints b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline Floats to_floats(Ints i) {
  return {_mm512_cvtepi32_ps(i.v)};
}
inline Codes codes_at(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
// Down, but for bits that come over from the byte above.
template <uint32_t Shift>
inline Codes shifted(Codes c) {
  return {_mm512_srli_epi16(c.v, Shift)};
}
template <uint32_t Shift>
inline Codes shifted(Codes c, int mask) {
  return {_mm512_and_si512(shifted<Shift>(c).v, _mm512_set1_epi8(static_cast<char>(mask)))};
}
// a | (b & mask)
inline Codes joined(Codes a, Codes b, int mask) {
  return {_mm512_ternarylogic_epi32(a.v, b.v, _mm512_set1_epi8(static_cast<char>(mask)), 0xf8)};
}
// negative: of the sum of the x that meet the codes.
template <int Offset>
inline Ints begin_ints(int32_t negative) {
  if constexpr (Offset == 0) {
    return {_mm512_setzero_si512()};
  } else {
    return {_mm512_slli_epi32(_mm512_set1_epi32(negative), __builtin_ctz(Offset))};
  }
}
template <int Offset>
inline Ints dot(Ints sum, Codes c, int32_t x) {
  return {_mm512_dpbusd_epi32(sum.v, c.v, _mm512_set1_epi32(x))};
}

#elif defined(__AVX2__)

constexpr uint32_t kSide = 8, kMostXRows = 4;
struct Floats {
  __m256 v;
};
struct Ints {
  __m256i v;
};
struct Codes {
  __m256i v;
};
inline Floats no_floats() {
  return {_mm256_setzero_ps()};
}
inline Floats splat_floats(float f) {
  return {_mm256_set1_ps(f)};
}
inline Floats mul(Floats a, Floats b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline Floats negative(Floats a) {
  return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0F))};
}
inline void store(float* p, Floats a) {
  _mm256_storeu_ps(p, a.v);
}
inline Floats halves_at(const uint8_t* p) {
  return {_mm256_cvtph_ps(load_bytes(p))};
}
inline __m128i eight_bytes(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
inline Floats bytes_at(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight_bytes(p)))};
}
inline Ints signed_bytes_at(const uint8_t* p) {
  return {_mm256_cvtepi8_epi32(eight_bytes(p))};
}
inline Ints mul(Ints a, Ints b) {
  return {_mm256_mullo_epi32(a.v, b.v)};
}
inline Ints add(Ints a, Ints b) {
  return {_mm256_add_epi32(a.v, b.v)};
}
inline Floats to_floats(Ints i) {
  return {_mm256_cvtepi32_ps(i.v)};
}
inline Codes codes_at(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
template <uint32_t Shift>
inline Codes shifted(Codes c) {
  return {_mm256_srli_epi16(c.v, Shift)};
}
template <uint32_t Shift>
inline Codes shifted(Codes c, int mask) {
  return {_mm256_and_si256(shifted<Shift>(c).v, _mm256_set1_epi8(static_cast<char>(mask)))};
}
inline Codes joined(Codes a, Codes b, int mask) {
  return {_mm256_or_si256(a.v, _mm256_and_si256(b.v, _mm256_set1_epi8(static_cast<char>(mask))))};
}
#if defined(__AVXVNNI__)
constexpr int kSignedOffset = 0;
#else
// Pairs of products of 8-bit codes do not fit 16 bits unless the codes are signed: those lose their offset in dot().
constexpr int kSignedOffset = 128;
#endif
template <int Offset>
inline Ints begin_ints(int32_t negative) {
  if constexpr (Offset == 0 || Offset == kSignedOffset) {
    return {_mm256_setzero_si256()};
  } else {
    return {_mm256_slli_epi32(_mm256_set1_epi32(negative), __builtin_ctz(Offset))};
  }
}
#if defined(__AVXVNNI__)
template <int Offset>
inline Ints dot(Ints sum, Codes c, int32_t x) {
  return {_mm256_dpbusd_avx_epi32(sum.v, c.v, _mm256_set1_epi32(x))};
}
#else
template <int Offset>
inline Ints dot(Ints sum, Codes c, int32_t four) {
  __m256i w = c.v, x = _mm256_set1_epi32(four);
  if constexpr (Offset == kSignedOffset) {
    const __m256i code = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
    w = _mm256_abs_epi8(code), x = _mm256_sign_epi8(x, code);
  }
  return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)))};
}
#endif

#else

constexpr uint32_t kSide = 16, kMostXRows = 1;
struct Floats {
  float v[16];
};
struct Ints {
  int32_t v[16];
};
struct Codes {
  uint8_t v[64];
};
inline Floats no_floats() {
  return {};
}
inline Floats splat_floats(float f) {
  Floats a;
  for (float& v : a.v) v = f;
  return a;
}
inline Floats mul(Floats a, const Floats& b) {
  for (int i = 0; i < 16; ++i) a.v[i] = a.v[i] * b.v[i];
  return a;
}
inline Floats fma(const Floats& a, const Floats& b, Floats c) {
  for (int i = 0; i < 16; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline Floats negative(Floats a) {
  for (float& v : a.v) v = -v;
  return a;
}
inline void store(float* p, const Floats& a) {
  memcpy(p, a.v, sizeof(a.v));
}
inline Floats halves_at(const uint8_t* p) {
  Floats a;
  for (int i = 0; i < 16; ++i) a.v[i] = half_to_float(static_cast<uint16_t>(p[2 * i] | p[2 * i + 1] << 8));
  return a;
}
inline Floats bytes_at(const uint8_t* p) {
  Floats a;
  for (int i = 0; i < 16; ++i) a.v[i] = p[i];
  return a;
}
inline Ints signed_bytes_at(const uint8_t* p) {
  Ints a;
  for (int i = 0; i < 16; ++i) a.v[i] = static_cast<int8_t>(p[i]);
  return a;
}
inline Ints mul(Ints a, const Ints& b) {
  for (int i = 0; i < 16; ++i) a.v[i] *= b.v[i];
  return a;
}
inline Ints add(Ints a, const Ints& b) {
  for (int i = 0; i < 16; ++i) a.v[i] += b.v[i];
  return a;
}
inline Floats to_floats(const Ints& i) {
  Floats a;
  for (int l = 0; l < 16; ++l) a.v[l] = static_cast<float>(i.v[l]);
  return a;
}
inline Codes codes_at(const uint8_t* p) {
  Codes c;
  memcpy(c.v, p, sizeof(c.v));
  return c;
}
template <uint32_t Shift>
inline Codes shifted(Codes c, int mask = 255) {
  for (uint8_t& v : c.v) v = static_cast<uint8_t>(v >> Shift & mask);
  return c;
}
inline Codes joined(Codes a, const Codes& b, int mask) {
  for (int i = 0; i < 64; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] | (b.v[i] & mask));
  return a;
}
template <int Offset>
inline Ints begin_ints(int32_t negative) {
  Ints sum;
  for (int32_t& v : sum.v) v = negative * Offset;
  return sum;
}
template <int Offset>
inline Ints dot(Ints sum, const Codes& c, int32_t four) {
  int8_t x[4];
  memcpy(x, &four, sizeof(x));
  for (int i = 0; i < 64; ++i) sum.v[i / 4] += c.v[i] * x[i % 4];
  return sum;
}

#endif

// What is multiplied with 32 k of x: a scale and, if kMinima, a minimum; kParts of equal width, which have a scale in
// integers if they are two.
template <uint32_t Parts>
struct PackedBlock {
  Floats scale, minimum;
  Ints part_scale[Parts];
  Codes code[8];
};

// A unit of a group, for the rows from kSide * side on.
struct PackedUnit {
  Floats halves(size_t at) const { return halves_at(bytes + at + 2 * kSide * side); }
  const uint8_t* codes(size_t at) const { return bytes + at + 4 * kSide * side; }
  const uint8_t* scales(size_t at) const { return bytes + at + kSide * side; }  // of 8 bits
  const uint8_t* bytes;
  uint32_t side;
};

// A format of packed weights, read as what is multiplied with 32 k of x at a time:
//   kCode       that of its Packing
//   kUnitBytes  of a unit of a group; kBlocks: how many 32 k a unit has
//   kOffset     which a code has more than the integer that it stands for: 0, or a power of two
//   kMinima     whether a weight is scale * integer + minimum, else scale * integer
//   kParts      1, or 2 where either 16 k have an integer scale of their own
// A value of the type is one unit for the rows from kSide * side on; block(b) gives its b-th 32 k.
template <class W>
concept PackedWeights = requires(const PackedUnit& unit, const W w, uint32_t b) {
  W{unit};
  { uint32_t{W::kCode} };
  { uint32_t{W::kUnitBytes} };
  { uint32_t{W::kBlocks} };
  { int{W::kOffset} };
  { bool{W::kMinima} };
  { w.block(b) } -> std::same_as<PackedBlock<W::kParts>>;
};

inline int32_t four_at(const int8_t* q) {
  int32_t four;
  memcpy(&four, q, sizeof(four));
  return four;
}

// R rows of x with the rows of a group from kSide * side on.
template <PackedWeights F, uint32_t R>
inline void packed_tile(const PackedProduct& t, const uint8_t* group, uint32_t side, uint32_t row, float* y) {
  constexpr uint32_t kSteps = 8 / F::kParts;
  const uint32_t blocks = t.x.k / kInt8Block;
  Floats sum[R];
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) sum[r] = no_floats();
  uint32_t b = 0;
  for (const uint8_t* unit = group; b < blocks; unit += F::kUnitBytes) {
    const F weights{PackedUnit{unit, side}};
    for (uint32_t i = 0; i < F::kBlocks; ++i, ++b) {
      const PackedBlock<F::kParts> w = weights.block(i);
#pragma GCC unroll 8
      for (uint32_t r = 0; r < R; ++r) {
        const size_t at = size_t{row + r} * blocks + b;
        const int8_t* q = t.x.q + at * kInt8Block;
        Ints dots[F::kParts];
#pragma GCC unroll 2
        for (uint32_t p = 0; p < F::kParts; ++p) {
          dots[p] = begin_ints<F::kOffset>(F::kParts == 2 ? t.x.negative16[2 * at + p] : t.x.negative32[at]);
#pragma GCC unroll 8
          for (uint32_t s = p * kSteps; s < (p + 1) * kSteps; ++s)
            dots[p] = dot<F::kOffset>(dots[p], w.code[s], four_at(q + 4 * s));
        }
        if constexpr (F::kParts == 2) dots[0] = add(mul(dots[0], w.part_scale[0]), mul(dots[1], w.part_scale[1]));
        sum[r] = fma(to_floats(dots[0]), mul(w.scale, splat_floats(t.x.scale[at])), sum[r]);
        if constexpr (F::kMinima) sum[r] = fma(w.minimum, splat_floats(t.x.sum[at]), sum[r]);
      }
    }
  }
#pragma GCC unroll 8
  for (uint32_t r = 0; r < R; ++r) store(y + r * t.y_stride, sum[r]);
}

template <class F, uint32_t R>
inline void packed_rows(const PackedProduct& t, uint32_t& row) {
  for (; row + R <= t.rows; row += R) {
    const uint8_t* group = t.weights;
    for (uint32_t c = 0; c < t.columns; c += kGroupRows, group += t.group_bytes) {
      for (uint32_t side = 0; side < kGroupRows / kSide; ++side) {
        packed_tile<F, R>(t, group, side, row, t.y + row * t.y_stride + c + kSide * side);
      }
    }
  }
}

template <PackedWeights F>
void packed_product(const PackedProduct& t) {
  uint32_t row = 0;
  if constexpr (kMostXRows >= 8) packed_rows<F, 8>(t, row);
  if constexpr (kMostXRows >= 4) packed_rows<F, 4>(t, row), packed_rows<F, 2>(t, row);
  packed_rows<F, 1>(t, row);
}

template <PackedWeights F>
constexpr PackedFormat packed_format() {
  return {F::kCode, &packed_product<F>};
}

}  // namespace
}  // namespace tenon::sdk::cpu
