#include "../coded/cuda_scheme.cuh"
#include "scheme.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::fp8 {

struct CudaSchema : PublishedSchema {
  static constexpr bool kRoutesRows = true;
  using Weights = cuda::FloatWeights<cuda::Bytes<0>, sdk::SmallFloat<4, 3>>;
  // Blocks of 128 lie as groups of 64 with equal scales.
  template <uint32_t kIndex>
  using Format = cuda::GroupedFormat<
      Weights,
      std::conditional_t<kCodings[kIndex].scaling == coded::Scaling::kGroup, cuda::FloatScales, cuda::NoScales>, 64, 2>;
};

namespace {

constexpr uint32_t kThreads = 256;

// Puts the values of all threads of the block together by `op`; each of them gets the result. A kernel calls it once for each type of op.
template <class Op>
__device__ float over_block(float v, const Op& op) {
  __shared__ float of_warp[kThreads / 32];
  for (int d = 16; d > 0; d /= 2) v = op(v, __shfl_xor_sync(~0U, v, d));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
  __syncthreads();
  v = of_warp[0];
  for (uint32_t w = 1; w < kThreads / 32; ++w) v = op(v, of_warp[w]);
  return v;
}
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct RoundPointers {
  const float *x, *norm, *scales;
  const int32_t* expert;
  const uint32_t* live;
  float* to;
};

// A block has some columns of a row, and goes over all of it first where RMSNorm or a scale of the row want that.
__global__ void __launch_bounds__(kThreads) round_kernel(const RoundArgs a, const RoundPointers p, uint32_t columns) {
  cuda::wait();
  const uint32_t row = blockIdx.x, begin = blockIdx.y * columns, end = min(begin + columns, a.k);
  if (row >= *p.live) return;
  const float* x = p.x + row * a.x_stride;
  float factor = 1;
  if (a.has_norm != 0) {
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < a.k; i += kThreads) sum = fmaf(x[i], x[i], sum);
    factor = rsqrtf(over_block(sum, Sum{}) / static_cast<float>(a.k) + a.eps);
  }
  const auto value = [&](uint32_t i) { return a.has_norm != 0 ? x[i] * factor * p.norm[i] : x[i]; };
  float scale = 1;
  if (a.has_scales == 0) {
    float largest = 0;
    for (uint32_t i = threadIdx.x; i < a.k; i += kThreads) largest = fmaxf(largest, fabsf(value(i)));
    scale = row_scale(over_block(largest, Largest{}));
  }
  // The product leaves rows out whose expert is not there.
  const uint32_t chosen = p.expert != nullptr ? static_cast<uint32_t>(p.expert[row]) : 0;
  const uint32_t set = p.expert != nullptr && chosen < a.experts ? chosen : 0;
  for (uint32_t part = 0; part < a.parts; ++part) {
    if (a.has_scales != 0) scale = p.scales[set * a.parts + part];
    float* to = p.to + (size_t{row} * a.parts + part) * a.k;
    for (uint32_t i = begin + threadIdx.x; i < end; i += kThreads) to[i] = rounded_by(scale, value(i));
  }
}

// Few rows are cut into columns, so that more multiprocessors have some.
void run_round(const RoundArgs& a, const cuda::Launch& launch) {
  constexpr uint32_t kManyRows = 64, kColumns = 1024;
  const uint32_t columns = a.rows >= kManyRows ? a.k : kColumns;
  uint32_t next = kRoundedOthers;
  RoundPointers p{};
  p.x = launch.ptr<const float>(kRoundedX);
  p.live = launch.ptr<const uint32_t>(kRoundedLive);
  p.to = launch.ptr<float>(kRounded);
  if (a.has_norm != 0) p.norm = launch.ptr<const float>(next++);
  if (a.has_scales != 0) p.scales = launch.ptr<const float>(next++);
  if (a.has_scales != 0 && a.experts != 0) p.expert = launch.ptr<const int32_t>(next);
  launch(&round_kernel, {.blocks = {a.rows, (a.k + columns - 1) / columns}, .threads = {kThreads}}, a, p, columns);
}

// A block has a row. The bits of magnitudes have their order, and the state begins with zeros.
__global__ void __launch_bounds__(kThreads)
    largest_kernel(const LargestArgs a, const float* x, const uint32_t* live, uint32_t* largest) {
  cuda::wait();
  if (blockIdx.x >= *live) return;
  uint32_t found = 0;
  for (uint32_t i = threadIdx.x; i < a.k; i += kThreads) {
    found = max(found, __float_as_uint(x[blockIdx.x * a.x_stride + i]) & 0x7fffffff);
  }
  found = __reduce_max_sync(~0U, found);
  if (threadIdx.x % 32 == 0) atomicMax(largest, found);
}
void run_largest(const LargestArgs& a, const cuda::Launch& launch) {
  launch(&largest_kernel, {.blocks = {a.rows}, .threads = {kThreads}}, a, launch.ptr<const float>(kLargestX),
         launch.ptr<const uint32_t>(kLargestLive), launch.ptr<uint32_t>(kLargest));
}

using Base = coded::CudaScheme<CudaSchema>;

struct Ops {
  explicit Ops(const sdk::Env&) {}
  static void round(sdk::Recorder& rec, const sdk::OpSpec& spec, const RoundArgs& args) {
    cuda::emit<&run_round>(rec, spec, args);
  }
  static void observe(sdk::Recorder& rec, const sdk::OpSpec& spec, const LargestArgs& args) {
    cuda::emit<&run_largest>(rec, spec, args);
  }
  static void put(void* to, const float& value, void* queue) {
    TENON_CUDA_CHECK(
        cudaMemcpyAsync(to, &value, sizeof(value), cudaMemcpyHostToDevice, static_cast<cudaStream_t>(queue)));
  }
  static published::Matrix& matrix(const Base::Site& site) { return *site.published.front().form; }
};

}  // namespace
}  // namespace tenon::fp8

using Fp8 = tenon::fp8::Scheme<tenon::fp8::Base, tenon::fp8::Ops>;
TENON_PLUGIN(Fp8);
