// This is quantization.fp8 on a GPU: weights in e4m3 with a scale a row or a block of columns
// (schema.h), and the two small ops that round x to e4m3 and find its largest magnitude (activations.h,
// whose loops on a CPU are the naive twins: cpu.cc).
//
// A step multiplies in one of two ways. Weights become halves in registers, and x is f32 or was rounded to
// numbers of e4m3 in f32 before (round_kernel); or, for many rows on Hopper, both stay codes and cuBLASLt
// multiplies them (e4m3_products.cuh). Both round a number of x in the same way: x / scale becomes the nearest
// number of e4m3, as compressed-tensors and transformers do.
//
// Invariants: a scale a token is the row's largest magnitude / 448, after RMSNorm where that was claimed, and a scale a
// group that of its columns; a static scale is the file's, one for each part of the site. Rows past the live ones are
// neither read nor written.
#include "../coded/cuda_scheme.cuh"
#include "e4m3_products.cuh"
#include "scheme.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::fp8 {

struct CudaSchema : PublishedSchema {
  static constexpr bool kRoutesRows = true;
  using Weights = cuda::E4m3Weights;
  // Blocks of 128 lie as groups of 64 with equal scales.
  template <uint32_t kIndex>
  using Format = cuda::GroupedFormat<
      Weights,
      std::conditional_t<kCodings[kIndex].scaling == coded::Scaling::kGroup, cuda::FloatScales, cuda::NoScales>, 64, 2>;
};

namespace {

// A block has some columns of a row, whole groups of them. It goes over all of the row first where RMSNorm or a scale of
// the row wants that. Where a row has several groups, each warp rounds some of them.
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
  if (a.has_scales == 0 && a.group < a.k) {
    constexpr uint32_t kLanes = 32;
    const uint32_t lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
    for (uint32_t first = begin + warp * a.group; first < end; first += kThreads / kLanes * a.group) {
      const uint32_t last = min(first + a.group, end);
      float largest = 0;
      for (uint32_t i = first + lane; i < last; i += kLanes) largest = fmaxf(largest, fabsf(value(i)));
      scale = group_scale(a, cuda::over_warp(largest, Largest{}));
      for (uint32_t i = first + lane; i < last; i += kLanes) p.to[size_t{row} * a.k + i] = rounded_by(scale, value(i));
    }
    return;
  }
  if (a.has_scales == 0) {
    float largest = 0;
    for (uint32_t i = threadIdx.x; i < a.k; i += kThreads) largest = fmaxf(largest, fabsf(value(i)));
    scale = group_scale(a, over_block(largest, Largest{}));
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
  const uint32_t groups = (kColumns + a.group - 1) / a.group, columns = a.rows >= kManyRows ? a.k : groups * a.group;
  launch(&round_kernel, {.blocks = {a.rows, (a.k + columns - 1) / columns}, .threads = {kThreads}}, a,
         round_pointers(a, launch), columns);
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
  for (uint32_t i = threadIdx.x % 32; i < a.places; i += 32) atomicMax(largest + i, found);
}
void run_largest(const LargestArgs& a, const cuda::Launch& launch) {
  launch(&largest_kernel, {.blocks = {a.rows}, .threads = {kThreads}}, a, launch.ptr<const float>(kLargestX),
         launch.ptr<const uint32_t>(kLargestLive), launch.ptr<uint32_t>(kLargest));
}

using Base = coded::CudaScheme<CudaSchema>;

class Ops {
 public:
  static constexpr bool kCodes = true;
  explicit Ops(const sdk::Env& env) : arch_(env.device().arch) {}
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

  static uint32_t code(const Base& base, const tenon_linear& s) {
    std::vector<tenon_format> sources;
    for (uint32_t i = 0; i < s.n_mats; ++i) sources.push_back(Base::source(s, i));
    return base.code(sources);
  }
  // Says whether cuBLASLt multiplies many rows by weights with a scale a row: on Hopper it has such products.
  bool multiplies_codes(const Base& base, const Products& products, uint32_t rows, CodedActivations coded) const {
    constexpr uint32_t kHopper = 90;
    bool takes = arch_ == kHopper;
    int64_t padded = 0, columns = 0;
    for (const Products::Part& part : products.parts) {
      columns += part.columns;
      Base::with_format(part.code, [&]<class F>(F) {
        takes = takes && F::kRowScales && base.template takes_plain<F>(products.experts, false, rows);
        padded = int64_t{cuda::segments_of<F>(static_cast<uint32_t>(products.k))} * F::kSegmentK;
      });
    }
    if (padded > kMostColumns || (coded.x && products.k != padded) || (coded.y && columns / 2 > kMostColumns))
      return false;
    return takes && has_products(products, {rows, padded, coded.x ? padded + sdk::kScaleBytes : padded});
  }
  template <class Site>
  static void record_codes(const Site& site, const tenon_linear_call& call, tenon_tid scales, sdk::Recorder& rec) {
    std::vector<CodedPart> parts;
    for (const auto& part : site.parts) parts.push_back({part.site.get(), call.store + part.first_store});
    Base::with_format(parts[0].site->code, [&]<class F>(F) {
      if constexpr (F::kRowScales) E4m3Recording<F>(parts, scales, call, rec).record();
    });
  }

 private:
  uint32_t arch_;
};

}  // namespace
}  // namespace tenon::fp8

using Fp8 = tenon::fp8::Scheme<tenon::fp8::Base, tenon::fp8::Ops>;
TENON_PLUGIN(Fp8);
