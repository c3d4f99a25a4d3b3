// This is the vocabulary for arithmetic on bits: a register of lanes of u32, i32, u64 or f32, with C's operators. It is
// for kernels that mix the lengths and the kinds of lanes, such as random numbers and their logarithms; vector.h has
// the vectors of products and of attention. In plain code a register has the sixteen bytes that every x86-64 has.
//
// Operators work lane by lane, without fusing, so the bits of a result do not depend on the instruction set. A
// comparison gives all bits of a lane or none, and `c ? a : b` chooses by lane. __builtin_bit_cast() takes a register
// for one of another type, and __builtin_convertvector() converts numbers.
//
// It is for kernels, as vector.h is.
#pragma once

#include "tenon/sdk/cpu/vector_types.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tenon::sdk::cpu {
namespace {

#if defined(__AVX512F__)
constexpr uint32_t kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr uint32_t kRegisterBytes = 32;
#else
constexpr uint32_t kRegisterBytes = 16;
#endif
constexpr uint32_t kWordLanes = kRegisterBytes / 4;  // lanes of 32 bits

typedef uint32_t U32Lanes __attribute__((vector_size(kRegisterBytes)));
typedef int32_t I32Lanes __attribute__((vector_size(kRegisterBytes)));
typedef float F32Lanes __attribute__((vector_size(kRegisterBytes)));
typedef uint64_t U64Lanes __attribute__((vector_size(kRegisterBytes)));

// Reads a register of elements at any address.
template <class V, class T>
inline V load_lanes(const T* from) {
  V v;
  memcpy(&v, from, sizeof(v));
  return v;
}
// Returns first, first + 1, ...
template <class V>
inline V counting_from(uint32_t first) {
  V v{};
  for (uint32_t i = 0; i < sizeof(V) / sizeof(v[0]); ++i) v[i] = first + i;
  return v;
}

// Returns the products of the lanes' low halves; the high halves do not matter.
inline U64Lanes multiply_low_halves(U64Lanes a, U64Lanes b) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(U64Lanes, _mm512_mul_epu32(__builtin_bit_cast(__m512i, a), __builtin_bit_cast(__m512i, b)));
#elif defined(__AVX2__)
  return __builtin_bit_cast(U64Lanes, _mm256_mul_epu32(__builtin_bit_cast(__m256i, a), __builtin_bit_cast(__m256i, b)));
#elif defined(__SSE2__)
  return __builtin_bit_cast(U64Lanes, _mm_mul_epu32(__builtin_bit_cast(__m128i, a), __builtin_bit_cast(__m128i, b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// Returns the lanes a0, b0, a1, b1, ... of one half of a and b: the first (kHalf = 0) or the second (1).
template <int kHalf>
inline U64Lanes interleave(U64Lanes a, U64Lanes b) {
  constexpr int kLanes = sizeof(U64Lanes) / 8, kA = kHalf * kLanes / 2, kB = kLanes + kA;
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, kA, kB, kA + 1, kB + 1, kA + 2, kB + 2, kA + 3, kB + 3);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, kA, kB, kA + 1, kB + 1);
#else
  return __builtin_shufflevector(a, b, kA, kB);
#endif
}

}  // namespace
}  // namespace tenon::sdk::cpu
