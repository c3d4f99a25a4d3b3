#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "tenon/abi/types.h"

namespace tenon::flash {
namespace {

using V = __m256;
enum : uint32_t { kLanes = 8, kRowTile = 6, kTile = 2, kSmallTile = 4 };

V load(const float* p) {
  return _mm256_loadu_ps(p);
}
void store(float* p, V x) {
  _mm256_storeu_ps(p, x);
}
V set(float x) {
  return _mm256_set1_ps(x);
}
V add(V a, V b) {
  return _mm256_add_ps(a, b);
}
V sub(V a, V b) {
  return _mm256_sub_ps(a, b);
}
V mul(V a, V b) {
  return _mm256_mul_ps(a, b);
}
V div(V a, V b) {
  return _mm256_div_ps(a, b);
}
V fma(V a, V b, V c) {
  return _mm256_fmadd_ps(a, b, c);
}
V max(V a, V b) {
  return _mm256_max_ps(a, b);
}
float largest(V x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
float folded(V x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
V round(V x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
V abs(V x) {
  return _mm256_andnot_ps(set(-0.0f), x);
}
V copysign(V x, V sign) {
  return _mm256_or_ps(abs(x), _mm256_and_ps(set(-0.0f), sign));
}
V power(V n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
V zero_below(V x, V limit, V y) {
  return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_NLT_UQ), y);
}

template <uint32_t kCodec>
V load_codec(const void* p, uint32_t element, uint32_t n) {
  if constexpr (kCodec == TENON_F32) {
    const auto* from = static_cast<const float*>(p) + element;
    if (n == kLanes) return load(from);
    float part[kLanes] = {};
    memcpy(part, from, n * sizeof(float));
    return load(part);
  } else if constexpr (kCodec == TENON_I8) {
    int8_t part[kLanes] = {};
    memcpy(part, static_cast<const int8_t*>(p) + element, n < kLanes ? n : uint32_t{kLanes});
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(part))));
  } else {
    const auto* from = static_cast<const uint16_t*>(p) + element;
    uint16_t part[kLanes] = {};
    if (n != kLanes) {
      memcpy(part, from, n * sizeof(uint16_t));
      from = part;
    }
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (kCodec == TENON_F16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

[[gnu::always_inline]] inline void transpose(V (&r)[kLanes]) {
  V t[kLanes], u[kLanes];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kLanes; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  // u[4 i + j], half L: rows 4 i to 4 i + 3 of column 4 L + j.
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kLanes; i += 4) {
    for (uint32_t j = 0; j < 2; ++j) {
      const __m256d a = _mm256_castps_pd(t[i + j]), b = _mm256_castps_pd(t[i + j + 2]);
      u[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
      u[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    }
  }
#pragma GCC unroll 8
  for (uint32_t j = 0; j < 4; ++j) {
    r[j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x20);
    r[4 + j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x31);
  }
}

}  // namespace
}  // namespace tenon::flash

#include "kernels_body.h"

namespace tenon::flash {
const Kernels kAvx2Kernels = kKernels;
}
