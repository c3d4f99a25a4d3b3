// These kernels make plain numbers of packed weights (packed.cuh): a whole site in row-major order for large
// products, or rows of its first matrix for an embedding. The naive twin of both is PackedFormat's expand(), which
// they call. Codes of 8 bits can be unpacked as they are, with the scales of their rows beside them; the naive
// twin of that is the same function's reading.
#pragma once

#include <algorithm>
#include <type_traits>

#include "tenon/cuda/formats.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/packed_site.cuh"

namespace tenon::cuda {

// For a large product the weights of a format are unpacked to this type: halves stay as they are, others become fp16.
template <PackedFormat F>
using PlainOf = std::conditional_t<std::is_void_v<typename F::Half>, float, typename F::Half>;
template <PackedFormat F>
inline constexpr tenon_format kPlainFormat = std::is_same_v<PlainOf<F>, float>    ? TENON_F32
                                             : std::is_same_v<PlainOf<F>, __half> ? TENON_F16
                                                                                  : TENON_BF16;

struct UnpackArgs {
  TileMap map;
  uint32_t k;
  uint32_t rows;          // entries of a lookup's index, or rows to be copied
  uint32_t matrix_rows;   // a lookup's matrix has so many
  uint32_t first_column;  // the first row to be copied is this column of y
  int64_t y_stride;       // elements from a row of a lookup's y to the next
};
// Where the format has no kRowScales, kWeights stands in the place of kScales.
struct UnpackOperand {
  enum : uint32_t { kTo, kWeights, kScales, kCount };
};
struct LookupOperand {
  enum : uint32_t { kY, kIndex, kLive, kWeights, kScales, kCount };
};
struct LookupPointers {
  const uint8_t* weights;  // the packed store
  const float* scales;     // one a packed row, or nullptr
  const int32_t* index;    // rows of the matrix; one that it does not have is skipped
  const uint32_t* live;    // one number: so many entries of the index are looked up
  float* y;                // (rows, k) f32
};

namespace detail {

// Stores those of 8 values that are within the row: the first n.
template <class H>
__device__ inline void store_octet(H* to, uint32_t n, const float (&v)[8]) {
  if (n < 8 || reinterpret_cast<uintptr_t>(to) % 16 != 0) {
    for (uint32_t i = 0; i < 8 && i < n; ++i) to[i] = H(v[i]);
  } else if constexpr (sizeof(H) == 4) {
    reinterpret_cast<float4*>(to)[0] = {v[0], v[1], v[2], v[3]};
    reinterpret_cast<float4*>(to)[1] = {v[4], v[5], v[6], v[7]};
  } else {
    *reinterpret_cast<uint4*>(to) = {to_halves<H>(v[0], v[1]), to_halves<H>(v[2], v[3]), to_halves<H>(v[4], v[5]),
                                     to_halves<H>(v[6], v[7])};
  }
}

}  // namespace detail

// A warp takes a segment at a time. `to` is (columns, k) in natural order.
template <PackedFormat F, class H>
__global__ void unpack_kernel(const UnpackArgs a, const uint8_t* weights, const float* scales, H* to) {
  wait();
  const uint32_t lane = lane_id(), segments = segments_of<F>(a.k), all = a.map.tiles() * segments;
  for (uint32_t c = (blockIdx.x * blockDim.x + threadIdx.x) / 32; c < all; c += gridDim.x * blockDim.x / 32) {
    const uint32_t packed_row = c / segments * kTileRows + lane / 4;
    for (uint32_t b = 0; b < F::kBlocks; ++b) {
      const uint32_t k = c % segments * F::kSegmentK + 32 * b + 8 * (lane % 4);
      if (k >= a.k) continue;
      float v[2][8];  // [row g, row g + 8][k]
      F::expand(weights + size_t{c} * F::kSegmentBytes, b, lane, v);
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t column = a.map.column(packed_row + 8 * i);
        if (column == UINT32_MAX) continue;
        if constexpr (F::kRowScales) {
          for (float& f : v[i]) f *= scales[packed_row + 8 * i];
        }
        detail::store_octet(to + size_t{column} * a.k + k, a.k - k, v[i]);
      }
    }
  }
}
template <PackedFormat F, class H>
void run_unpack(const UnpackArgs& a, const Launch& launch) {
  constexpr uint32_t kThreads = 256, kMostBlocks = 2048;
  const uint32_t warps = a.map.tiles() * segments_of<F>(a.k);
  launch(&unpack_kernel<F, H>, {.blocks = {std::min(kMostBlocks, (warps + 7) / 8)}, .threads = {kThreads}}, a,
         launch.ptr<const uint8_t>(UnpackOperand::kWeights),
         F::kRowScales ? launch.ptr<const float>(UnpackOperand::kScales) : nullptr, launch.ptr<H>(UnpackOperand::kTo));
}

// Writes codes in y's order: to (columns, whole segments of k), to_scales f32[columns]. Both keep what is beyond.
struct UnpackBytesOperand {
  enum : uint32_t { kTo, kToScales, kWeights, kScales, kCount };
};
// A segment is [32 k][lane][4 k][4 bytes of row g, 4 bytes of row g + 8], as in Bytes of group_weights.cuh.
template <class F>
concept ByteFormat = PackedFormat<F> && F::kSegmentK == 64 && F::kSegmentBytes == 1024 && F::kRowScales;

// A warp takes a segment of 16 rows and 64 k at a time; lane 4 g + t has 8 k of
// the rows g and g + 8 in each of its halves.
template <ByteFormat F>
__global__ void unpack_bytes_kernel(const UnpackArgs a, const uint8_t* weights, const float* scales, uint8_t* to,
                                    float* to_scales) {
  wait();
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x, lane = lane_id();
  const uint32_t segments = segments_of<F>(a.k), rows = a.map.tiles() * kTileRows;
  for (uint32_t row = thread; row < rows; row += threads) {
    if (const uint32_t column = a.map.column(row); column != UINT32_MAX) to_scales[column] = scales[row];
  }
  for (uint32_t c = thread / 32; c < a.map.tiles() * segments; c += threads / 32) {
    const auto* segment = reinterpret_cast<const uint4*>(weights + size_t{c} * F::kSegmentBytes);
    const uint4 half[2] = {segment[lane], segment[32 + lane]};
    const uint32_t row = c / segments * kTileRows + lane / 4, k = c % segments * F::kSegmentK + 8 * (lane % 4);
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t column = a.map.column(row + 8 * i);
      if (column == UINT32_MAX) continue;
      uint8_t* codes = to + size_t{column} * segments * F::kSegmentK + k;
      for (uint32_t h = 0; h < 2; ++h) {
        *reinterpret_cast<uint2*>(codes + 32 * h) = i == 0 ? uint2{half[h].x, half[h].z} : uint2{half[h].y, half[h].w};
      }
    }
  }
}
template <ByteFormat F>
void run_unpack_bytes(const UnpackArgs& a, const Launch& launch) {
  using Operand = UnpackBytesOperand;
  constexpr uint32_t kThreads = 256, kMostBlocks = 2048;
  const uint32_t warps = a.map.tiles() * segments_of<F>(a.k);
  launch(&unpack_bytes_kernel<F>, {.blocks = {std::min(kMostBlocks, (warps + 7) / 8)}, .threads = {kThreads}}, a,
         launch.ptr<const uint8_t>(Operand::kWeights), launch.ptr<const float>(Operand::kScales),
         launch.ptr<uint8_t>(Operand::kTo), launch.ptr<float>(Operand::kToScales));
}

// These are the codes of a site and their scales, as run_unpack_bytes() leaves them.
struct UnpackedBytes {
  tenon_tid codes, scales;  // (columns, whole segments of k), f32[columns]; columns: a multiple of kWhole
  static constexpr int64_t kWhole = 16;
  static int64_t whole(int64_t n) { return (n + kWhole - 1) / kWhole * kWhole; }
};
// `format` is that of the codes. `store` has the site's codes and scales.
template <ByteFormat F>
UnpackedBytes record_unpack_bytes(const PackedSite& site, tenon_format format, const tenon_tid* store,
                                  sdk::Recorder& rec) {
  const int64_t columns = UnpackedBytes::whole(site.map.columns), k = int64_t{segments_of<F>(site.k)} * F::kSegmentK;
  const UnpackedBytes to{rec.temp(sdk::tensor(format, {columns, k})), rec.temp(sdk::tensor(TENON_F32, {columns}))};
  const std::vector<tenon_operand> operands =
      sdk::operands_by(UnpackBytesOperand::kCount, {{UnpackBytesOperand::kTo, to.codes, TENON_WRITE},
                                                    {UnpackBytesOperand::kToScales, to.scales, TENON_WRITE},
                                                    {UnpackBytesOperand::kWeights, store[0], TENON_READ},
                                                    {UnpackBytesOperand::kScales, store[1], TENON_READ}});
  sdk::OpSpec spec{.name = "unpack_bytes", .operands = operands, .chunks = {}};
  spec.cost.read[kFixedCost] = static_cast<double>(site.weight_bytes);
  spec.cost.written[kFixedCost] = static_cast<double>(site.map.columns * k);
  UnpackArgs a{};
  a.map = site.map;
  a.k = site.k;
  emit<&run_unpack_bytes<F>>(rec, spec, a);
  return to;
}

// A block writes a packed row as plain numbers.
template <PackedFormat F, class H>
__device__ void expand_row(const uint8_t* weights, const float* scales, uint32_t packed_row, uint32_t k, H* to) {
  const float scale = F::kRowScales ? scales[packed_row] : 1;
  for (uint32_t i = 8 * threadIdx.x; i < k; i += 8 * blockDim.x) {
    float v[2][8];  // [row g, row g + 8][k]
    const uint8_t* segment = weights + segment_offset<F>(k, packed_row, i);
    F::expand(segment, i % F::kSegmentK / 32, packed_row % 8 * 4 + i % 32 / 8, v);
    float(&octet)[8] = v[packed_row % kTileRows / 8];
    for (float& f : octet) f *= scale;
    detail::store_octet(to + i, k - i, octet);
  }
}

// A block copies a row that has been loaded to `to`, (columns, k) in natural order.
template <PackedFormat F, class H>
__global__ void copy_rows_kernel(const UnpackArgs a, const uint8_t* weights, const float* scales, H* to) {
  const uint32_t column = a.first_column + blockIdx.x;
  expand_row<F>(weights, scales, a.map.packed_row(column), a.k, to + size_t{column} * a.k);
}
template <PackedFormat F>
void copy_rows(const UnpackArgs& a, const void* weights, const void* scales, void* to, void* queue) {
  copy_rows_kernel<F><<<a.rows, 256, 0, static_cast<cudaStream_t>(queue)>>>(
      a, static_cast<const uint8_t*>(weights), static_cast<const float*>(scales), static_cast<PlainOf<F>*>(to));
  TENON_CUDA_CHECK(cudaGetLastError());
}

// A block looks up a row of y.
template <PackedFormat F>
__global__ void lookup_kernel(const UnpackArgs a, const LookupPointers p) {
  wait();
  const uint32_t row = blockIdx.x;
  if (row >= *p.live) return;
  const int32_t wanted = p.index[row];
  if (wanted < 0 || static_cast<uint32_t>(wanted) >= a.matrix_rows) return;
  expand_row<F>(p.weights, p.scales, a.map.packed_row(static_cast<uint32_t>(wanted)), a.k, p.y + row * a.y_stride);
}
template <PackedFormat F>
void run_lookup(const UnpackArgs& a, const Launch& launch) {
  using Operand = LookupOperand;
  const LookupPointers p{launch.ptr<const uint8_t>(Operand::kWeights),
                         F::kRowScales ? launch.ptr<const float>(Operand::kScales) : nullptr,
                         launch.ptr<const int32_t>(Operand::kIndex), launch.ptr<const uint32_t>(Operand::kLive),
                         launch.ptr<float>(Operand::kY)};
  launch(&lookup_kernel<F>, {.blocks = {a.rows}, .threads = {256}}, a, p);
}

}  // namespace tenon::cuda
