// This tests the overlap contract (tenon/cuda/overlap.cuh, ring.cuh, block_size.h) on a GPU: chains of three ops whose
// kernels begin before the ones in front have ended, one of them writing much later than it began; and which sizes of
// block share a multiprocessor.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "recorder.h"
#include "tenon/cuda/block_size.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/ring.cuh"

namespace tenon::test {
namespace {

using Mode = CudaRecorder::Mode;

__device__ void spin(uint64_t nanoseconds) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}

constexpr uint32_t kWarps = 4, kChunk = 512, kOfBlock = kWarps * kChunk;  // floats
constexpr uint64_t kLate = 50'000;                                        // ns

// Computes y = x + w in reverse order, so that every block needs what another one wrote. w comes through rings before
// the wait.
__global__ void add_kernel(const float* x, const float* w, float* y, uint32_t n, uint32_t late) {
  extern __shared__ __align__(128) uint8_t memory[];
  cuda::trigger();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * kOfBlock + warp * kChunk;
  constexpr uint32_t kBytes = kChunk * sizeof(float);
  using Ring = cuda::WarpRing<kBytes / 2, 2>;
  const uint32_t base = cuda::shared_address(memory);
  Ring ring(base + kWarps * kBytes + 8 * warp, base + kBytes * warp, 1);
  ring.fill(0, {reinterpret_cast<const uint8_t*>(w + first), kBytes / 2, 2});
  cuda::wait();
  // One block alone is late: the others have long gone.
  if (late != 0 && blockIdx.x == gridDim.x - 1) spin(kLate);
  const uint32_t from = ring.front();
  for (uint32_t i = 4 * lane; i < kChunk; i += 4 * 32) {
    const uint4 weight = cuda::load_shared(from + i * 4);
    const uint32_t bits[] = {weight.x, weight.y, weight.z, weight.w};
    for (uint32_t j = 0; j < 4; ++j) y[first + i + j] = x[n - 1 - first - i - j] + __uint_as_float(bits[j]);
  }
}

struct AddArgs {
  uint32_t n, late, shared_bytes;
};
void add(const AddArgs& a, const cuda::Launch& l) {
  l(&add_kernel, {.blocks = {a.n / kOfBlock}, .threads = {32 * kWarps}, .shared_bytes = a.shared_bytes},
    l.ptr<const float>(0), l.ptr<const float>(1), l.ptr<float>(2), a.n, a.late);
}

class Overlap : public testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
    TENON_CUDA_CHECK(cudaGetDeviceProperties(&properties_, 0));
  }
  cudaDeviceProp properties_{};
};

TEST_P(Overlap, ALateWriterAnywhereInAChainOfThreeChangesNothing) {
  constexpr uint32_t kNobody = 3;
  const uint32_t n = static_cast<uint32_t>(properties_.multiProcessorCount) * kOfBlock;
  std::vector<float> x(n), weights[3], expected(n);
  std::iota(x.begin(), x.end(), 0.0F);
  for (uint32_t op = 0; op < 3; ++op) {
    weights[op].resize(n);
    for (uint32_t i = 0; i < n; ++i) weights[op][i] = static_cast<float>((i * 7 + op * 13) % 64);
  }
  expected = x;
  for (const std::vector<float>& w : weights) {
    std::vector<float> y(n);
    for (uint32_t i = 0; i < n; ++i) y[i] = expected[n - 1 - i] + w[i];
    expected = y;
  }
  for (uint32_t late = 0; late <= kNobody; ++late) {
    CudaRecorder host(CudaRecorder::bounds(1));
    const tenon_tid in = host.input(TENON_F32, {n}, x), out = host.output(TENON_F32, {n});
    sdk::Recorder r(host.recorder());
    const tenon_tid between = r.temp(sdk::tensor(TENON_F32, {n}));
    // The third writes what the first has read: its result may not come before the first is done with it either.
    const std::array<tenon_tid, 4> chain = {in, out, between, out};
    for (uint32_t op = 0; op < 3; ++op) {
      const tenon_tid w = host.input(TENON_F32, {n}, weights[op]);
      const tenon_operand operands[] = {{chain[op], TENON_READ}, {w, TENON_READ}, {chain[op + 1], TENON_WRITE}};
      cuda::emit<&add>(r, {.name = "add", .operands = operands, .chunks = {}},
                       AddArgs{n, op == late ? 1U : 0U, op % 2 == 0 ? cuda::kSmallBlockBytes : cuda::kLargeBlockBytes});
    }
    for (int again = 0; again < 3; ++again) {
      ASSERT_EQ(host.run(GetParam()), "");
      ASSERT_EQ(host.f32(out), expected) << "late: op " << late;
    }
  }
}

std::string mode_name(const testing::TestParamInfo<Mode>& mode) {
  const char* names[] = {"List", "Overlap", "Graph"};
  return names[static_cast<int>(mode.param)];
}
INSTANTIATE_TEST_SUITE_P(Modes, Overlap, testing::Values(Mode::kList, Mode::kOverlap, Mode::kGraph), mode_name);

// Counts its blocks as they begin, and stays until `until` have begun or time is up, when so many as *missed had not.
__global__ void stay_kernel(uint32_t* begun, uint32_t until, uint32_t* missed) {
  cuda::trigger();
  if (threadIdx.x == 0) {
    atomicAdd(begun, 1);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 200 && seen < until; ++i) {
      spin(1000);
      seen = atomicAdd(begun, 0);
    }
    atomicMax(missed, until - min(seen, until));
  }
  cuda::wait();
}

struct StayArgs {
  uint32_t blocks, until, shared_bytes, padding;
};
void stay(const StayArgs& a, const cuda::Launch& l) {
  l(&stay_kernel, {.blocks = {a.blocks}, .threads = {512}, .shared_bytes = a.shared_bytes}, l.ptr<uint32_t>(0), a.until,
    l.ptr<uint32_t>(1));
}

// Returns how many blocks of two kernels are there at once, in multiprocessors; each
// kernel has one block for each multiprocessor.
double together(const cudaDeviceProp& properties, uint32_t first_bytes, uint32_t second_bytes) {
  CudaRecorder host(CudaRecorder::bounds(1));
  const tenon_tid begun = host.store(4), missed = host.store(4);
  sdk::Recorder r(host.recorder());
  const auto units = static_cast<uint32_t>(properties.multiProcessorCount);
  const tenon_operand operands[] = {{begun, TENON_READ | TENON_WRITE}, {missed, TENON_READ | TENON_WRITE}};
  const uint32_t until[] = {2 * units, 0};  // the first waits for the second
  const uint32_t bytes[] = {first_bytes, second_bytes};
  for (int op = 0; op < 2; ++op) {
    cuda::emit<&stay>(r, {.name = "stay", .operands = operands, .chunks = {}},
                      StayArgs{units, until[op], bytes[op], 0});
  }
  EXPECT_EQ(host.run(Mode::kOverlap), "");
  return 2 - static_cast<double>(host.download<uint32_t>(missed)[0]) / units;
}

TEST(BlockSize, SmallBesideLargeAndNeverTwoLarge) {
  if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
  cudaDeviceProp properties{};
  TENON_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  if (properties.major < 9) GTEST_SKIP() << "kernels overlap since sm_90; this is sm_" << properties.major << "0";
  if (!cuda::has_clusters(&stay_kernel)) GTEST_SKIP() << "compiled for a GPU whose kernels do not overlap";
  EXPECT_EQ(together(properties, cuda::kSmallBlockBytes, cuda::kLargeBlockBytes), 2);
  EXPECT_EQ(together(properties, cuda::kLargeBlockBytes, cuda::kSmallBlockBytes), 2);
  EXPECT_EQ(together(properties, cuda::kSmallBlockBytes, cuda::kSmallBlockBytes), 2);
  EXPECT_EQ(together(properties, cuda::kLargeBlockBytes, cuda::kLargeBlockBytes), 1);
}

}  // namespace
}  // namespace tenon::test
