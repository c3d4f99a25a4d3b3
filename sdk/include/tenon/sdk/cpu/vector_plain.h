// This is the vocabulary of vector.h in plain code: any number of lanes is an array. Loops over it are written so that
// compilers make vectors of them where the base machine has any.
#pragma once

#include "tenon/sdk/cpu/vector_types.h"

#if !defined(__AVX2__)

#include <math.h>

#include "tenon/sdk/convert.h"

namespace tenon::sdk::cpu {
namespace {

template <uint32_t N>
struct Floats {
  float v[N];

  static Floats zeros() { return {}; }
  static Floats all(float x) {
    Floats a;
    for (float& lane : a.v) lane = x;
    return a;
  }
  static Floats load(const float* p) {
    Floats a;
    memcpy(a.v, p, sizeof(a.v));
    return a;
  }
  static Floats load_first(const float* p, uint32_t n) { return decode_first<TENON_F32>(p, n); }
  template <uint32_t Format>
  static Floats decode(const void* p) {
    Floats a;
    for (uint32_t i = 0; i < N; ++i) a.v[i] = element<Format>(p, i);
    return a;
  }
  template <uint32_t Format>
  static Floats decode_first(const void* p, uint32_t n) {
    Floats a = {};
    for (uint32_t i = 0; i < N && i < n; ++i) a.v[i] = element<Format>(p, i);
    return a;
  }

 private:
  template <uint32_t Format>
  static float element(const void* p, uint32_t i) {
    const auto* at = static_cast<const uint8_t*>(p) + size_t{i} * kElementBytes<Format>;
    if constexpr (Format == TENON_U8) {
      return *at;
    } else if constexpr (Format == TENON_I8) {
      return static_cast<int8_t>(*at);
    } else if constexpr (Format == TENON_F32) {
      float x;
      memcpy(&x, at, sizeof(x));
      return x;
    } else {
      uint16_t bits;
      memcpy(&bits, at, sizeof(bits));
      return Format == TENON_F16 ? half_to_float(bits) : bf16_to_float(bits);
    }
  }
};

// Applies f to the lanes with the same number.
template <uint32_t N, class F>
inline Floats<N> each_lane(Floats<N> a, F&& f) {
  for (uint32_t i = 0; i < N; ++i) a.v[i] = f(a.v[i]);
  return a;
}
template <uint32_t N, class F>
inline Floats<N> each_lane(Floats<N> a, const Floats<N>& b, F&& f) {
  for (uint32_t i = 0; i < N; ++i) a.v[i] = f(a.v[i], b.v[i]);
  return a;
}
template <uint32_t N, class F>
inline Floats<N> each_lane(const Floats<N>& a, const Floats<N>& b, Floats<N> c, F&& f) {
  for (uint32_t i = 0; i < N; ++i) c.v[i] = f(a.v[i], b.v[i], c.v[i]);
  return c;
}

template <uint32_t N>
inline void store(float* p, const Floats<N>& a) {
  memcpy(p, a.v, sizeof(a.v));
}
template <uint32_t N>
inline Floats<N> add(const Floats<N>& a, const Floats<N>& b) {
  return each_lane(a, b, [](float x, float y) { return x + y; });
}
template <uint32_t N>
inline Floats<N> sub(const Floats<N>& a, const Floats<N>& b) {
  return each_lane(a, b, [](float x, float y) { return x - y; });
}
template <uint32_t N>
inline Floats<N> mul(const Floats<N>& a, const Floats<N>& b) {
  return each_lane(a, b, [](float x, float y) { return x * y; });
}
template <uint32_t N>
inline Floats<N> div(const Floats<N>& a, const Floats<N>& b) {
  return each_lane(a, b, [](float x, float y) { return x / y; });
}
template <uint32_t N>
inline Floats<N> fma(const Floats<N>& a, const Floats<N>& b, const Floats<N>& c) {
  return each_lane(a, b, c, [](float x, float y, float z) { return __builtin_fmaf(x, y, z); });
}
template <uint32_t N>
inline Floats<N> multiply_add(const Floats<N>& a, const Floats<N>& b, const Floats<N>& c) {
  return each_lane(a, b, c, [](float x, float y, float z) { return x * y + z; });
}
template <uint32_t N>
inline Floats<N> max(const Floats<N>& a, const Floats<N>& b) {
  return each_lane(a, b, [](float x, float y) { return x > y ? x : y; });
}
template <uint32_t N>
inline Floats<N> negative(const Floats<N>& a) {
  return each_lane(a, [](float x) { return -x; });
}
template <uint32_t N>
inline Floats<N> abs(const Floats<N>& a) {
  return each_lane(a, [](float x) { return fabsf(x); });
}
template <uint32_t N>
inline Floats<N> copysign(const Floats<N>& a, const Floats<N>& sign) {
  return each_lane(a, sign, [](float x, float y) { return copysignf(x, y); });
}
template <uint32_t N>
inline Floats<N> round(const Floats<N>& a) {
  return each_lane(a, [](float x) { return rintf(x); });
}
template <uint32_t N>
inline Floats<N> power_of_two(const Floats<N>& a) {
  // NaN has no whole number.
  return each_lane(
      a, [](float x) { return x == x ? __builtin_bit_cast(float, (static_cast<int32_t>(x) + 127) << 23) : 1.0F; });
}
template <uint32_t N>
inline Floats<N> zero_below(const Floats<N>& a, const Floats<N>& limit, const Floats<N>& otherwise) {
  return each_lane(a, limit, otherwise, [](float x, float least, float y) { return x < least ? 0 : y; });
}
template <uint32_t N>
inline float sum(Floats<N> a) {
  for (uint32_t half = N / 2; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
template <uint32_t N>
inline float largest(const Floats<N>& a) {
  float most = a.v[0];
  for (uint32_t i = 1; i < N; ++i) most = a.v[i] > most ? a.v[i] : most;
  return most;
}
// Stores the sum of the lanes of a[i] in s[i].
template <uint32_t N>
inline void sum4(const Floats<N>* a, float* s) {
  for (uint32_t i = 0; i < 4; ++i) s[i] = sum(a[i]);
}
// Lane c of row r becomes lane r of row c.
template <uint32_t N>
inline void transpose(Floats<N> (&row)[N]) {
  for (uint32_t r = 0; r < N; ++r) {
    for (uint32_t c = r + 1; c < N; ++c) {
      const float x = row[r].v[c];
      row[r].v[c] = row[c].v[r];
      row[c].v[r] = x;
    }
  }
}

// Returns the weights (nibble - First) * scale + shift of the low or high nibbles of sixteen bytes. Products of scale
// and nibble must be exact, so that it makes no difference whether they are fused with the shift.
template <int First = 0>
class Nibbles {
 public:
  Nibbles(float scale, float shift) : scale_(scale), shift_(shift) {}
  Floats<16> low(const uint8_t* p) const { return value(p, 0); }
  Floats<16> high(const uint8_t* p) const { return value(p, 4); }

 private:
  Floats<16> value(const uint8_t* p, int bits) const {
    Floats<16> a;
    for (int i = 0; i < 16; ++i) a.v[i] = static_cast<float>(((p[i] >> bits) & 15) - First) * scale_ + shift_;
    return a;
  }

  float scale_, shift_;
};

template <uint32_t N>
struct Doubles {
  double v[N];

  static Doubles zeros() { return {}; }
  static Doubles all(double x) {
    Doubles a;
    for (double& lane : a.v) lane = x;
    return a;
  }
  static Doubles load(const double* p) {
    Doubles a;
    memcpy(a.v, p, sizeof(a.v));
    return a;
  }
};
template <uint32_t N>
inline void store(double* p, const Doubles<N>& a) {
  memcpy(p, a.v, sizeof(a.v));
}
template <uint32_t N>
inline Doubles<N> add(Doubles<N> a, const Doubles<N>& b) {
  for (uint32_t i = 0; i < N; ++i) a.v[i] = a.v[i] + b.v[i];
  return a;
}
template <uint32_t N>
inline Doubles<N> multiply_add(const Doubles<N>& a, const Doubles<N>& b, Doubles<N> c) {
  for (uint32_t i = 0; i < N; ++i) c.v[i] = a.v[i] * b.v[i] + c.v[i];
  return c;
}

template <uint32_t N>
struct Ints {
  int32_t v[N];

  static Ints load_i8(const uint8_t* p) {
    Ints a;
    for (uint32_t i = 0; i < N; ++i) a.v[i] = static_cast<int8_t>(p[i]);
    return a;
  }
  template <int Offset>
  static Ints begin(int32_t negative_sum) {
    Ints a;
    for (int32_t& lane : a.v) lane = negative_sum * Offset;
    return a;
  }
};
template <uint32_t N>
inline Ints<N> mul(Ints<N> a, const Ints<N>& b) {
  for (uint32_t i = 0; i < N; ++i) a.v[i] *= b.v[i];
  return a;
}
template <uint32_t N>
inline Ints<N> add(Ints<N> a, const Ints<N>& b) {
  for (uint32_t i = 0; i < N; ++i) a.v[i] += b.v[i];
  return a;
}
template <uint32_t Shift, uint32_t N>
inline Ints<N> raised(Ints<N> a) {
  for (int32_t& lane : a.v) lane *= 1 << Shift;
  return a;
}
template <uint32_t N>
inline Floats<N> to_floats(const Ints<N>& a) {
  Floats<N> to;
  for (uint32_t i = 0; i < N; ++i) to.v[i] = static_cast<float>(a.v[i]);
  return to;
}

template <uint32_t N>
struct Codes {
  uint8_t v[4 * N];

  static Codes load(const uint8_t* p) {
    Codes c;
    memcpy(c.v, p, sizeof(c.v));
    return c;
  }
};
template <uint32_t Shift, uint32_t N>
inline Codes<N> shifted(Codes<N> c, int mask = 255) {
  for (uint8_t& code : c.v) code = static_cast<uint8_t>(code >> Shift & mask);
  return c;
}
template <uint32_t Shift, uint32_t N>
inline Codes<N> raised(Codes<N> c) {
  for (uint8_t& code : c.v) code = static_cast<uint8_t>(code << Shift);
  return c;
}
template <uint32_t N>
inline Codes<N> joined(Codes<N> a, const Codes<N>& b, int mask) {
  for (uint32_t i = 0; i < 4 * N; ++i) a.v[i] = static_cast<uint8_t>(a.v[i] | (b.v[i] & mask));
  return a;
}
// Returns the table's byte for each code, which is below 16.
template <uint32_t N>
inline Codes<N> looked_up(const uint8_t (&table)[16], Codes<N> c) {
  for (uint8_t& code : c.v) code = table[code];
  return c;
}
template <int Offset, uint32_t N>
inline Ints<N> dot(Ints<N> sum, const Codes<N>& c, int32_t four_x) {
  int8_t x[4];
  memcpy(x, &four_x, sizeof(x));
  for (uint32_t i = 0; i < 4 * N; ++i) sum.v[i / 4] += c.v[i] * x[i % 4];
  return sum;
}

}  // namespace
}  // namespace tenon::sdk::cpu

#endif
