// One product of 16 rows or more is launched again and again beside other traffic: every launch gives the bits of the first.
// A stage of weights that is filled again too early goes wrong in one launch of thousands, so few launches show
// nothing.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "recorder.h"
#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/tile_gemm.cuh"

namespace tenon::test {
namespace {

using Format = cuda::Int4Format<64>;
using Gemm = cuda::TileGemm<Format>;

constexpr uint32_t kLaunches = 20'000;
// The matrices together are larger than the L2 cache, and each alone is not: stages are filled from either.
constexpr uint32_t kCopies = 16;
constexpr uint32_t kColumns = 4096, kDepth = 14336, kMostRows = 256;

__host__ __device__ uint64_t mix(uint64_t i) {
  uint64_t w = (i + 1) * 0x9e3779b97f4a7c15;
  w = (w ^ (w >> 30)) * 0xbf58476d1ce4e5b9;
  return (w ^ (w >> 27)) * 0x94d049bb133111eb;
}

// Any bits are numbers, and any half in them is finite.
__global__ void fill_weights(uint32_t* to, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    to[i] = static_cast<uint32_t>(mix(i) >> 16) & 0xbfffbfff;
  }
}
__global__ void fill_x(float* to, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    to[i] = static_cast<float>(static_cast<int32_t>(mix(i) >> 20)) * 0x1p-31F;
  }
}
__global__ void count_differences(const uint32_t* a, const uint32_t* b, uint32_t n, uint32_t* differences) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (a[i] != b[i]) atomicAdd(differences, 1);
  }
}

template <class T>
class OnDevice {
 public:
  explicit OnDevice(size_t n) {
    TENON_CUDA_CHECK(cudaMalloc(&data_, n * sizeof(T)));
    TENON_CUDA_CHECK(cudaMemset(data_, 0, n * sizeof(T)));
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

// This is the product of `rows` rows, and what it needs.
class Product {
 public:
  explicit Product(uint32_t rows) : rows_(rows) {
    args_.map = {kColumns, 0};
    args_.k = kDepth;
    args_.rows = rows;
    int device = 0, blocks = 0;
    TENON_CUDA_CHECK(cudaGetDevice(&device));
    TENON_CUDA_CHECK(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device));
    args_.blocks = static_cast<uint32_t>(blocks);
    args_.stages = 8;
    args_.eps = 1e-5F;
    args_.most_block_bytes = cuda::kLargeBlockBytes;
    args_.x_stride = kDepth;
    args_.y_stride = kColumns;
    args_.prepared = 1;
    args_.own_panels = Gemm::has_own_panels(args_) ? 1 : 0;
    TENON_CUDA_CHECK(cudaMemcpy(live_.get(), &rows_, sizeof(rows_), cudaMemcpyHostToDevice));
    TENON_CUDA_CHECK(cudaStreamCreate(&stream_));
    prepared_.emplace(Gemm::prepared_bytes(args_));
    scratch_.emplace(Gemm::scratch_bytes(args_));
    zeroed_.emplace(Gemm::zeroed_bytes(args_));
    fill_weights<<<1024, 512, 0, stream_>>>(weights_.get(), kCopies * matrix_words());
    fill_x<<<512, 256, 0, stream_>>>(x_.get(), size_t{rows} * kDepth);
    Gemm::prepare(args_, pointers(0), launch());
  }
  ~Product() { cudaStreamDestroy(stream_); }

  // Multiplies by one of the matrices.
  void run(uint32_t copy) { Gemm::multiply(args_, pointers(copy), cuda::BlockSize::kLarge, launch()); }
  void copy_y(float* to) {
    const size_t bytes = size_t{rows_} * kColumns * sizeof(float);
    TENON_CUDA_CHECK(cudaMemcpyAsync(to, y_.get(), bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  void compare_y(const float* want, uint32_t* differences) {
    count_differences<<<264, 512, 0, stream_>>>(reinterpret_cast<const uint32_t*>(y_.get()),
                                                reinterpret_cast<const uint32_t*>(want), rows_ * kColumns, differences);
  }
  void wait() { TENON_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  size_t matrix_words() const {
    return size_t{args_.map.tiles()} * cuda::segments_of<Format>(kDepth) * Format::kSegmentBytes / sizeof(uint32_t);
  }
  cuda::MatvecPointers pointers(uint32_t copy) const {
    cuda::MatvecPointers p{};
    p.weights = reinterpret_cast<const uint8_t*>(weights_.get() + copy * matrix_words());
    p.live = live_.get();
    p.prepared = prepared_->get();
    p.x = x_.get();
    p.y = y_.get();
    return p;
  }
  cuda::Launch launch() {
    raw_ = sdk::abi_struct<tenon_launch>();
    raw_.queue = stream_;
    raw_.scratch = scratch_->get();
    raw_.zeroed = zeroed_->get();
    return cuda::Launch(&raw_);
  }

  uint32_t rows_;
  cuda::MatvecArgs args_{};
  tenon_launch raw_{};
  cudaStream_t stream_ = nullptr;
  OnDevice<uint32_t> weights_{kCopies * size_t{kColumns} * kDepth / 4}, live_{1};
  OnDevice<float> x_{size_t{kMostRows} * kDepth}, y_{size_t{kMostRows} * kColumns};
  std::optional<OnDevice<uint8_t>> prepared_, scratch_, zeroed_;
};

class ManyLaunches : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
    int device = 0, major = 0, minor = 0;
    TENON_CUDA_CHECK(cudaGetDevice(&device));
    TENON_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    TENON_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    const auto arch = static_cast<uint32_t>(10 * major + minor);
    if (!Gemm::fits(TENON_TEST_TARGETS, arch)) GTEST_SKIP() << "the products are built for sm_90a, this is " << arch;
  }
};

TEST_P(ManyLaunches, OfOneProductGiveTheSameBits) {
  Product product(GetParam());
  std::vector<std::unique_ptr<OnDevice<float>>> first;
  for (uint32_t copy = 0; copy < kCopies; ++copy) {
    first.push_back(std::make_unique<OnDevice<float>>(size_t{kMostRows} * kColumns));
    product.run(copy);
    product.copy_y(first.back()->get());
  }
  const OnDevice<uint32_t> differences(1);
  for (uint32_t i = 0; i < kLaunches; ++i) {
    product.run(i % kCopies);
    product.compare_y(first[i % kCopies]->get(), differences.get());
  }
  product.wait();
  uint32_t n = 0;
  TENON_CUDA_CHECK(cudaMemcpy(&n, differences.get(), sizeof(n), cudaMemcpyDeviceToHost));
  EXPECT_EQ(n, 0U) << "numbers of " << kLaunches << " launches are not those of the first";
}

INSTANTIATE_TEST_SUITE_P(Rows, ManyLaunches, testing::Values(16U, 128U, 256U));

}  // namespace
}  // namespace tenon::test
