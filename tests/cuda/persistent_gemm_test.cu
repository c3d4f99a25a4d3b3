// These tests hold the products of int8 codes by kernels of the project's own (persistent_gemm.h) against sums in
// int64. Those of halves are in gemm_test.cu.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "recorder.h"
#include "tenon/cuda/gemm.h"

namespace tenon::test {
namespace {

struct Case {
  bool silu = false, adds = false, in_place = false, biased = false;
  int64_t columns = 0;
};

// 11 bands of rows; columns make 6 panels or more, so that an H200's 66 pairs of blocks have a tile each.
constexpr int64_t kRows = 2810, kDepth = 208, kLive = kRows - 3;

std::vector<int8_t> random_codes(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int8_t> codes(static_cast<size_t>(n));
  for (int8_t& c : codes) c = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
  return codes;
}
std::vector<float> random_floats(int64_t n, float least, float most, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = least + (most - least) * static_cast<float>(random()) * 0x1p-32f;
  return values;
}

class Codes {
 public:
  explicit Codes(const Case& c)
      : c_(c),
        n_(c.silu ? 2 * c.columns : c.columns),
        stored_((n_ + 15) / 16 * 16),
        host_(CudaRecorder::bounds(kRows)),
        x_(random_codes(kRows * kDepth, 1)),
        w_(random_codes(stored_ * kDepth, 2)),
        x_scales_(random_floats(kRows, 1e-4f, 2e-4f, 3)),
        w_scales_(random_floats(stored_, 0.01f, 0.02f, 4)),
        bias_(random_floats(n_, -1, 1, 5)),
        before_(random_floats(kRows * c.columns, -2, 2, 6)) {}

  bool record() {
    const tenon_tensor y = sdk::tensor(c_.silu ? TENON_F16 : TENON_F32, {kRows, c_.columns});
    const tenon_tid before = c_.adds ? host_.input(y, before_.data()) : 0;
    y_ = c_.in_place ? before : host_.output(y);
    host_.set_live(kLive);
    sdk::Recorder recorder(host_.recorder());
    return cuda::detail::record_persistent(recorder,
                                           {.x = host_.input(sdk::tensor(TENON_I8, {kRows, kDepth}), x_.data()),
                                            .w = host_.input(sdk::tensor(TENON_I8, {stored_, kDepth}), w_.data()),
                                            .y = y_,
                                            .live = recorder.step(TENON_STEP_LIVE),
                                            .n = stored_,
                                            .silu = c_.silu,
                                            .x_scales = host_.input(TENON_F32, {kRows}, x_scales_),
                                            .w_scales = host_.input(TENON_F32, {stored_}, w_scales_),
                                            .bias = c_.biased ? host_.input(TENON_F32, {n_}, bias_) : 0,
                                            .addend = before,
                                            .name = "product"},
                                           0.5);
  }

  void run_and_check() {
    ASSERT_EQ(host_.run(CudaRecorder::Mode::kOverlap), "");
    const std::vector<float> got = host_.f32(y_);
    std::mt19937_64 random(7);
    const auto any = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    for (int i = 0; i < 4000; ++i) {
      const int64_t row = i == 0 ? kLive - 1 : any(kLive), column = i == 0 ? c_.columns - 1 : any(c_.columns);
      const double want = element(row, column), unit = c_.silu ? 0x1p-10 : 0x1p-21;
      const float value = got[static_cast<size_t>(row * c_.columns + column)];
      ASSERT_LE(std::abs(value - want), unit * (std::abs(want) + (c_.adds ? 2 : 0)) + 1e-6)
          << "row " << row << " column " << column << ": " << value << ", not " << want;
    }
  }

 private:
  double sum(int64_t row, int64_t column) const {
    int64_t sum = 0;
    for (int64_t k = 0; k < kDepth; ++k) {
      sum += int64_t{x_[static_cast<size_t>(row * kDepth + k)]} * w_[static_cast<size_t>(column * kDepth + k)];
    }
    const double scale =
        static_cast<double>(x_scales_[static_cast<size_t>(row)]) * w_scales_[static_cast<size_t>(column)];
    return static_cast<double>(sum) * scale + (c_.biased ? bias_[static_cast<size_t>(column)] : 0);
  }
  double element(int64_t row, int64_t column) const {
    const double first = sum(row, column);
    if (c_.silu) return first / (1 + std::exp(-first)) * sum(row, c_.columns + column);
    return first + (c_.adds ? before_[static_cast<size_t>(row * c_.columns + column)] : 0);
  }

  Case c_;
  int64_t n_, stored_;  // rows of w that are wanted, and that there are
  CudaRecorder host_;
  std::vector<int8_t> x_, w_;
  std::vector<float> x_scales_, w_scales_, bias_, before_;
  tenon_tid y_ = 0;
};

TEST(PersistentGemm, MultipliesCodes) {
  if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
  cudaDeviceProp gpu{};
  TENON_CUDA_CHECK(cudaGetDeviceProperties(&gpu, 0));
  if (gpu.major != 9) GTEST_SKIP() << "this GPU multiplies them in two ops";
  const Case cases[] = {{.columns = 1536},
                        {.adds = true, .columns = 1540},
                        {.adds = true, .in_place = true, .biased = true, .columns = 1536},
                        {.biased = true, .columns = 3076},
                        {.silu = true, .columns = 1536},
                        {.silu = true, .biased = true, .columns = 776}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.columns) + (c.silu ? " silu" : "") + (c.adds ? " adds" : "") +
                 (c.in_place ? " in place" : "") + (c.biased ? " biased" : ""));
    Codes product(c);
    ASSERT_TRUE(product.record());
    ASSERT_NO_FATAL_FAILURE(product.run_and_check());
  }
}

}  // namespace
}  // namespace tenon::test
