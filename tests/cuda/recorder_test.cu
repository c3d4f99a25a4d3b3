// These tests look at the stand-in host of CUDA's ops: their order, their live rows, and what it sees of wrong ones.
#include <gtest/gtest.h>

#include <cmath>

#include "recorder.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::test {
namespace {

struct Args {
  uint32_t columns, past_the_end;
};
__global__ void add_one_kernel(Args a, const float* x, float* y, const uint32_t* live, int64_t stride) {
  cuda::wait();
  if (blockIdx.x >= *live) return;
  for (uint32_t i = threadIdx.x; i < a.columns + a.past_the_end; i += blockDim.x) {
    y[blockIdx.x * stride + i] = x[blockIdx.x * stride + i % a.columns] + 1.0f;
  }
}
constexpr uint32_t kRows = 5;
constexpr int64_t kColumns = 300, kStride = 304;
void add_one(const Args& a, const cuda::Launch& l) {
  l(&add_one_kernel, {.blocks = {kRows}, .threads = {128}}, a, l.ptr<const float>(0), l.ptr<float>(1),
    l.ptr<const uint32_t>(2), kStride);
}

class Recorder : public testing::TestWithParam<CudaRecorder::Mode> {
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
  }
  static tenon_tensor strided() {
    tenon_tensor t = sdk::tensor(TENON_F32, {kRows, kColumns});
    t.stride[0] = kStride * 4;
    return t;
  }
  static void record(sdk::Recorder& r, tenon_tid x, tenon_tid y, uint32_t past_the_end) {
    const tenon_operand operands[] = {{x, TENON_READ}, {y, TENON_WRITE}, {r.step(TENON_STEP_LIVE), TENON_READ}};
    cuda::emit<&add_one>(r, {.name = "add_one", .operands = operands, .chunks = {}}, Args{kColumns, past_the_end});
  }
};

TEST_P(Recorder, RunsOpsInOrderOverLiveRows) {
  CudaRecorder host(CudaRecorder::bounds(kRows));
  std::vector<float> values(kRows * kStride);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const tenon_tid x = host.input(strided(), values.data()), y = host.output(strided());
  host.set_live(kRows - 1);
  sdk::Recorder r(host.recorder());
  const tenon_tid middle = r.temp(strided());
  record(r, x, middle, 0);
  record(r, middle, y, 0);
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(host.run(GetParam()), "");
    const std::vector<float> got = host.f32(y);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t row = i / kColumns, column = i % kColumns;
      if (row < kRows - 1) ASSERT_EQ(got[i], values[row * kStride + column] + 2) << row << ", " << column;
      if (row == kRows - 1) ASSERT_TRUE(std::isnan(got[i])) << column;
    }
  }
  EXPECT_GT(host.time_us(GetParam(), 3), 0);
  EXPECT_EQ(host.op_times(3).size(), 2u);
}

TEST_P(Recorder, SeesWritesBetweenAndBehindRows) {
  for (const uint32_t rows : {kRows - 1, kRows}) {
    CudaRecorder host(CudaRecorder::bounds(kRows));
    const tenon_tid x = host.input(strided(), nullptr), y = host.output(strided());
    host.set_live(rows);
    sdk::Recorder r(host.recorder());
    record(r, x, y, 1);
    EXPECT_NE(host.run(GetParam()), "");
  }
}

std::string mode_name(const testing::TestParamInfo<CudaRecorder::Mode>& mode) {
  const char* names[] = {"List", "Overlap", "Graph"};
  return names[static_cast<int>(mode.param)];
}
INSTANTIATE_TEST_SUITE_P(Modes, Recorder,
                         testing::Values(CudaRecorder::Mode::kList, CudaRecorder::Mode::kOverlap,
                                         CudaRecorder::Mode::kGraph),
                         mode_name);

}  // namespace
}  // namespace tenon::test
