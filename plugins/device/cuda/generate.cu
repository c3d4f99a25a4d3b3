#include <algorithm>

#include "generate.h"
#include "tenon/cuda/error.h"

namespace tenon::cuda_device {
namespace {

constexpr uint32_t kSums = 4 * 255 + 1;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

struct Table {
  uint32_t word[kSums];  // each holds an element in its low bits
};

__device__ uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

template <class Element>
__global__ void generate_kernel(Element* out, uint64_t key, uint64_t first, uint64_t count,
                                __grid_constant__ const Table table) {
  __shared__ Element value[kSums];
  for (uint32_t i = threadIdx.x; i < kSums; i += blockDim.x) value[i] = static_cast<Element>(table.word[i]);
  __syncthreads();
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t p = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; 2 * p < count; p += stride) {
    const uint64_t word = mix(key + (first / 2 + p + 1) * kGolden);
    const uint64_t twos = (word & 0x00ff00ff00ff00ff) + ((word >> 8) & 0x00ff00ff00ff00ff);
    const uint64_t fours = (twos & 0x0000ffff0000ffff) + ((twos >> 16) & 0x0000ffff0000ffff);
    out[2 * p] = value[fours & 0xffff];
    if (2 * p + 1 < count) out[2 * p + 1] = value[fours >> 32];
  }
}

}  // namespace

void fill_generated(cudaStream_t stream, void* dst, const tenon_generated& what) {
  const bool wide = what.format == TENON_F32;
  Table table{};
  for (uint32_t i = 0; i < kSums; ++i) {
    table.word[i] = wide ? static_cast<const uint32_t*>(what.table)[i] : static_cast<const uint16_t*>(what.table)[i];
  }
  constexpr uint32_t kThreads = 256, kMostBlocks = 4096;
  const auto blocks = static_cast<uint32_t>(
      std::min<uint64_t>(kMostBlocks, std::max<uint64_t>(1, (what.count / 2 + kThreads) / kThreads)));
  if (wide) {
    generate_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<uint32_t*>(dst), what.key, what.first, what.count,
                                                     table);
  } else {
    generate_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<uint16_t*>(dst), what.key, what.first, what.count,
                                                     table);
  }
  TENON_CUDA_CHECK(cudaGetLastError());
}

}  // namespace tenon::cuda_device
