// The kernels in terms of a vector type. An instruction set's source defines, in an unnamed namespace, V with kLanes,
// kRowTile, kTile, kSmallTile and the functions below, and then includes this file once.
//   load, store, set, add, sub, mul, fma(a, b, c) = a * b + c, max(a, b) = b if either is NaN, round, abs, copysign,
//   largest(V) of its lanes, folded(V): their sum, halves onto halves,
//   power(n) = 2^n for whole n, zero_below(x, limit, y) = x < limit ? 0 : y, transpose(V (&)[kLanes])
//   load_codec<codec>(p, element, n): n <= kLanes elements as f32, without their scale, the rest 0
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "tenon/abi/types.h"

namespace tenon::flash {
namespace {

template <uint32_t N>
struct Constant {
  constexpr operator uint32_t() const { return N; }
};

// Cephes' expf: range reduction to |r| <= ln 2 / 2 and a polynomial of degree 6. For x <= 0; 0 below -87.
V exp_negative(V x) {
  const V limit = set(-87.0f);
  const V clamped = max(limit, x);
  const V n = round(mul(clamped, set(1.44269504f)));
  const V r = fma(n, set(2.12194440e-4f), fma(n, set(-0.693359375f), clamped));
  V y = set(1.9875691500e-4f);
  y = fma(y, r, set(1.3981999507e-3f));
  y = fma(y, r, set(8.3334519073e-3f));
  y = fma(y, r, set(4.1665795894e-2f));
  y = fma(y, r, set(1.6666665459e-1f));
  y = fma(y, r, set(5.0000001201e-1f));
  y = add(fma(y, mul(r, r), r), set(1.0f));
  return zero_below(x, limit, mul(y, power(n)));
}

float exp_one(float x) {
  float lanes[kLanes];
  store(lanes, exp_negative(set(x)));
  return lanes[0];
}

template <uint32_t kCodec>
void prefetch(const void* row, uint32_t element, int64_t ahead) {
  const int64_t byte = int64_t{element} * (kCodec == TENON_F32 ? 4 : kCodec == TENON_I8 ? 1 : 2);
  if (byte % 64 == 0) __builtin_prefetch(static_cast<const char*>(row) + byte + ahead, 0, 2);
}

// Elements as f32: what tenon/sdk/kv_codec.h makes of one, for a vector of them.
template <uint32_t kCodec>
V decoded(const void* p, uint32_t element, uint32_t n, const float* scale, uint32_t row) {
  const V x = load_codec<kCodec>(p, element, n);
  if constexpr (kCodec == TENON_I8) return mul(x, set(scale[row]));
  return x;
}

template <uint32_t kCodec>
void load_keys_of(const void* const* key, const float* scale, uint32_t first, uint32_t end, uint32_t dim, int64_t ahead,
                  float* to) {
  for (uint32_t group = 0; group < kKeys; group += kLanes) {
    for (uint32_t d = 0; d < dim; d += kLanes) {
      const uint32_t n = dim - d < kLanes ? dim - d : uint32_t{kLanes};
      V rows[kLanes];
#pragma GCC unroll 16
      for (uint32_t i = 0; i < kLanes; ++i) {
        const uint32_t k = group + i;
        if (k >= first && k < end) prefetch<kCodec>(key[k], d, ahead);
        rows[i] = k >= first && k < end ? decoded<kCodec>(key[k], d, n, scale, k) : set(0.0f);
      }
      transpose(rows);
#pragma GCC unroll 16
      for (uint32_t i = 0; i < kLanes; ++i) {
        if (i < n) store(to + (d + i) * kKeys + group, rows[i]);
      }
    }
  }
}

template <uint32_t kCodec>
void load_values_of(const void* const* value, const float* scale, uint32_t first, uint32_t end, uint32_t dim,
                    int64_t ahead, uint32_t padded, float* to) {
  for (uint32_t k = first; k < end; ++k) {
    for (uint32_t d = 0; d < padded; d += kLanes) {
      const uint32_t left = d < dim ? dim - d : 0;
      prefetch<kCodec>(value[k], d, ahead);
      store(to + k * padded + d, decoded<kCodec>(value[k], d, left < kLanes ? left : uint32_t{kLanes}, scale, k));
    }
  }
}

// f of the codec as a constant.
template <class F>
void with_codec(uint32_t codec, F&& f) {
  if (codec == TENON_F32) return f(Constant<TENON_F32>());
  if (codec == TENON_F16) return f(Constant<TENON_F16>());
  if (codec == TENON_I8) return f(Constant<TENON_I8>());
  f(Constant<TENON_BF16>());
}

void load_keys(uint32_t codec, const void* const* key, const float* scale, uint32_t first, uint32_t end, uint32_t dim,
               int64_t ahead, float* to) {
  with_codec(codec, [&](auto kCodec) { load_keys_of<kCodec>(key, scale, first, end, dim, ahead, to); });
}

void load_values(uint32_t codec, const void* const* value, const float* scale, uint32_t first, uint32_t end,
                 uint32_t dim, int64_t ahead, uint32_t padded, float* to) {
  with_codec(codec, [&](auto kCodec) { load_values_of<kCodec>(value, scale, first, end, dim, ahead, padded, to); });
}

void turn(float* keys, const float* angle, uint32_t half, bool interleaved) {
  for (uint32_t i = 0; i < half; ++i) {
    float* first = keys + (interleaved ? 2 * i : i) * kKeys;
    float* second = keys + (interleaved ? 2 * i + 1 : i + half) * kKeys;
    for (uint32_t k = 0; k < kKeys; k += kLanes) {
      const V c = load(angle + 2 * i * kKeys + k), s = load(angle + (2 * i + 1) * kKeys + k);
      const V u = load(first + k), v = load(second + k);
      store(first + k, sub(mul(u, c), mul(v, s)));
      store(second + k, fma(u, s, mul(v, c)));
    }
  }
}

// Vectors of a tile: all registers are in use with kRowTile queries, and with few queries as well.
constexpr uint32_t tile_of(uint32_t rows) {
  return rows == kRowTile ? uint32_t{kTile} : uint32_t{kSmallTile};
}

// kRows queries against kVectors vectors of keys at a time.
template <uint32_t kRows, uint32_t kVectors = tile_of(kRows)>
void score_tile(const float* q, uint32_t dim, const float* keys, float* s) {
  for (uint32_t group = 0; group < kKeys; group += kVectors * kLanes) {
    V sum[kRows][kVectors];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (uint32_t j = 0; j < kVectors; ++j) sum[i][j] = set(0.0f);
    }
    for (uint32_t d = 0; d < dim; ++d) {
      const float* row = keys + d * kKeys + group;
#pragma GCC unroll 8
      for (uint32_t i = 0; i < kRows; ++i) {
        const V x = set(q[i * dim + d]);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < kVectors; ++j) sum[i][j] = fma(x, load(row + j * kLanes), sum[i][j]);
      }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (uint32_t j = 0; j < kVectors; ++j) store(s + i * kKeys + group + j * kLanes, sum[i][j]);
    }
  }
}

void scores(const float* q, uint32_t n, uint32_t dim, const float* keys, float* s) {
  uint32_t i = 0;
  for (; i + kRowTile <= n; i += kRowTile) score_tile<kRowTile>(q + i * dim, dim, keys, s + i * kKeys);
  for (; i + 3 <= n; i += 3) score_tile<3>(q + i * dim, dim, keys, s + i * kKeys);
  for (; i < n; ++i) score_tile<1>(q + i * dim, dim, keys, s + i * kKeys);
}

// kRows queries against kLanes keys; kWhole: all of them are there.
template <uint32_t kCodec, uint32_t kRows, bool kWhole>
void few_scores(const void* const* key, const float* scale, uint32_t first, uint32_t end, int64_t ahead, const float* q,
                uint32_t dim, uint32_t group, float* s) {
  V sum[kRows];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kRows; ++r) sum[r] = set(0.0f);
  for (uint32_t d = 0; d < dim; d += kLanes) {
    const uint32_t n = dim - d < kLanes ? dim - d : uint32_t{kLanes};
    V rows[kLanes];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint32_t k = group + i;
      const bool there = kWhole || (k >= first && k < end);
      if (there) prefetch<kCodec>(key[k], d, ahead);
      rows[i] = there ? decoded<kCodec>(key[k], d, n, scale, k) : set(0.0f);
    }
    transpose(rows);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (i >= n) break;
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kRows; ++r) sum[r] = fma(set(q[r * dim + d + i]), rows[i], sum[r]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < kRows; ++r) store(s + r * kKeys + group, sum[r]);
}

template <uint32_t kCodec, uint32_t kRows>
void scores_of_rows(const void* const* key, const float* scale, uint32_t first, uint32_t end, int64_t ahead,
                    const float* q, uint32_t dim, float* s) {
  for (uint32_t group = 0; group < kKeys; group += kLanes) {
    if (group >= first && group + kLanes <= end) {
      few_scores<kCodec, kRows, true>(key, scale, first, end, ahead, q, dim, group, s);
    } else {
      few_scores<kCodec, kRows, false>(key, scale, first, end, ahead, q, dim, group, s);
    }
  }
}

// f of the codec and the number of queries as constants.
template <class F>
void with_few(uint32_t codec, uint32_t n, F&& f) {
  with_codec(codec, [&](auto kCodec) {
    if (n == 1) return f(kCodec, Constant<1>());
    if (n == 2) return f(kCodec, Constant<2>());
    if (n == 3) return f(kCodec, Constant<3>());
    f(kCodec, Constant<4>());
  });
}

void scores_of_few(uint32_t codec, const void* const* key, const float* scale, uint32_t first, uint32_t end,
                   int64_t ahead, const float* q, uint32_t n, uint32_t dim, float* s) {
  with_few(codec, n,
           [&](auto kCodec, auto kRows) { scores_of_rows<kCodec, kRows>(key, scale, first, end, ahead, q, dim, s); });
}

// tanh|x| = (1 - e) / (1 + e) with e = exp(-2|x|).
void soft_cap(float* s, uint32_t n, float cap) {
  for (uint32_t i = 0; i < n * kKeys; i += kLanes) {
    const V x = mul(load(s + i), set(1 / cap));
    const V e = exp_negative(mul(abs(x), set(-2.0f)));
    const V y = div(sub(set(1.0f), e), add(set(1.0f), e));
    store(s + i, mul(copysign(y, x), set(cap)));
  }
}

float softmax(float* s, uint64_t visible, float* maximum, float* sum) {
  if (visible != ~uint64_t{0}) {
    for (uint32_t k = 0; k < kKeys; ++k) {
      if ((visible >> k & 1) == 0) s[k] = -INFINITY;
    }
  }
  V top = load(s);
  for (uint32_t k = kLanes; k < kKeys; k += kLanes) top = max(top, load(s + k));
  const float greatest = largest(top), now = greatest > *maximum ? greatest : *maximum;
  if (now == -INFINITY) {
    memset(s, 0, kKeys * sizeof(float));
    return 1;
  }
  V total = set(0.0f);
  for (uint32_t k = 0; k < kKeys; k += kLanes) {
    const V p = exp_negative(sub(load(s + k), set(now)));
    store(s + k, p);
    total = add(total, p);
  }
  const float shrink = *maximum == now ? 1 : exp_one(*maximum - now);
  *sum = *sum * shrink + folded(total);
  *maximum = now;
  return shrink;
}

// kRows queries and kVectors vectors of their accumulators.
template <uint32_t kRows, uint32_t kVectors>
void value_tile(const float* p, const float* shrink, uint32_t first, uint32_t end, const float* values, uint32_t padded,
                float* acc) {
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (uint32_t j = 0; j < kVectors; ++j) sum[i][j] = mul(load(acc + i * padded + j * kLanes), set(shrink[i]));
  }
  for (uint32_t k = first; k < end; ++k) {
    const float* row = values + k * padded;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kRows; ++i) {
      const V x = set(p[i * kKeys + k]);
#pragma GCC unroll 8
      for (uint32_t j = 0; j < kVectors; ++j) sum[i][j] = fma(x, load(row + j * kLanes), sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (uint32_t j = 0; j < kVectors; ++j) store(acc + i * padded + j * kLanes, sum[i][j]);
  }
}

template <uint32_t kRows>
void value_rows(const float* p, const float* shrink, uint32_t first, uint32_t end, const float* values, uint32_t padded,
                float* acc) {
  constexpr uint32_t kVectors = tile_of(kRows);
  uint32_t d = 0;
  for (; d + kVectors * kLanes <= padded; d += kVectors * kLanes) {
    value_tile<kRows, kVectors>(p, shrink, first, end, values + d, padded, acc + d);
  }
  for (; d < padded; d += kLanes) value_tile<kRows, 1>(p, shrink, first, end, values + d, padded, acc + d);
}

void accumulate(const float* p, const float* shrink, uint32_t n, uint32_t first, uint32_t end, const float* values,
                uint32_t padded, float* acc) {
  uint32_t i = 0;
  const auto rows = [&](auto tile, uint32_t step) {
    for (; i + step <= n; i += step) tile(p + i * kKeys, shrink + i, first, end, values, padded, acc + i * padded);
  };
  rows(value_rows<kRowTile>, kRowTile);
  rows(value_rows<3>, 3);
  rows(value_rows<1>, 1);
}

template <uint32_t kCodec, uint32_t kRows>
void few_values(const void* const* value, const float* scale, uint32_t dim, int64_t ahead, const float* p,
                const float* shrink, uint32_t first, uint32_t end, uint32_t padded, float* acc) {
  constexpr uint32_t kVectors = 64 / kLanes < 4 ? 64 / kLanes : 4;
  for (uint32_t d = 0; d < padded; d += kVectors * kLanes) {
    V sum[kRows][kVectors];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kVectors; ++j) {
        const uint32_t at = d + j * kLanes;
        sum[r][j] = at < padded ? mul(load(acc + r * padded + at), set(shrink[r])) : set(0.0f);
      }
    }
    for (uint32_t k = first; k < end; ++k) {
      V v[kVectors];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kVectors; ++j) {
        const uint32_t at = d + j * kLanes, left = at < dim ? dim - at : 0;
        if (left != 0) prefetch<kCodec>(value[k], at, ahead);
        v[j] = decoded<kCodec>(value[k], at, left < kLanes ? left : uint32_t{kLanes}, scale, k);
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kRows; ++r) {
        const V x = set(p[r * kKeys + k]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kVectors; ++j) sum[r][j] = fma(x, v[j], sum[r][j]);
      }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kVectors; ++j) {
        const uint32_t at = d + j * kLanes;
        if (at < padded) store(acc + r * padded + at, sum[r][j]);
      }
    }
  }
}

void accumulate_few(uint32_t codec, const void* const* value, const float* scale, uint32_t dim, int64_t ahead,
                    const float* p, const float* shrink, uint32_t n, uint32_t first, uint32_t end, uint32_t padded,
                    float* acc) {
  with_few(codec, n, [&](auto kCodec, auto kRows) {
    few_values<kCodec, kRows>(value, scale, dim, ahead, p, shrink, first, end, padded, acc);
  });
}

void fold(float* to, float a, const float* from, float b, uint32_t n) {
  for (uint32_t i = 0; i < n; i += kLanes) store(to + i, fma(load(from + i), set(b), mul(load(to + i), set(a))));
}

constexpr Kernels kKernels = {load_keys, turn,       load_values,    scores, scores_of_few, soft_cap,
                              softmax,   accumulate, accumulate_few, fold,   exp_one};

}  // namespace
}  // namespace tenon::flash
