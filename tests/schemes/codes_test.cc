// Every code of nf4, fp4, fp8, fp6 and uintx is held against definitions in float64, and packing must lose
// nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "quantization/coded/books.h"
#include "quantization/coded/quantize.h"
#include "quantization/fp8/activations.h"
#include "quantization/published/byte_codes.h"
#include "quantization/published/matrix.h"
#include "support/coded_rows.h"
#include "tenon/sdk/packed_codes.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::test {
namespace {

class PackedCodes : public testing::TestWithParam<uint32_t> {};

TEST_P(PackedCodes, EveryCodeComesBackFromEveryPlace) {
  const uint32_t bits = GetParam(), codes = 1U << bits;
  std::mt19937 random(bits);
  for (uint32_t first = 0; first < codes; ++first) {
    uint32_t code[sdk::kUnitCodes];
    for (uint32_t i = 0; i < sdk::kUnitCodes; ++i) code[i] = i == 0 ? first : random() % codes;
    std::shuffle(code, code + sdk::kUnitCodes, random);
    uint8_t unit[32] = {};
    for (uint32_t i = 0; i < sdk::kUnitCodes; ++i) sdk::add_to_unit(bits, code[i], unit, i);
    for (uint32_t i = 0; i < sdk::kUnitCodes; ++i) ASSERT_EQ(sdk::code_in_unit(bits, unit, i), code[i]) << i;
    for (uint32_t i = sdk::unit_bytes(bits); i < 32; ++i) ASSERT_EQ(unit[i], 0) << "past its end";
  }
}

// Each bit of a unit belongs to one bit of one code.
TEST_P(PackedCodes, EveryBitIsUsedOnce) {
  const uint32_t bits = GetParam();
  std::vector<int> used(8 * sdk::unit_bytes(bits));
  for (uint32_t i = 0; i < sdk::kUnitCodes; ++i) {
    for (uint32_t bit = 0; bit < bits; ++bit) {
      uint8_t unit[32] = {};
      sdk::add_to_unit(bits, 1U << bit, unit, i);
      for (size_t at = 0; at < used.size(); ++at) used[at] += unit[at / 8] >> at % 8 & 1;
    }
  }
  EXPECT_EQ(used, std::vector<int>(used.size(), 1));
}

// A file's codes lie side by side; any number of them may begin at any byte, and nothing past them is touched.
TEST_P(PackedCodes, BecomeBytesFromTheLowestBitOn) {
  const uint32_t bits = GetParam();
  std::mt19937 random(bits);
  for (uint32_t n = 0; n < 70; ++n) {
    const uint32_t odd = n % 5;
    std::vector<uint8_t> packed(odd + (n * bits + 7) / 8), codes(n), got(odd + n + 1, 99);
    for (uint32_t i = 0; i < n; ++i) {
      codes[i] = static_cast<uint8_t>(random() % (1U << bits));
      for (uint32_t bit = 0; bit < bits; ++bit) {
        const uint32_t at = 8 * odd + i * bits + bit;
        packed[at / 8] = static_cast<uint8_t>(packed[at / 8] | (codes[i] >> bit & 1U) << at % 8);
      }
    }
    published::unpack_codes(bits, packed.data() + odd, n, got.data() + odd);
    ASSERT_TRUE(std::equal(codes.begin(), codes.end(), got.begin() + odd)) << n;
    ASSERT_EQ(got.back(), 99) << n;
  }
}

// A row's units are those that code after code makes; what the last unit has beyond the row is zero.
TEST_P(PackedCodes, OfAHeldRowAreThoseOfSingleCodes) {
  const uint32_t bits = GetParam();
  std::mt19937 random(bits);
  const coded::Coding coding = {.bits = bits, .group = 64, .scaling = coded::Scaling::kOffset};
  for (const uint32_t k : {1U, 31U, 32U, 33U, 64U, 100U, 192U}) {
    std::vector<uint8_t> codes(k), got(coding.row_bytes(k), 99), want(got.size());
    const std::vector<float> pairs(2 * coding.groups(k), 3.5F);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % (1U << bits));
    for (uint32_t i = 0; i < want.size() / coding.group_bytes() * coding.group; ++i) {
      uint8_t* group = want.data() + i / coding.group * size_t{coding.group_bytes()};
      std::memcpy(group, pairs.data(), coding.group_header());
      uint8_t* unit = group + coding.group_header() + i % coding.group / sdk::kUnitCodes * sdk::unit_bytes(bits);
      if (i < k) sdk::add_to_unit(bits, codes[i], unit, i % sdk::kUnitCodes);
    }
    published::hold_row(coding, k, {codes.data(), pairs.data()}, got.data());
    ASSERT_EQ(got, want) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, PackedCodes, testing::Range(1U, 9U));

TEST(SquaresOfBytes, AreTransposed) {
  uint8_t bytes[8][8], turned[8][8];
  for (uint8_t i = 0; i < 64; ++i) bytes[i / 8][i % 8] = i;
  uint64_t rows[8];
  std::memcpy(rows, bytes, sizeof(rows));
  published::transpose(rows);
  std::memcpy(turned, rows, sizeof(rows));
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(turned[i % 8][i / 8], bytes[i / 8][i % 8]) << i;
}

// nearest() of a book has to give for x a code as near as the best of all codes.
template <class Book>
void expect_nearest(const std::vector<double>& book, float x) {
  const double got = book[Book::nearest(x)];
  double least = INFINITY, largest = 0;
  for (const double value : book) {
    if (std::isnan(value)) continue;
    least = std::min(least, std::abs(value - double{x}));
    largest = std::max(largest, value);
  }
  ASSERT_EQ(std::abs(got - double{x}), least) << x << " became " << got;
  ASSERT_LE(std::abs(got), largest);
}
// Tries all codes, the points halfway between neighbours, and the floats around both.
template <class Book>
void expect_book(const std::vector<double>& book) {
  std::vector<float> values;
  ASSERT_EQ(book.size(), size_t{1} << Book::kBits);
  for (uint32_t code = 0; code < book.size(); ++code) {
    ASSERT_EQ(Book::is_nan(code), std::isnan(book[code])) << code;
    if (Book::is_nan(code)) continue;
    ASSERT_EQ(Book::value(code), static_cast<float>(book[code])) << code;
    ASSERT_EQ(Book::value(Book::nearest(Book::value(code))), Book::value(code)) << code;
    values.push_back(Book::value(code));
  }
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values.back(), Book::kLargest);
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const float middle = (values[i] + values[i + 1]) / 2;
    for (const float x : {values[i], middle}) {
      for (const float at : {std::nextafter(x, -INFINITY), x, std::nextafter(x, INFINITY)}) {
        expect_nearest<Book>(book, at);
      }
    }
  }
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, Book::kLargest / 2);
  for (int i = 0; i < 20000; ++i) expect_nearest<Book>(book, normal(random));
}

TEST(Books, AreThoseOfTheDefinitions) {
  expect_book<coded::NormalFloat4>(normal_float4());
  expect_book<coded::Float4>(float4());
  expect_book<sdk::SmallFloat<4, 3>>(small_floats(4, 3));
  expect_book<sdk::SmallFloat<3, 2>>(small_floats(3, 2));
  expect_book<sdk::SmallFloat<2, 3>>(small_floats(2, 3));
  expect_book<sdk::SmallFloat<2, 2>>(small_floats(2, 2));
  expect_book<sdk::SmallFloat<3, 1>>(small_floats(3, 1));
}

template <uint32_t kExponent, uint32_t kMantissa>
void expect_even_halfway() {
  using Small = sdk::SmallFloat<kExponent, kMantissa>;
  for (uint32_t code = 0; code < Small::kTopCode; ++code) {
    const float middle = (Small::value(code) + Small::value(code + 1)) / 2;
    EXPECT_EQ(Small::nearest(middle), code + code % 2) << middle;
    EXPECT_EQ(Small::nearest(-middle), (code + code % 2) | 1U << (Small::kBits - 1)) << -middle;
  }
}
TEST(SmallFloats, RoundToEvenHalfwayAndEndAtTheLargest) {
  expect_even_halfway<4, 3>();
  expect_even_halfway<3, 2>();
  expect_even_halfway<2, 3>();
  expect_even_halfway<2, 2>();
  expect_even_halfway<3, 1>();
  EXPECT_EQ((sdk::SmallFloat<4, 3>::kLargest), 448);
  EXPECT_EQ((sdk::SmallFloat<3, 2>::kLargest), 28);
  EXPECT_EQ((sdk::SmallFloat<2, 3>::kLargest), 7.5F);
  EXPECT_EQ((sdk::SmallFloat<2, 2>::kLargest), 7);
  EXPECT_EQ((sdk::SmallFloat<3, 1>::kLargest), 24);
  EXPECT_EQ((sdk::SmallFloat<4, 3>::nearest(1e30F)), 0x7eU);
  EXPECT_EQ((sdk::SmallFloat<3, 2>::nearest(-INFINITY)), 0x3fU);
}

// These are every code, the points halfway between neighbours, the floats around both, and numbers of all sizes.
TEST(RoundedX, IsTheNearestNumber) {
  const CodedForm form = coded_form("fp8");
  const auto expect = [&](float x) {
    ASSERT_EQ(double{fp8::nearest_e4m3(x)}, coded_detail::nearest(form, double{x})) << x;
    ASSERT_EQ(fp8::nearest_e4m3(-x), -fp8::nearest_e4m3(x)) << x;
  };
  for (size_t code = 0; code < 126; ++code) {
    const auto value = static_cast<float>(form.book[code]), next = static_cast<float>(form.book[code + 1]);
    for (const float x : {value, (value + next) / 2, next}) {
      for (const float at : {std::nextafter(x, -INFINITY), x, std::nextafter(x, INFINITY)}) expect(at);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const float x =
        std::ldexp(std::uniform_real_distribution<float>(1, 2)(random), static_cast<int>(random() % 40) - 25);
    expect(x);
  }
  for (const float x : {0.0F, 1e-45F, 448.0F, 464.0F, 1e6F}) expect(x);
  for (const float x : {3e38F, INFINITY}) EXPECT_EQ(fp8::nearest_e4m3(-x), -448);
  EXPECT_TRUE(std::isnan(fp8::nearest_e4m3(NAN)));
}
TEST(RoundedX, HasTheScaleOfItsLargest) {
  EXPECT_EQ(fp8::row_scale(896), 2);
  EXPECT_EQ(fp8::row_scale(0), 1);
  EXPECT_EQ(fp8::rounded_by(2, 1000), 896);
  for (int e = -126; e < 127; ++e) {
    const float power = std::ldexp(1.0F, e);
    EXPECT_EQ(fp8::power_of_two_from(power), power);
    EXPECT_EQ(fp8::power_of_two_from(std::nextafter(power, INFINITY)), 2 * power);
    EXPECT_EQ(fp8::power_of_two_from(std::nextafter(2 * power, 0.0F)), 2 * power);
  }
  EXPECT_EQ(fp8::power_of_two_from(1e-44F), 0x1p-126F);
  EXPECT_EQ(fp8::power_of_two_from(INFINITY), INFINITY);
  EXPECT_EQ(fp8::rounded_by(0.5F, 0.3F), 0.3125F);  // 0.6 is nearest to 0.625
  for (const float x : {INFINITY, -INFINITY, NAN}) EXPECT_TRUE(std::isnan(fp8::rounded_by(1, x)));
}

// The threads that share a row on a GPU compare the bits of their magnitudes, and one may have had no weights.
TEST(Ranges, HaveNoMagnitudeWithASign) {
  EXPECT_FALSE(std::signbit(coded::Range{}.magnitude()));
  coded::Range r;
  r.add(-0.0F);
  EXPECT_FALSE(std::signbit(r.magnitude()));
  r.add(-2);
  EXPECT_EQ(r.magnitude(), 2);
}

// These are the sizes of a matrix of 4096 x 4096, in bits a weight.
TEST(Codings, HaveTheSizesOfTheDefinitions) {
  using coded::Coding, coded::Scaling;
  const auto bits = [](const Coding& c) { return static_cast<double>(c.row_bytes(4096)) * 8 / 4096; };
  EXPECT_EQ(bits({.bits = 4, .group = 64, .scaling = Scaling::kGroup}), 4.5);
  EXPECT_EQ(bits({.bits = 4, .group = 64, .scaling = Scaling::kTwoLevel}), 4.125 + 32. / 4096);
  EXPECT_EQ(bits({.bits = 8, .group = 32, .scaling = Scaling::kRow}), 8 + 32. / 4096);
  EXPECT_EQ(bits({.bits = 6, .group = 32, .scaling = Scaling::kRow}), 6 + 32. / 4096);
  for (uint32_t b = 1; b <= 8; ++b) {
    EXPECT_EQ(bits({.bits = b, .group = 128, .scaling = Scaling::kZeroPoint}), b + 24. / 128);
    EXPECT_EQ(bits({.bits = b, .group = 32, .scaling = Scaling::kEights}), b + 24. / 8);
  }
}

}  // namespace
}  // namespace tenon::test
