// This tests on the host which bytes tables have for the numbers of books: no GPU is needed.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "../../plugins/quantization/coded/books.h"
#include "tenon/cuda/coded_weights.cuh"
#include "tenon/sdk/gguf_books.h"

namespace tenon::test {
namespace {

// A permutation of bytes answers so for four bits: the byte that the lower three choose, or eight times its sign.
int looked_up(uint64_t table, uint32_t selector) {
  const auto byte = static_cast<int8_t>(table >> 8 * (selector & 7) & 255);
  if ((selector & 8) == 0) return byte;
  return byte < 0 ? -1 : 0;
}

template <class Book>
void expect_numbers(double most_off) {
  using Tables = cuda::BookTables<Book>;
  constexpr Tables kTables;
  static_assert(kTables.found);
  std::set<uint32_t> codes;
  for (uint32_t place = 0; place < 16; ++place) {
    const uint32_t code = Tables::code_at(place);
    codes.insert(code);
    EXPECT_EQ(Tables::place_of(code), place);
    const double number = double{kTables.lower_unit} * looked_up(kTables.lower, place) +
                          double{kTables.upper_unit} * looked_up(kTables.upper, place ^ 8);
    EXPECT_NEAR(number, double{Book::value(code)}, most_off) << "code " << code;
  }
  EXPECT_EQ(codes.size(), 16);
}

TEST(BookTables, HaveTheNumbersOfBooks) {
  expect_numbers<coded::Float4>(0);
  expect_numbers<coded::E2m1>(0);
  expect_numbers<sdk::Iq4Numbers>(0);
  expect_numbers<sdk::E2m1Numbers>(0);
  expect_numbers<coded::NormalFloat4>(double{coded::NormalFloat4::kMostOff});
  EXPECT_LT(coded::NormalFloat4::kMostOff, 4.8e-4F);
}

struct Uneven {
  static constexpr float value(uint32_t code) { return code == 3 ? 0.3F : static_cast<float>(code); }
};
struct Wide {
  static constexpr float value(uint32_t code) { return code == 15 ? 128.F : static_cast<float>(code); }
};
TEST(BookTables, SayThatTheyHaveNone) {
  static_assert(!cuda::BookTables<Uneven>().found);
  static_assert(!cuda::BookTables<Wide>().found);
}

}  // namespace
}  // namespace tenon::test
