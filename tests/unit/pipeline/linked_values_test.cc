// The host reads rows between two products for whoever looks at results: each form is written by its description in
// tenon/sdk/linked_rows.h.
#include "tenon/core/linked_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tenon/sdk/convert.h"

namespace tenon::test {
namespace {

constexpr int64_t kColumns = 128;

// Returns a number of its own for each element, which a half holds.
float number_of(int64_t row, int64_t column) {
  return static_cast<float>(row % 16 * kColumns + column) - 900;
}

template <class T>
void put(std::vector<std::byte>& bytes, T value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(value));
}

void expect_numbers(const tenon_tensor& t, const std::vector<std::byte>& bytes, int64_t rows) {
  const LinkedValues values(t, bytes.data());
  ASSERT_EQ(values.columns(), kColumns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c)
      ASSERT_EQ(values.at(r, c), number_of(r, c)) << "row " << r << ", column " << c;
  }
}

TEST(LinkedValues, RowsOfHalvesAreInOrder) {
  std::vector<std::byte> bytes;
  for (int64_t i = 0; i < 3 * kColumns; ++i) put(bytes, sdk::float_to_half(number_of(i / kColumns, i % kColumns)));
  expect_numbers(sdk::linked_rows(TENON_F16, 3, kColumns), bytes, 3);
}

class TiledValues : public testing::TestWithParam<uint32_t> {};  // rows

TEST_P(TiledValues, OctetsHaveTwoOfEachEightColumns) {
  const int64_t rows = GetParam(), band_rows = rows <= 128 ? rows : rows <= 256 ? rows / 2 : 256;
  for (const bool staggered : {false, true}) {
    std::vector<std::byte> bytes;
    for (int64_t band = 0; band < rows / band_rows; ++band) {
      for (int64_t octet = 0; octet < kColumns / 8; ++octet) {
        for (int64_t row = band * band_rows; row < (band + 1) * band_rows; ++row) {
          for (int64_t place = 0; place < 8; ++place) {
            const int64_t column = octet / 4 * 32 + place / 2 * 8 + octet % 4 * 2 + place % 2;
            const float value = number_of(row, column);
            put(bytes, sdk::float_to_half(staggered && octet % 2 == 1 ? value / 16 : value));
          }
        }
      }
    }
    const uint32_t link = TENON_F16 | sdk::kTiled | (staggered ? sdk::kStaggered : 0);
    ASSERT_TRUE(sdk::has_linked_rows(link, GetParam(), kColumns));
    const tenon_tensor t = sdk::linked_rows(link, GetParam(), kColumns);
    EXPECT_EQ(sdk::is_staggered(t), staggered);
    expect_numbers(t, bytes, rows);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, TiledValues, testing::Values(16U, 48U, 128U, 192U, 256U, 768U));

// The values are rows times 1/2. After them each row has its sums of squares, four for `octet` columns, and 2.
void expect_numbers_after(int64_t rows, int64_t columns, int64_t octet) {
  const tenon_tensor t =
      sdk::linked_rows(TENON_BF16 | sdk::kTiled | sdk::kNormed, static_cast<uint32_t>(rows), columns);
  EXPECT_TRUE(sdk::is_normed(t));
  EXPECT_EQ(sdk::rows_of(t), rows);
  const int64_t octets = t.dim[1];
  const int64_t last = columns / 8 + columns / octet;  // the sums' octets end here
  ASSERT_LT(last, octets);
  std::vector<float> numbers(static_cast<size_t>(octets * rows * 4), NAN);
  for (int64_t row = 0; row < rows; ++row) numbers[static_cast<size_t>((last * rows + row) * 4)] = 2;
  std::vector<std::byte> bytes;
  for (const float number : numbers) put(bytes, number);
  const auto half = static_cast<uint16_t>(sdk::float_to_bf16(1.5F));
  // This is row 5 of the last octet's first column.
  std::memcpy(&bytes[static_cast<size_t>(((columns / 8 - 1) * rows + 5) * 16)], &half, 2);
  const LinkedValues values(t, bytes.data());
  EXPECT_EQ(values.columns(), columns);
  EXPECT_EQ(values.at(5, columns - 32 + 6), 3);
}
TEST(LinkedValues, RowsBeforeANormHaveNumbersAfterThem) {
  for (const int64_t columns : {512, 1536, 4096, 16384}) {
    SCOPED_TRACE(columns);
    expect_numbers_after(16, columns, 256);
    expect_numbers_after(32, columns, 512);
  }
  expect_numbers_after(16, 768, 256);
  EXPECT_FALSE(sdk::has_linked_rows(TENON_BF16 | sdk::kTiled | sdk::kNormed, 32, 768));
}

TEST(LinkedValues, CodesHaveTheirRowsScaleAfterThem) {
  // These are 1, -1.5 and NaN in e4m3.
  constexpr uint8_t kCodes[] = {0x38, 0xbc, 0x7f};
  std::vector<std::byte> bytes;
  for (const float scale : {2.0F, 0.25F}) {
    std::vector<std::byte> row;
    for (int64_t c = 0; c < kColumns; ++c) put(row, kCodes[c % 3]);
    put(row, scale);
    row.resize(static_cast<size_t>(kColumns + sdk::kScaleBytes), std::byte{0xff});
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  const tenon_tensor t = sdk::linked_rows(TENON_F8E4M3, 2, kColumns);
  const LinkedValues values(t, bytes.data());
  ASSERT_EQ(values.columns(), kColumns);
  EXPECT_EQ(values.at(0, 0), 2);
  EXPECT_EQ(values.at(0, 1), -3);
  EXPECT_EQ(values.at(1, 3), 0.25F);
  EXPECT_EQ(values.at(1, 4), -0.375F);
  EXPECT_TRUE(std::isnan(values.at(1, 2)));
}

TEST(LinkedValues, SomeRowsCannotBeTiled) {
  EXPECT_FALSE(sdk::has_linked_rows(TENON_F16 | sdk::kTiled, 129, kColumns));
  EXPECT_FALSE(sdk::has_linked_rows(TENON_F16 | sdk::kTiled, 300, kColumns));
  EXPECT_FALSE(sdk::has_linked_rows(TENON_F16 | sdk::kTiled, 64, 96));
  EXPECT_FALSE(sdk::has_linked_rows(TENON_F8E4M3, 64, 96));
  EXPECT_FALSE(sdk::has_linked_rows(TENON_F16 | sdk::kTiled | sdk::kNormed, 64, 640));
  EXPECT_TRUE(sdk::has_linked_rows(TENON_BF16, 129, 96));
}

}  // namespace
}  // namespace tenon::test
