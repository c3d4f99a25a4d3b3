// This is compiled once for each instruction set.
#include "vector_words.h"

#include "tenon/sdk/cpu/vector.h"
#include "tenon/sdk/cpu/vector_bits.h"

namespace tenon::test {
namespace {

using namespace sdk::cpu;
using Vector = Floats<kWidth>;

#if defined(__AVX512VNNI__)
constexpr uint32_t kDotLanes = 16;
#elif defined(__AVX2__)
constexpr uint32_t kDotLanes = 8;
#else
constexpr uint32_t kDotLanes = 16;
#endif

void set_conversions(const VectorInput& in, VectorWords& out) {
  store(out.from_f32, Vector::decode<TENON_F32>(in.a));
  store(out.from_f16, Vector::decode<TENON_F16>(in.halves));
  store(out.from_bf16, Vector::decode<TENON_BF16>(in.bf16));
  store(out.from_u8, Vector::decode<TENON_U8>(in.bytes));
  store(out.from_i8, Vector::decode<TENON_I8>(in.bytes));
  store(out.first_of_f32, Vector::load_first(in.a, kWidth / 2));
}

void set_arithmetic(const VectorInput& in, VectorWords& out) {
  const Vector a = Vector::load(in.a), b = Vector::load(in.b), c = Vector::load(in.c);
  store(out.multiplied, mul(sub(add(a, b), c), a));
  store(out.divided, div(a, b));
  store(out.most, max(a, b));
  store(out.rounded, round(a));
  store(out.signs, copysign(a, negative(b)));
  store(out.powers, power_of_two(round(a)));
  store(out.not_below, zero_below(a, c, b));
  out.largest = largest(b);
}

void set_sixteen(const VectorInput& in, VectorWords& out) {
  const Floats16 a = Floats16::load(in.a), b = Floats16::load(in.b), c = Floats16::load(in.c);
  store(out.fused, fma(a, b, c));
  out.sum16 = sum(b);
  const Floats16 four[4] = {b, c, b, c};
  sum4(four, out.sums4);
  store(out.first16, Floats16::load_first(in.a, 11));
}

void set_doubles(const VectorInput& in, VectorWords& out) {
  using Lanes = Doubles<kDoubleWidth>;
  double a[kDoubleWidth], b[kDoubleWidth];
  for (uint32_t i = 0; i < kDoubleWidth; ++i) {
    a[i] = double{in.a[i]};
    b[i] = double{in.b[i]};
  }
  const Lanes more = add(Lanes::all(double{in.c[1]}), Lanes::load(a));
  store(out.sums, multiply_add(Lanes::load(a), Lanes::load(b), add(more, Lanes::zeros())));
  out.double_width = kDoubleWidth;
}

void set_bits(VectorWords& out) {
  out.long_lanes = kRegisterBytes / sizeof(uint64_t);
  const U64Lanes factor = (counting_from<U64Lanes>(1) * 1000003u) + (uint64_t{1} << 40);
  const U64Lanes products = multiply_low_halves(factor, U64Lanes{} + 4000000007u);
  const U64Lanes a = counting_from<U64Lanes>(0), b = counting_from<U64Lanes>(100);
  const U64Lanes low = interleave<0>(a, b), high = interleave<1>(a, b);
  memcpy(out.long_products, &products, sizeof(products));
  memcpy(out.interleaved, &low, sizeof(low));
  memcpy(out.interleaved + out.long_lanes, &high, sizeof(high));
}

void set_transposed(VectorWords& out) {
  Vector rows[kWidth];
  for (uint32_t r = 0; r < kWidth; ++r) {
    float row[kWidth];
    for (uint32_t c = 0; c < kWidth; ++c) row[c] = static_cast<float>(100 * r + c);
    rows[r] = Vector::load(row);
  }
  transpose(rows);
  for (uint32_t r = 0; r < kWidth; ++r) store(out.transposed + r * kMostLanes, rows[r]);
}

void set_dots(const VectorInput& in, VectorWords& out) {
  int32_t four_x = 0;
  memcpy(&four_x, in.x, sizeof(four_x));
  const int32_t negative_sum = -(in.x[0] + in.x[1] + in.x[2] + in.x[3]);
  const Codes<kDotLanes> codes = Codes<kDotLanes>::load(in.codes);
  float lanes[kMostLanes];
  store(lanes, to_floats(dot<8>(Ints<kDotLanes>::begin<8>(negative_sum), codes, four_x)));
  for (uint32_t i = 0; i < kDotLanes; ++i) out.dots[i] = static_cast<int32_t>(lanes[i]);
  const auto mixed = joined(shifted<2>(codes, 3), codes, 0x30);
  store(lanes, to_floats(dot<0>(Ints<kDotLanes>::begin<0>(negative_sum), mixed, four_x)));
  for (uint32_t i = 0; i < kDotLanes; ++i) out.shifted[i] = static_cast<int32_t>(lanes[i]);
  const auto raised_codes = joined(shifted<0>(codes, 0), raised<2>(codes), 0x30);
  store(lanes, to_floats(raised<8>(dot<0>(Ints<kDotLanes>::begin<0>(negative_sum), raised_codes, four_x))));
  for (uint32_t i = 0; i < kDotLanes; ++i) out.raised[i] = static_cast<int32_t>(lanes[i]);
  uint8_t table[16];
  for (uint8_t i = 0; i < 16; ++i) table[i] = static_cast<uint8_t>(127 - 3 * i);
  const auto found = looked_up(table, shifted<0>(codes, 15));
  store(lanes, to_floats(dot<0>(Ints<kDotLanes>::begin<0>(negative_sum), found, four_x)));
  for (uint32_t i = 0; i < kDotLanes; ++i) out.found[i] = static_cast<int32_t>(lanes[i]);
  out.dot_lanes = kDotLanes;
}

}  // namespace

VectorWords TENON_ISA::words(const VectorInput& in) {
  VectorWords out{};
  out.width = kWidth;
  set_conversions(in, out);
  set_arithmetic(in, out);
  set_sixteen(in, out);
  set_doubles(in, out);
  set_bits(out);
  set_transposed(out);
  set_dots(in, out);
  return out;
}

}  // namespace tenon::test
