// Rows of codes of e4m3 have a scale, as quantization.fp8 has them between two products: silu-multiply is held against
// float64, and so are the scales side by side.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../../plugins/quantization/fp8/e4m3_rows.cuh"
#include "recorder.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::test {
namespace {

using Mode = CudaRecorder::Mode;

// Row 4 is zeros; the last rows are not live.
constexpr int64_t kRows = 7, kLive = 5, kZeros = 4;

class ScaledRows : public testing::TestWithParam<int64_t> {  // columns of y
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 3);
    sums_.resize(static_cast<size_t>(kRows * stride_));
    for (size_t i = 0; i < sums_.size(); ++i) {
      sums_[i] = __float2half_rn(i / static_cast<size_t>(stride_) == kZeros ? 0 : normal(random));
    }
    bias_.resize(static_cast<size_t>(2 * columns_));
    for (float& b : bias_) b = normal(random);
  }
  // Returns element i of row r of silu(gate) * up.
  double exact(bool biased, int64_t r, int64_t i) const {
    const auto sum = [&](int64_t column) {
      const auto at = static_cast<size_t>(r * stride_ + column);
      return double{__half2float(sums_[at])} + (biased ? double{bias_[static_cast<size_t>(column)]} : 0);
    };
    const double gate = sum(i);
    return gate / (1 + std::exp(-gate)) * sum(columns_ + i);
  }
  double largest(bool biased, int64_t r) const {
    double most = 0;
    for (int64_t i = 0; i < columns_; ++i) most = std::max(most, std::abs(exact(biased, r, i)));
    return most;
  }
  // Records an op that leaves a scale after the codes of each row of y, and one that puts the scales side by side.
  void record(CudaRecorder& host, bool biased) {
    sdk::Recorder recorder(host.recorder());
    const int64_t bytes = columns_ + sdk::kScaleBytes;
    y_ = host.output(TENON_F8E4M3, {kRows, bytes});
    scales_ = host.output(TENON_F32, {kRows});
    fp8::SiluCodesArgs silu{};
    silu.columns = static_cast<uint32_t>(columns_);
    silu.rows = kRows;
    silu.has_bias = biased ? 1 : 0;
    silu.sums_stride = stride_;
    silu.y_stride = bytes;
    std::vector<tenon_operand> operands = {{y_, TENON_WRITE},
                                           {host.input(TENON_F16, {kRows, stride_}, sums_.data()), TENON_READ},
                                           {recorder.step(TENON_STEP_LIVE), TENON_READ}};
    if (biased) operands.push_back({host.input(TENON_F32, {2 * columns_}, bias_.data()), TENON_READ});
    cuda::emit<&fp8::run_silu_codes>(recorder, {.name = "silu_codes", .operands = operands, .chunks = {}}, silu);
    const tenon_operand gathered[] = {{scales_, TENON_WRITE}, {y_, TENON_READ}};
    cuda::emit<&fp8::run_row_scales>(recorder, {.name = "row_scales", .operands = gathered, .chunks = {}},
                                     fp8::RowScalesArgs{kRows, 0, bytes, columns_});
    host.set_live(kLive);
  }

  const int64_t columns_ = GetParam(), stride_ = 2 * columns_ + 16;
  std::vector<__half> sums_;
  std::vector<float> bias_;
  tenon_tid y_ = 0, scales_ = 0;
};

TEST_P(ScaledRows, AreTheGatedSumsWithinHalfAStep) {
  for (const bool biased : {false, true}) {
    CudaRecorder host(CudaRecorder::bounds(kRows));
    record(host, biased);
    ASSERT_EQ(host.run(Mode::kGraph), "");
    const auto bytes = host.download<uint8_t>(y_);
    const auto scales = host.download<float>(scales_);
    for (int64_t r = 0; r < kLive; ++r) {
      const double scale = scales[static_cast<size_t>(r)], most = largest(biased, r);
      EXPECT_NEAR(scale, most == 0 ? 1 : most / 448, 1e-5 * scale) << "row " << r;
      for (int64_t i = 0; i < columns_; ++i) {
        const uint8_t code = bytes[static_cast<size_t>(r * (columns_ + sdk::kScaleBytes) + i)];
        const double want = exact(biased, r, i), got = scale * double{sdk::SmallFloat<4, 3>::value(code)};
        // A step is an eighth of the power of two below, and of 2^-6 below that.
        const double half = std::max(std::abs(want), scale * 0x1p-6) / 16;
        ASSERT_NEAR(got, want, 1.001 * half) << "row " << r << " column " << i;
      }
    }
  }
}

TEST_P(ScaledRows, ANumberThatIsNotFiniteIsSeen) {
  sums_[3] = __float2half_rn(std::nanf(""));
  CudaRecorder host(CudaRecorder::bounds(kRows));
  record(host, false);
  ASSERT_EQ(host.run(Mode::kGraph), "");
  EXPECT_TRUE((sdk::SmallFloat<4, 3>::is_nan(host.download<uint8_t>(y_)[3])));
}

INSTANTIATE_TEST_SUITE_P(Columns, ScaledRows, testing::Values(8, 48, 768, 4096, 14336, fp8::kMostColumns));

}  // namespace
}  // namespace tenon::test
