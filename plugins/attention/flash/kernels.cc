// kernels.h has these, once for each instruction set (tenon_add_kernels). Vectors are those of tenon/sdk/cpu/vector.h,
// as wide as a register; lanes are keys while scores are made, and dimensions while values are added.
//
// An example has 8 queries (4 rows, 2 heads that share keys) of 128 dimensions and a block of 64 keys, under AVX-512.
// load_keys() converts the keys, 16 of them by 16 dimensions at a time, and transposes each such square in registers:
// (128 dimensions, 64 keys) f32. scores() takes 6 queries with all 64 keys, which are 24 accumulators; each step of d
// broadcasts one number of each query and reads 4 vectors of keys. The 2 queries that are left are taken one by one.
// softmax() makes (8, 64) weights of the scores. accumulate() takes 6 queries with 64 of the 128 dimensions of the
// values: 24 accumulators again, over all keys. With at most kFewQueries queries nothing is kept: scores_of_few() and
// accumulate_few() convert keys and values on their way into the same sums.
//
// The naive twin is plugins/attention/reference.
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "tenon/abi/types.h"
#include "tenon/sdk/cpu/kv_vector.h"

namespace tenon::flash {
namespace {

using namespace sdk::cpu;
using Vector = Floats<kWidth>;

// A large tile has kRowTile queries; it and smaller tiles have so many vectors of keys or of values: as many
// accumulators as there are registers, less those of a step's operands.
constexpr uint32_t kRowTile = kWidth == 1 ? 2 : 6, kTile = kWidth == 8 ? 2 : 4, kSmallTile = 4;

template <uint32_t N>
struct Constant {
  constexpr operator uint32_t() const { return N; }
};

// This is Cephes' expf: range reduction to |r| <= ln 2 / 2, a polynomial of degree
// 6. x is at most 0; below -87 it gives 0.
Vector exp_negative(Vector x) {
  const Vector limit = Vector::all(-87.0f);
  const Vector clamped = max(limit, x);
  const Vector n = round(mul(clamped, Vector::all(1.44269504f)));
  const Vector r = multiply_add(n, Vector::all(2.12194440e-4f), multiply_add(n, Vector::all(-0.693359375f), clamped));
  Vector y = Vector::all(1.9875691500e-4f);
  y = multiply_add(y, r, Vector::all(1.3981999507e-3f));
  y = multiply_add(y, r, Vector::all(8.3334519073e-3f));
  y = multiply_add(y, r, Vector::all(4.1665795894e-2f));
  y = multiply_add(y, r, Vector::all(1.6666665459e-1f));
  y = multiply_add(y, r, Vector::all(5.0000001201e-1f));
  y = add(multiply_add(y, mul(r, r), r), Vector::all(1.0f));
  return zero_below(x, limit, mul(y, power_of_two(n)));
}

float exp_one(float x) {
  float lanes[kWidth];
  store(lanes, exp_negative(Vector::all(x)));
  return lanes[0];
}

template <uint32_t kCodec>
void prefetch(const void* row, uint32_t element, int64_t ahead) {
  const auto byte = static_cast<int64_t>(kv_byte<kCodec>(element));
  if (byte % 64 == 0) __builtin_prefetch(static_cast<const char*>(row) + byte + ahead, 0, 2);
}

constexpr bool is_scaled(uint32_t codec) {
  return codec == TENON_I8 || codec == TENON_F8E4M3 || codec == TENON_U8;
}

// Returns elements [element, element + n) of a row as f32: a vector of what tenon/sdk/kv_codec.h makes of one.
template <uint32_t kCodec>
Vector decode(const CachedRows& rows, uint32_t row, uint32_t element, uint32_t n) {
  return decode_kv<kCodec, kWidth>(rows.row[row], element, n, is_scaled(kCodec) ? rows.scale[row] : 1);
}

// The templates below take CachedRows and ValueSums by value: the compiler then knows that no store changes them.
template <uint32_t kCodec>
void load_keys_of(const CachedRows keys, float* to) {
  const uint32_t dim = keys.dim;
  for (uint32_t group = 0; group < kKeys; group += kWidth) {
    for (uint32_t d = 0; d < dim; d += kWidth) {
      const uint32_t n = dim - d < kWidth ? dim - d : kWidth;
      Vector rows[kWidth];
#pragma GCC unroll 16
      for (uint32_t i = 0; i < kWidth; ++i) {
        const uint32_t k = group + i;
        rows[i] = Vector::zeros();
        if (k >= keys.first && k < keys.end) [[likely]] {
          prefetch<kCodec>(keys.row[k], d, keys.ahead);
          rows[i] = decode<kCodec>(keys, k, d, n);
        }
      }
      transpose(rows);
#pragma GCC unroll 16
      for (uint32_t i = 0; i < kWidth; ++i) {
        if (i < n) store(to + (d + i) * kKeys + group, rows[i]);
      }
    }
  }
}

template <uint32_t kCodec>
void load_values_of(const CachedRows values, uint32_t padded, float* to) {
  for (uint32_t k = values.first; k < values.end; ++k) {
    for (uint32_t d = 0; d < padded; d += kWidth) {
      const uint32_t left = d < values.dim ? values.dim - d : 0;
      prefetch<kCodec>(values.row[k], d, values.ahead);
      store(to + k * padded + d, decode<kCodec>(values, k, d, left < kWidth ? left : kWidth));
    }
  }
}

// Calls f with the codec as a constant.
template <class F>
void with_codec(uint32_t codec, F&& f) {
  if (codec == TENON_F32) return f(Constant<TENON_F32>());
  if (codec == TENON_F16) return f(Constant<TENON_F16>());
  if (codec == TENON_I8) return f(Constant<TENON_I8>());
  if (codec == TENON_F8E4M3) return f(Constant<TENON_F8E4M3>());
  if (codec == TENON_U8) return f(Constant<TENON_U8>());
  f(Constant<TENON_BF16>());
}

void load_keys(const CachedRows& keys, float* to) {
  with_codec(keys.codec, [&](auto kCodec) { load_keys_of<kCodec>(keys, to); });
}

void load_values(const CachedRows& values, uint32_t padded, float* to) {
  with_codec(values.codec, [&](auto kCodec) { load_values_of<kCodec>(values, padded, to); });
}

void turn(float* keys, const float* angle, uint32_t half, int32_t pairing) {
  const bool interleaved = pairing != 0;
  for (uint32_t i = 0; i < half; ++i) {
    float* first = keys + (interleaved ? 2 * i : i) * kKeys;
    float* second = keys + (interleaved ? 2 * i + 1 : i + half) * kKeys;
    for (uint32_t k = 0; k < kKeys; k += kWidth) {
      const Vector c = Vector::load(angle + 2 * i * kKeys + k), s = Vector::load(angle + (2 * i + 1) * kKeys + k);
      const Vector u = Vector::load(first + k), v = Vector::load(second + k);
      store(first + k, sub(mul(u, c), mul(v, s)));
      store(second + k, multiply_add(u, s, mul(v, c)));
    }
  }
}

// Returns the vectors of a tile: all registers are in use with kRowTile queries, and with few queries as well.
constexpr uint32_t tile_of(uint32_t rows) {
  return rows == kRowTile ? uint32_t{kTile} : uint32_t{kSmallTile};
}

// Multiplies kRows queries by kVectors vectors of keys at a time.
template <uint32_t kRows, uint32_t kVectors = tile_of(kRows)>
void score_tile(const float* q, uint32_t dim, const float* keys, float* s) {
  for (uint32_t group = 0; group < kKeys; group += kVectors * kWidth) {
    Vector sum[kRows][kVectors];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (uint32_t j = 0; j < kVectors; ++j) sum[i][j] = Vector::zeros();
    }
    for (uint32_t d = 0; d < dim; ++d) {
      const float* row = keys + d * kKeys + group;
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kRows; ++i) {
        const Vector x = Vector::all(q[i * dim + d]);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < kVectors; ++j) sum[i][j] = multiply_add(x, Vector::load(row + j * kWidth), sum[i][j]);
      }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (uint32_t j = 0; j < kVectors; ++j) store(s + i * kKeys + group + j * kWidth, sum[i][j]);
    }
  }
}

void scores(const float* q, uint32_t n, uint32_t dim, const float* keys, float* s) {
  uint32_t i = 0;
  for (; i + kRowTile <= n; i += kRowTile) score_tile<kRowTile>(q + i * dim, dim, keys, s + i * kKeys);
  for (; i + 3 <= n; i += 3) score_tile<3>(q + i * dim, dim, keys, s + i * kKeys);
  for (; i < n; ++i) score_tile<1>(q + i * dim, dim, keys, s + i * kKeys);
}

// Multiplies kRows queries by kWidth keys, from `group` on. kWhole says that all of them are there.
template <uint32_t kCodec, uint32_t kRows, bool kWhole>
void few_scores(const CachedRows keys, const float* q, uint32_t group, float* s) {
  const uint32_t dim = keys.dim;
  Vector sum[kRows];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kRows; ++r) sum[r] = Vector::zeros();
  for (uint32_t d = 0; d < dim; d += kWidth) {
    const uint32_t n = dim - d < kWidth ? dim - d : kWidth;
    Vector rows[kWidth];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kWidth; ++i) {
      const uint32_t k = group + i;
      rows[i] = Vector::zeros();
      if (kWhole || (k >= keys.first && k < keys.end)) [[likely]] {
        prefetch<kCodec>(keys.row[k], d, keys.ahead);
        rows[i] = decode<kCodec>(keys, k, d, n);
      }
    }
    transpose(rows);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kWidth; ++i) {
      if (i >= n) break;
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kRows; ++r) sum[r] = multiply_add(Vector::all(q[r * dim + d + i]), rows[i], sum[r]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kRows; ++r) store(s + r * kKeys + group, sum[r]);
}

template <uint32_t kCodec, uint32_t kRows>
void scores_of_rows(const CachedRows keys, const float* q, float* s) {
  for (uint32_t group = keys.first / kWidth * kWidth; group < keys.end; group += kWidth) {
    if (group >= keys.first && group + kWidth <= keys.end) {
      few_scores<kCodec, kRows, true>(keys, q, group, s);
    } else {
      few_scores<kCodec, kRows, false>(keys, q, group, s);
    }
  }
}

// Calls f with the codec and the number of queries as constants.
template <class F>
void with_few(uint32_t codec, uint32_t n, F&& f) {
  with_codec(codec, [&](auto kCodec) {
    if (n == 1) return f(kCodec, Constant<1>());
    if (n == 2) return f(kCodec, Constant<2>());
    if (n == 3) return f(kCodec, Constant<3>());
    f(kCodec, Constant<4>());
  });
}

void scores_of_few(const CachedRows& keys, const float* q, uint32_t n, float* s) {
  with_few(keys.codec, n, [&](auto kCodec, auto kRows) { scores_of_rows<kCodec, kRows>(keys, q, s); });
}

// It is tanh|x| = (1 - e) / (1 + e) with e = exp(-2|x|).
void soft_cap(float* s, uint32_t n, float cap) {
  for (uint32_t i = 0; i < n * kKeys; i += kWidth) {
    const Vector x = mul(Vector::load(s + i), Vector::all(1 / cap));
    const Vector e = exp_negative(mul(abs(x), Vector::all(-2.0f)));
    const Vector y = div(sub(Vector::all(1.0f), e), add(Vector::all(1.0f), e));
    store(s + i, mul(copysign(y, x), Vector::all(cap)));
  }
}

float softmax(float* s, uint64_t visible, float* maximum, float* denominator) {
  if (visible != ~uint64_t{0}) {
    for (uint32_t k = 0; k < kKeys; ++k) {
      if ((visible >> k & 1) == 0) s[k] = -INFINITY;
    }
  }
  Vector top = Vector::load(s);
  for (uint32_t k = kWidth; k < kKeys; k += kWidth) top = max(top, Vector::load(s + k));
  const float greatest = largest(top), now = greatest > *maximum ? greatest : *maximum;
  if (now == -INFINITY) {  // no key is seen, or a score is NaN, which has no part in a maximum
    float all = 0;
    for (uint32_t k = 0; k < kKeys; ++k) all += s[k];
    if (all != all) *maximum = *denominator = all;
    memset(s, 0, kKeys * sizeof(float));
    return 1;
  }
  Vector total = Vector::zeros();
  for (uint32_t k = 0; k < kKeys; k += kWidth) {
    const Vector p = exp_negative(sub(Vector::load(s + k), Vector::all(now)));
    store(s + k, p);
    total = add(total, p);
  }
  const float shrink = *maximum == now ? 1 : exp_one(*maximum - now);
  *denominator = *denominator * shrink + sum(total);
  *maximum = now;
  return shrink;
}

// Adds to the sums of the first kRows queries, in kVectors vectors of dimensions from d on, over keys [first, end).
template <uint32_t kRows, uint32_t kVectors>
void value_tile(const ValueSums sums, uint32_t d, const float* values, uint32_t first, uint32_t end) {
  const uint32_t padded = sums.padded;
  float* acc = sums.sum + d;
  values += d;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (uint32_t j = 0; j < kVectors; ++j)
      sum[i][j] = mul(Vector::load(acc + i * padded + j * kWidth), Vector::all(sums.shrink[i]));
  }
  for (uint32_t k = first; k < end; ++k) {
    const float* row = values + k * padded;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kRows; ++i) {
      const Vector x = Vector::all(sums.weight[i * kKeys + k]);
#pragma GCC unroll 8
      for (uint32_t j = 0; j < kVectors; ++j) sum[i][j] = multiply_add(x, Vector::load(row + j * kWidth), sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (uint32_t j = 0; j < kVectors; ++j) store(acc + i * padded + j * kWidth, sum[i][j]);
  }
}

template <uint32_t kRows>
void value_rows(const ValueSums sums, const float* values, uint32_t first, uint32_t end) {
  constexpr uint32_t kVectors = tile_of(kRows);
  uint32_t d = 0;
  for (; d + kVectors * kWidth <= sums.padded; d += kVectors * kWidth) {
    value_tile<kRows, kVectors>(sums, d, values, first, end);
  }
  for (; d < sums.padded; d += kWidth) value_tile<kRows, 1>(sums, d, values, first, end);
}

void accumulate(const ValueSums& sums, const float* values, uint32_t first, uint32_t end) {
  ValueSums left = sums;
  const auto rows = [&](auto tile, uint32_t n) {
    for (; left.n >= n; left.n -= n) {
      tile(left, values, first, end);
      left.weight += n * kKeys;
      left.shrink += n;
      left.sum += n * left.padded;
    }
  };
  rows(value_rows<kRowTile>, kRowTile);
  rows(value_rows<3>, 3);
  rows(value_rows<1>, 1);
}

template <uint32_t kCodec, uint32_t kRows>
void few_values(const ValueSums sums, const CachedRows values) {
  const uint32_t dim = values.dim, padded = sums.padded;
  float* acc = sums.sum;
  constexpr uint32_t kVectors = 64 / kWidth < 4 ? 64 / kWidth : 4;
  for (uint32_t d = 0; d < padded; d += kVectors * kWidth) {
    Vector sum[kRows][kVectors];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kVectors; ++j) {
        const uint32_t at = d + j * kWidth;
        sum[r][j] =
            at < padded ? mul(Vector::load(acc + r * padded + at), Vector::all(sums.shrink[r])) : Vector::zeros();
      }
    }
    for (uint32_t k = values.first; k < values.end; ++k) {
      Vector v[kVectors];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kVectors; ++j) {
        const uint32_t at = d + j * kWidth, left = at < dim ? dim - at : 0;
        if (left != 0) prefetch<kCodec>(values.row[k], at, values.ahead);
        v[j] = decode<kCodec>(values, k, at, left < kWidth ? left : kWidth);
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kRows; ++r) {
        const Vector x = Vector::all(sums.weight[r * kKeys + k]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kVectors; ++j) sum[r][j] = multiply_add(x, v[j], sum[r][j]);
      }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kVectors; ++j) {
        const uint32_t at = d + j * kWidth;
        if (at < padded) store(acc + r * padded + at, sum[r][j]);
      }
    }
  }
}

void accumulate_few(const ValueSums& sums, const CachedRows& values) {
  with_few(values.codec, sums.n, [&](auto kCodec, auto kRows) { few_values<kCodec, kRows>(sums, values); });
}

void fold(float* to, float a, const float* from, float b, uint32_t n) {
  for (uint32_t i = 0; i < n; i += kWidth)
    store(to + i, multiply_add(Vector::load(from + i), Vector::all(b), mul(Vector::load(to + i), Vector::all(a))));
}

}  // namespace

constinit const Kernels TENON_ISA::kKernels = {.load_keys = load_keys,
                                               .turn = turn,
                                               .load_values = load_values,
                                               .scores = scores,
                                               .scores_of_few = scores_of_few,
                                               .soft_cap = soft_cap,
                                               .softmax = softmax,
                                               .accumulate = accumulate,
                                               .accumulate_few = accumulate_few,
                                               .fold = fold,
                                               .exp = exp_one};

}  // namespace tenon::flash
