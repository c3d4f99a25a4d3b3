// This converts rows of a cache's cells, eight elements at a time. What is left of a row goes through a full vector.
// The naive twin is tenon/sdk/kv_codec.h.
#include "convert.h"
#include "tenon/abi/types.h"
#include "tenon/sdk/cpu/kv_vector.h"

namespace tenon::slot_cache {
namespace {

using Eight = sdk::cpu::Floats<8>;

// Calls f(i, 8) for every eight elements [i, i + 8), then f(i, rest) for the rest.
template <class F>
[[gnu::always_inline]] inline void each_eight(uint32_t n, F&& f) {
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) f(i, 8U);
  if (i < n) f(i, n - i);
}

template <uint32_t Codec>
void store_row(const float* from, uint32_t n, float scale, void* to) {
  const Eight unit = Eight::all(scale);
  each_eight(n, [&](uint32_t i, uint32_t here) {
    const Eight x = Eight::load_first(from + i, here);
    sdk::cpu::encode_kv<Codec>(to, i, here, x, unit);
  });
}

template <uint32_t Codec>
void load_row(const void* from, uint32_t n, float scale, float* to) {
  each_eight(n, [&](uint32_t i, uint32_t here) {
    const Eight x = sdk::cpu::decode_kv<Codec, 8>(from, i, here, scale);
    memcpy(to + i, &x, here * sizeof(float));
  });
}

}  // namespace

void store_row_avx2(uint32_t codec, const float* from, uint32_t n, float scale, void* to) {
  if (codec == TENON_F16) return store_row<TENON_F16>(from, n, scale, to);
  if (codec == TENON_BF16) return store_row<TENON_BF16>(from, n, scale, to);
  if (codec == TENON_I8) return store_row<TENON_I8>(from, n, scale, to);
  if (codec == TENON_F8E4M3) return store_row<TENON_F8E4M3>(from, n, scale, to);
  if (codec == TENON_U8) return store_row<TENON_U8>(from, n, scale, to);
  memcpy(to, from, n * sizeof(float));
}

void load_row_avx2(uint32_t codec, const void* from, uint32_t n, float scale, float* to) {
  if (codec == TENON_F16) return load_row<TENON_F16>(from, n, scale, to);
  if (codec == TENON_BF16) return load_row<TENON_BF16>(from, n, scale, to);
  if (codec == TENON_I8) return load_row<TENON_I8>(from, n, scale, to);
  if (codec == TENON_F8E4M3) return load_row<TENON_F8E4M3>(from, n, scale, to);
  if (codec == TENON_U8) return load_row<TENON_U8>(from, n, scale, to);
  memcpy(to, from, n * sizeof(float));
}

float most_of_row_avx2(const float* from, uint32_t n) {
  Eight most = Eight::zeros(), least = Eight::zeros();  // least: of the negative elements, negated
  Eight none = Eight::zeros();                          // NaN where an element is
  each_eight(n, [&](uint32_t i, uint32_t here) {
    const Eight x = Eight::load_first(from + i, here);
    most = max(x, most);
    least = max(negative(x), least);
    none = add(none, mul(max(Eight::all(-1), negative(abs(x))), Eight::zeros()));
  });
  const float positive = largest(most), below = largest(least), no_number = sum(none);
  return (below > positive ? -below : positive) + no_number;
}

}  // namespace tenon::slot_cache
