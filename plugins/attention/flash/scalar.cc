#include <math.h>
#include <string.h>

#include "kernels.h"
#include "tenon/abi/types.h"
#include "tenon/sdk/convert.h"

namespace tenon::flash {
namespace {

using V = float;
enum : uint32_t { kLanes = 1, kRowTile = 2, kTile = 4, kSmallTile = 4 };

V load(const float* p) {
  return *p;
}
void store(float* p, V x) {
  *p = x;
}
V set(float x) {
  return x;
}
V add(V a, V b) {
  return a + b;
}
V sub(V a, V b) {
  return a - b;
}
V mul(V a, V b) {
  return a * b;
}
V div(V a, V b) {
  return a / b;
}
V fma(V a, V b, V c) {
  return a * b + c;
}
V max(V a, V b) {
  return a > b ? a : b;
}
float largest(V x) {
  return x;
}
float folded(V x) {
  return x;
}
V round(V x) {
  return rintf(x);
}
V abs(V x) {
  return fabsf(x);
}
V copysign(V x, V sign) {
  return copysignf(x, sign);
}
V power(V n) {
  // NaN has no whole number; the factor does not matter then.
  return n == n ? __builtin_bit_cast(float, (static_cast<int32_t>(n) + 127) << 23) : 1.0f;
}
V zero_below(V x, V limit, V y) {
  return x < limit ? 0 : y;
}

template <uint32_t kCodec>
V load_codec(const void* p, uint32_t element, uint32_t n) {
  if (n == 0) return 0;
  if constexpr (kCodec == TENON_F32) return static_cast<const float*>(p)[element];
  if constexpr (kCodec == TENON_I8) return static_cast<const int8_t*>(p)[element];
  const uint16_t bits = static_cast<const uint16_t*>(p)[element];
  return kCodec == TENON_F16 ? sdk::half_to_float(bits) : sdk::bf16_to_float(bits);
}

void transpose(V (&)[kLanes]) {}

}  // namespace
}  // namespace tenon::flash

#include "kernels_body.h"

namespace tenon::flash {
const Kernels kScalarKernels = kKernels;
}
