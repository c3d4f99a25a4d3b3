// The CPU's kernels are written in this vocabulary: vectors of floats, of integers and of packed codes, under AVX-512,
// under AVX2 or in plain code, as the source is compiled. A kernel is written once in these words, and compiled once
// for each instruction set (tenon_add_kernels).
//
//   Floats<N>   N lanes of f32
//   Doubles<N>  N lanes of f64
//   Ints<N>     N lanes of i32
//   Codes<N>    4 N bytes: in lane l four codes without a sign, which one dot product takes
//   Words<N>    2 N i16: in lane l two numbers, which one dot product takes; under AVX-512 and AVX2
//
// Intrinsics stand in the headers of this folder alone. What weights, rows of x and caches need beside this has headers
// of its own: vector_bits.h, vector_bytes.h, coded_rows.h, sparse_rows.h, row_formats.h, row_ops.h, kv_vector.h.
//
// kWidth is the number of lanes that a register has: 16, 8 or, in plain code, 1; kDoubleWidth is that of Doubles. A
// kernel whose sums must not depend on the instruction set takes Floats<16> everywhere (products.h): AVX2 makes it of
// two registers, plain code of an array. A kernel whose lanes do not meet takes Floats<kWidth>
// (plugins/attention/flash). The concepts below say what each of the three files vector_*.h defines.
//
// Everything is in an anonymous namespace, so that no other source of a plugin picks up code of another instruction
// set: include this, and what builds on it, only in sources that are compiled for one set.
#pragma once

#include <concepts>

#include "tenon/sdk/cpu/vector_avx2.h"
#include "tenon/sdk/cpu/vector_avx512.h"
#include "tenon/sdk/cpu/vector_plain.h"

namespace tenon::sdk::cpu {
namespace {

#if defined(__AVX512F__)
constexpr uint32_t kWidth = 16;
#elif defined(__AVX2__)
constexpr uint32_t kWidth = 8;
#else
constexpr uint32_t kWidth = 1;
#endif

constexpr uint32_t kDoubleWidth = kWidth > 1 ? kWidth / 2 : 1;

using Floats16 = Floats<16>;

#if defined(__AVX2__)
// Folds four lanes, halves on halves.
inline __m128 folded_to_four(Floats16 a) {
  return folded(folded(a));
}
inline float sum(Floats16 a) {
  return sum(folded(a));
}
// Stores s[i] = sum of a[i], in the same order as sum() adds them.
inline void sum4(const Floats16* a, float* s) {
  __m128 r0 = folded_to_four(a[0]), r1 = folded_to_four(a[1]), r2 = folded_to_four(a[2]), r3 = folded_to_four(a[3]);
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(s, _mm_add_ps(_mm_add_ps(r0, r2), _mm_add_ps(r1, r3)));
}
template <uint32_t N>
inline Floats<N> multiply_add(Floats<N> a, Floats<N> b, Floats<N> c) {
  return fma(a, b, c);
}
#endif

// Products need these.
template <class F>
concept FloatVector = requires(F a, F b, F c, const float* from, float* to, const void* stored, float x, uint32_t n) {
  { F::zeros() } -> std::same_as<F>;
  { F::all(x) } -> std::same_as<F>;  // x in every lane
  // Reads or writes floats at any address.
  { F::load(from) } -> std::same_as<F>;
  // Reads the first n and makes the others zero; nothing further is read. n may be the number of lanes.
  { F::load_first(from, n) } -> std::same_as<F>;
  store(to, a);
  // Reads as many elements of F32, F16, BF16, I8 or U8 as there are lanes, at any address.
  { F::template decode<TENON_F16>(stored) } -> std::same_as<F>;
  { F::template decode_first<TENON_I8>(stored, n) } -> std::same_as<F>;
  { mul(a, b) } -> std::same_as<F>;
  { fma(a, b, c) } -> std::same_as<F>;  // a * b + c, rounded once on every machine
  { sum(a) } -> std::same_as<float>;    // halves are added to halves until one lane is left
};

// Products that add to what is there already need these, of T = float or double.
template <class V, class T>
concept SumVector = requires(V a, V b, V c, const T* from, T* to, T x) {
  { V::zeros() } -> std::same_as<V>;
  { V::all(x) } -> std::same_as<V>;
  { V::load(from) } -> std::same_as<V>;
  store(to, a);
  { add(a, b) } -> std::same_as<V>;
  { multiply_add(a, b, c) } -> std::same_as<V>;
};

// A softmax needs these besides.
template <class F>
concept MathVector = FloatVector<F> && requires(F a, F b, F c, F limit) {
  { add(a, b) } -> std::same_as<F>;
  { sub(a, b) } -> std::same_as<F>;
  { div(a, b) } -> std::same_as<F>;
  { max(a, b) } -> std::same_as<F>;              // b where either is NaN
  { multiply_add(a, b, c) } -> std::same_as<F>;  // a * b + c; plain code rounds the product, too, which is faster there
  { round(a) } -> std::same_as<F>;               // to the nearest whole number, halves to the even one
  { abs(a) } -> std::same_as<F>;
  { copysign(a, b) } -> std::same_as<F>;           // the magnitude of a with the sign of b
  { power_of_two(a) } -> std::same_as<F>;          // 2^a of a whole number from -126 to 127; anything of NaN
  { zero_below(a, limit, b) } -> std::same_as<F>;  // b where a >= limit or either is NaN, else 0
  { largest(a) } -> std::same_as<float>;
};

// A product of packed codes needs these (packed_products.h). They compute lane by lane, in exact integers.
template <class I, class C, class F>
concept DotVectors = requires(I a, I b, C c, C d, const uint8_t* from, const uint8_t (&table)[16], int32_t x) {
  { I::load_i8(from) } -> std::same_as<I>;
  { mul(a, b) } -> std::same_as<I>;
  { add(a, b) } -> std::same_as<I>;
  { raised<8>(a) } -> std::same_as<I>;  // times 2^8
  { to_floats(a) } -> std::same_as<F>;
  { C::load(from) } -> std::same_as<C>;
  { shifted<2>(c) } -> std::same_as<C>;        // each byte down by two bits; above them lies anything
  { shifted<2>(c, 3) } -> std::same_as<C>;     // the same, and what the mask has of it
  { raised<2>(c) } -> std::same_as<C>;         // each byte up by two bits; below them lies anything
  { joined(c, d, 3) } -> std::same_as<C>;      // c | (d & mask)
  { looked_up(table, c) } -> std::same_as<C>;  // table[code], of codes below 16
  // The product of the four codes of each lane, less Offset each, with four x in one word, is begin + dot: begin takes
  // minus the sum of all x that the codes will meet.
  { I::template begin<8>(x) } -> std::same_as<I>;
  { dot<8>(a, c, x) } -> std::same_as<I>;
};

// A product of numbers of 16 bits needs these (wide_products.h); sums wrap around.
template <class I, class W, class C>
concept WordVectors = requires(I a, W w, W x, C places, int32_t two_x, const int16_t* from) {
  { dot(a, w, two_x) } -> std::same_as<I>;     // the two numbers of each lane times those of two_x
  { dot(a, w, x) } -> std::same_as<I>;         // times those of the lane of x
  { W::repeated(from) } -> std::same_as<W>;    // in every two lanes the same four
  { bytes_at(x, places) } -> std::same_as<W>;  // places choose among each 16 bytes; a highest bit makes 0
};

static_assert(FloatVector<Floats<16>> && MathVector<Floats<kWidth>>);
static_assert(SumVector<Floats<kWidth>, float> && SumVector<Doubles<kDoubleWidth>, double>);

// Hints that the cache lines of [p, p + bytes) will be wanted; any address will do.
inline void prefetch(const uint8_t* p, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(p + at);
}

// Weights are fetched so many bytes before they are multiplied. Left to itself, hardware asks for few lines
// at once, and begins anew with every page.
constexpr size_t kAhead = 4096;

}  // namespace
}  // namespace tenon::sdk::cpu
