// These are the inner loops, a table for each instruction set. A block is 64 keys, at spots from a multiple of 64 on.
//
// Every sum runs in an order that depends on nothing but the row itself: scores over dimensions from first to last,
// values over keys from first to last, the softmax's denominator over 64 lanes in one fixed tree. So a row's bits are
// the same alone and among others.
#pragma once

#include <stdint.h>

namespace tenon::flash {

enum { kKeys = 64 };          // a block has so many keys
enum { kFewQueries = 4 };     // for so few queries no block is converted as a whole
enum { kValuePadding = 16 };  // rows of values and accumulators are padded to a multiple of this many floats

// These are the keys, or the values, of a block as the cache has them.
struct CachedRows {
  uint32_t codec, dim;
  uint32_t first, end;     // Rows [first, end) of the block are there.
  const void* const* row;  // (kKeys)
  const float* scale;      // (kKeys), for codecs that have scales
  int64_t ahead;           // the bytes that are wanted next come so many after each row
};

// Sums of weighted values, of n queries.
struct ValueSums {
  const float* weight;  // (n, kKeys)
  const float* shrink;  // (n): what the sums are multiplied by before anything is added
  uint32_t n, padded;
  float* sum;  // (n, padded)
};

struct Kernels {
  // Writes keys as f32 and transposed: to[d * kKeys + key]. Keys that are not there become 0.
  void (*load_keys)(const CachedRows& keys, float* to);
  // Turns transposed keys in place: pair i by the angle of cosine angle[2 i * kKeys + key] and sine
  // angle[(2 i + 1) * kKeys + key]. Pairs are those of TENON_F_ROPE: (i, i + half) by pairing 0, else (2 i, 2 i + 1).
  void (*turn)(float* keys, const float* angle, uint32_t half, int32_t pairing);
  // Writes values as f32: to[key * padded + d], 0 after dim. Rows that are not there are left alone.
  void (*load_values)(const CachedRows& values, uint32_t padded, float* to);
  // Computes s[i * kKeys + key] = dot(q[i * dim], key), for n queries.
  void (*scores)(const float* q, uint32_t n, uint32_t dim, const float* keys, float* s);
  // Computes the same of keys that are converted and transposed on the way, for n <= kFewQueries. Scores of keys that
  // are not there are left alone, or become 0.
  void (*scores_of_few)(const CachedRows& keys, const float* q, uint32_t n, float* s);
  // Computes s = cap * tanh(s / cap), for n blocks.
  void (*soft_cap)(float* s, uint32_t n, float cap);
  // In one query's block scores become exp(score - maximum), 0 where `visible` has no bit. Updates maximum and sum, and
  // returns the factor by which what was accumulated under the old maximum shrinks.
  float (*softmax)(float* s, uint64_t visible, float* maximum, float* sum);
  // Adds values[key * padded] of keys [first, end), weighted, to the shrunk sums.
  void (*accumulate)(const ValueSums& sums, const float* values, uint32_t first, uint32_t end);
  // Does the same with values that are converted on the way, for n <= kFewQueries.
  void (*accumulate_few)(const ValueSums& sums, const CachedRows& values);
  // Computes to = to * a + from * b.
  void (*fold)(float* to, float a, const float* from, float b, uint32_t n);
  float (*exp)(float x);  // x <= 0
};

namespace scalar {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
inline constexpr const Kernels& kScalarKernels = scalar::kKernels;
inline constexpr const Kernels& kAvx2Kernels = avx2::kKernels;
inline constexpr const Kernels& kAvx512Kernels = avx512::kKernels;

}  // namespace tenon::flash
