#include <immintrin.h>

#include "kernels.h"
#include "tenon/abi/types.h"

namespace tenon::flash {
namespace {

using V = __m512;
enum : uint32_t { kLanes = 16, kRowTile = 6, kTile = 4, kSmallTile = 4 };

V load(const float* p) {
  return _mm512_loadu_ps(p);
}
void store(float* p, V x) {
  _mm512_storeu_ps(p, x);
}
V set(float x) {
  return _mm512_set1_ps(x);
}
V add(V a, V b) {
  return _mm512_add_ps(a, b);
}
V sub(V a, V b) {
  return _mm512_sub_ps(a, b);
}
V mul(V a, V b) {
  return _mm512_mul_ps(a, b);
}
V div(V a, V b) {
  return _mm512_div_ps(a, b);
}
V fma(V a, V b, V c) {
  return _mm512_fmadd_ps(a, b, c);
}
V max(V a, V b) {
  return _mm512_max_ps(a, b);
}
float largest(V x) {
  return _mm512_reduce_max_ps(x);
}
float folded(V x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
V round(V x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
V abs(V x) {
  return _mm512_abs_ps(x);
}
V copysign(V x, V sign) {
  const V bit = set(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(bit, x), _mm512_and_ps(bit, sign));
}
V power(V n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
V zero_below(V x, V limit, V y) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), y);
}

template <uint32_t kCodec>
V load_codec(const void* p, uint32_t element, uint32_t n) {
  const auto lanes = static_cast<__mmask16>((1u << n) - 1);
  if constexpr (kCodec == TENON_F32) {
    return _mm512_maskz_loadu_ps(lanes, static_cast<const float*>(p) + element);
  } else if constexpr (kCodec == TENON_I8) {
    const __m128i bytes = _mm_maskz_loadu_epi8(lanes, static_cast<const int8_t*>(p) + element);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  } else {
    const __m256i bits = _mm256_maskz_loadu_epi16(lanes, static_cast<const uint16_t*>(p) + element);
    if constexpr (kCodec == TENON_F16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
}

[[gnu::always_inline]] inline void transpose(V (&r)[kLanes]) {
  V t[kLanes], u[kLanes];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kLanes; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  // u[4 i + j], part L: rows 4 i to 4 i + 3 of column 4 L + j.
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kLanes; i += 4) {
    for (uint32_t j = 0; j < 2; ++j) {
      const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
      u[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      u[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
#pragma GCC unroll 8
  for (uint32_t j = 0; j < 4; ++j) {
    const V even_low = _mm512_shuffle_f32x4(u[j], u[4 + j], 0x88);
    const V even_high = _mm512_shuffle_f32x4(u[8 + j], u[12 + j], 0x88);
    const V odd_low = _mm512_shuffle_f32x4(u[j], u[4 + j], 0xdd);
    const V odd_high = _mm512_shuffle_f32x4(u[8 + j], u[12 + j], 0xdd);
    r[j] = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    r[4 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    r[8 + j] = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    r[12 + j] = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}

}  // namespace
}  // namespace tenon::flash

#include "kernels_body.h"

namespace tenon::flash {
const Kernels kAvx512Kernels = kKernels;
}
