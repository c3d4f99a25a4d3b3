// fp8's kernels for AVX-512 VBMI, which look 64 codes up at once, have the bits of those
// for AVX-512 alone, which convert halves.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "quantization/coded/kernels.h"
#include "support/coded_rows.h"
#include "support/component.h"
#include "tenon/abi/device.h"

namespace tenon::test {
namespace {

using sdk::cpu::KernelTable;
using sdk::cpu::padded;
using sdk::cpu::RowFormat;

constexpr uint32_t kUnit = 32, kBlockCodes = 128;

// A row has a scale, or each of its blocks of 128 has.
enum class Scales : uint32_t { kRow, kBlock };
const char* name_of(Scales scales) {
  return scales == Scales::kRow ? "a scale a row" : "a scale a block";
}

// These are rows as they are held. The last byte is the last byte of its memory, which AddressSanitizer watches.
struct Rows {
  uint32_t k;
  size_t row_bytes;
  std::vector<uint8_t> bytes;
};
// Makes rows of code(row, i).
template <class F>
Rows rows_of(Scales scales, uint32_t rows, uint32_t k, const F& code) {
  const uint32_t group = scales == Scales::kRow ? kUnit : kBlockCodes, groups = (k + group - 1) / group;
  const size_t header = sizeof(float);
  const bool one_scale = scales == Scales::kRow;
  Rows made{k, one_scale ? header + size_t{groups} * group : groups * (header + group), {}};
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t g = 0; g < groups; ++g) {
      if (g == 0 || !one_scale) {
        const float scale = 0.37F + 0.01F * static_cast<float>(r + g);
        made.bytes.resize(made.bytes.size() + header);
        std::memcpy(made.bytes.data() + made.bytes.size() - header, &scale, header);
      }
      for (uint32_t i = g * group; i < (g + 1) * group; ++i) made.bytes.push_back(i < k ? code(r, i) : uint8_t{0});
    }
  }
  made.bytes.shrink_to_fit();
  return made;
}

// NaN is refused when weights are loaded.
uint8_t no_nan(uint32_t code) {
  return static_cast<uint8_t>((code & 127U) == 127U ? code - 1 : code);
}

class Fp8Kernels : public testing::TestWithParam<Scales> {
 protected:
  void SetUp() override {
    constexpr uint64_t kVbmi = TENON_ISA_AVX512 | TENON_ISA_AVX512_VBMI;
    if ((machine_isa() & kVbmi) != kVbmi) GTEST_SKIP() << "this machine has no AVX-512 VBMI";
  }
  static const RowFormat& format(const KernelTable& table) {
    return *table.find(sdk::cpu::kOwnFormats + static_cast<uint32_t>(GetParam()));
  }
  static std::vector<float> products(const KernelTable& table, const Rows& rows, const std::vector<float>& x) {
    const auto columns = static_cast<uint32_t>(rows.bytes.size() / rows.row_bytes);
    std::vector<float> y(columns, NAN);
    format(table).vector_product({rows.bytes.data(), rows.row_bytes, columns, rows.k, x.data(), y.data()});
    return y;
  }
  // Returns the weights of a row, and its scale as the last number.
  static std::vector<float> unpacked(const KernelTable& table, const Rows& rows, uint32_t row) {
    std::vector<float> w(padded(rows.k), NAN);
    const float scale = format(table).unpack(rows.bytes.data() + row * rows.row_bytes, rows.k, w.data());
    w.resize(rows.k);
    w.push_back(scale);
    return w;
  }
};

TEST_P(Fp8Kernels, HaveTheBitsOfAvx512) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  // Multiples of 32 but not of 64 are among the widths, and some that fill no unit, no vector and no block.
  for (const uint32_t k : {1U, 16U, 31U, 32U, 33U, 64U, 77U, 96U, 128U, 160U, 257U, 416U, 1184U}) {
    for (const uint32_t columns : {1U, 2U, 9U}) {
      SCOPED_TRACE(std::string(name_of(GetParam())) + ", k " + std::to_string(k) + ", rows " + std::to_string(columns));
      const Rows rows = rows_of(GetParam(), columns, k, [&](uint32_t, uint32_t) { return no_nan(random() % 256); });
      std::vector<float> x(k);
      for (float& v : x) v = normal(random);
      ASSERT_EQ(products(coded::avx512_vbmi::kKernels, rows, x), products(coded::avx512::kKernels, rows, x));
      for (uint32_t r = 0; r < columns; ++r) {
        ASSERT_EQ(unpacked(coded::avx512_vbmi::kKernels, rows, r), unpacked(coded::avx512::kKernels, rows, r));
      }
    }
  }
}

// Each code stands once in each place among 64, and its weight is what the definition says.
TEST_P(Fp8Kernels, KnowEveryCodeInEveryPlace) {
  constexpr uint32_t kCodes = 256, kPlaces = 64;
  const std::vector<double> book = small_floats(4, 3);
  const auto code = [](uint32_t row, uint32_t i) { return no_nan((row + i) % kCodes); };
  const Rows rows = rows_of(GetParam(), kPlaces, kCodes, code);
  for (uint32_t r = 0; r < kPlaces; ++r) {
    const std::vector<float> plain = unpacked(coded::avx512::kKernels, rows, r);
    const std::vector<float> found = unpacked(coded::avx512_vbmi::kKernels, rows, r);
    ASSERT_EQ(found, plain) << "row " << r;
    for (uint32_t i = 0; i < kCodes; ++i) {
      ASSERT_EQ(std::signbit(found[i]), std::signbit(plain[i])) << "row " << r << " weight " << i;
      const float scale = 0.37F + 0.01F * static_cast<float>(r + (GetParam() == Scales::kRow ? 0 : i / kBlockCodes));
      // A row's scale comes apart from its weights, with the unit in which they are.
      const float weight = GetParam() == Scales::kRow ? found[i] * 256 * scale : found[i];
      ASSERT_EQ(weight, static_cast<float>(book[code(r, i)]) * scale) << "row " << r << " weight " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, Fp8Kernels, testing::Values(Scales::kRow, Scales::kBlock),
                         [](const auto& p) { return p.param == Scales::kRow ? "row" : "block"; });

}  // namespace
}  // namespace tenon::test
