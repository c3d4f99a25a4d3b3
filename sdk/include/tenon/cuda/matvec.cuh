// Products of packed weights (packed.cuh) with 1 to 16 rows of x at the speed of memory, with RMSNorm before and bias,
// SiLU-multiply and residual behind.
//
// A block has an equal share of the tiles, in groups of kTiles. Of a group, segment c along K belongs to warp c % 16; a
// warp multiplies the segments of all of the group's tiles together, from a ring that is filled before the wait and
// refilled as it is read. At a group's end the 16 partial sums meet in shared memory: so a row's result depends neither
// on the other rows, nor on how tiles are grouped or shared out.
//
// One row of x lies in shared memory, each warp having prepared its part; several are prepared by a kernel before, in
// the order of fragments, and read from L2.
#pragma once

#include <algorithm>
#include <type_traits>

#include "tenon/cuda/block_size.h"
#include "tenon/cuda/expert_groups.cuh"
#include "tenon/cuda/formats.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/row_prologue.cuh"
#include "tenon/cuda/row_sources.cuh"

namespace tenon::cuda {

inline constexpr uint32_t kMatvecRows = 16;  // at most
struct MatvecArgs {
  TileMap map;
  uint32_t k, rows;
  uint32_t blocks;            // at most; multiprocessors
  uint32_t stages;            // of a warp's ring, at most
  uint32_t silu;              // 1: y = silu(first half) * second half; map.halves is 1 then, and there is no addend
  uint32_t prepared;          // 1: x comes from Matvec::prepare(), which several rows need and one very long row
  uint32_t most_block_bytes;  // of shared memory that the GPU gives a block
  float eps;
  int64_t x_stride, y_stride, addend_stride;  // in elements
  uint32_t experts, padding;                  // of a routed product
};
struct MatvecPointers {
  const uint8_t* weights;
  const float* scales;  // by packed row; Int8Format only
  const float* x;
  float* y;
  const uint32_t* live;
  const float* norm;           // or nullptr
  const float *bias, *addend;  // or nullptr
  uint8_t* prepared;           // Matvec::prepared_bytes(), if MatvecArgs::prepared; of a routed product for each group
  const int32_t* routing;      // of a routed product: the experts of the rows or, of prepared rows, ExpertGroups
};

// Where things are in a block's shared memory.
struct MatvecLayout {
  uint32_t x, sums, partials, squares, barriers, bytes;
};
// rows: of x in shared memory or, by 4, of fragments.
template <class F, int kTiles, bool kShared>
__host__ __device__ inline MatvecLayout matvec_layout(uint32_t k, uint32_t rows, uint32_t stages) {
  const uint32_t padded = segments_of<F>(k) * F::kSegmentK,
                 groups = F::kGroup != 0 ? padded / (F::kGroup + !F::kGroup) : 0;
  MatvecLayout at{};
  at.x = kMatvecWarps * stages * kTiles * F::kSegmentBytes;
  at.sums = at.x + (kShared ? 4 * padded : 0);
  at.partials = at.sums + (kShared ? (groups * 4 + 15) / 16 * 16 : 0);
  at.squares = at.partials + 2 * kMatvecWarps * kTiles * kTileRows * rows * 4;
  at.barriers = at.squares + kMatvecWarps * 4;
  at.bytes = at.barriers + kMatvecWarps * stages * 8;
  return at;
}

// The segments that a warp multiplies, in order.
template <class F, uint32_t kTiles>
class SegmentWalk {
 public:
  __device__ SegmentWalk(uint32_t first, uint32_t last, uint32_t segments, uint32_t warp)
      : tile_(warp < segments ? first : last), last_(last), segments_(segments), warp_(warp), segment_(warp) {}
  __device__ __forceinline__ bool more() const { return tile_ < last_; }
  // Of the first tile's segment; and how many tiles there are.
  __device__ __forceinline__ size_t offset() const { return size_t{tile_ * segments_ + segment_} * F::kSegmentBytes; }
  __device__ __forceinline__ uint32_t tiles() const { return min(last_ - tile_, kTiles); }
  __device__ __forceinline__ void advance() {
    segment_ += kMatvecWarps;
    if (segment_ >= segments_) segment_ = warp_, tile_ += kTiles;
  }

 private:
  uint32_t tile_, last_, segments_, warp_, segment_;
};

namespace detail {

// Which output of a group a thread reduces: in each group it is another warp's turn.
template <uint32_t kRows>
struct Turn {
  uint32_t output, row, packed_row;
  __device__ __forceinline__ Turn(uint32_t group, uint32_t tile)
      : output((threadIdx.x - 32 * group) % kMatvecThreads),
        row(output / kTileRows % kRows),
        packed_row((tile + output / (kTileRows * kRows)) * kTileRows + output % kTileRows) {}
};

// What an output takes beside the sum, loaded before the group's work.
struct Output {
  float scale = 1, addend = 0;
};
template <class F>
__device__ __forceinline__ Output load_output(const MatvecArgs& a, const MatvecPointers& p, const float* scales,
                                              uint32_t packed_row, uint32_t row) {
  Output out;
  const uint32_t column = a.map.column(packed_row);
  if (column == UINT32_MAX) return out;
  if constexpr (F::kTotal) out.scale = scales[packed_row];
  if (p.bias != nullptr) out.addend = p.bias[column];
  if (p.addend != nullptr) out.addend += p.addend[row * a.addend_stride + column];
  return out;
}

}  // namespace detail

// Which rows a block multiplies, and with which matrices. Routed, the grid's y counts rows of x, or groups of rows.
template <bool kRouted, bool kShared>
class BlockRows {
 public:
  __device__ __forceinline__ explicit BlockRows(const MatvecPointers& p) : p_(p) {}
  // After the wait. The matrices' number; -1: none, the product is 0.
  __device__ __forceinline__ int32_t expert(uint32_t experts) const {
    const int32_t e = kShared ? p_.routing[blockIdx.y] : ExpertGroups::at(p_.routing, blockIdx.y)[0];
    return e < static_cast<int32_t>(experts) ? e : -1;
  }
  // The row of x and y that the block's row i is; UINT32_MAX: none.
  __device__ __forceinline__ uint32_t operator[](uint32_t i) const {
    if constexpr (!kRouted) {
      return i;
    } else if constexpr (kShared) {
      return blockIdx.y;
    } else {
      return static_cast<uint32_t>(ExpertGroups::at(p_.routing, blockIdx.y)[1 + i]);
    }
  }

 private:
  const MatvecPointers& p_;
};

// More than 4 rows take the registers of two blocks.
template <class F, int kTiles, int N, bool kShared, bool kRouted = false>
__global__ void __launch_bounds__(kMatvecThreads, N == 1 ? 2 : 1)
    matvec_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ MatvecPointers p) {
  constexpr uint32_t kRows = kShared ? 1 : 4 * N, kOutputs = kTiles * kTileRows * kRows;
  extern __shared__ __align__(128) uint8_t memory[];

  trigger();
  // Before the wait: weights.
  const uint32_t warp = __shfl_sync(~0U, threadIdx.x / 32, 0), lane = lane_id(), segments = segments_of<F>(a.k);
  const uint32_t tiles = a.map.tiles(), first = tiles * blockIdx.x / gridDim.x,
                 last = tiles * (blockIdx.x + 1) / gridDim.x;
  const MatvecLayout at = matvec_layout<F, kTiles, kShared>(a.k, kRows, a.stages);
  using Ring = WarpRing<F::kSegmentBytes, kTiles>;
  Ring ring(shared_address(memory + at.barriers) + 8 * a.stages * warp,
            shared_address(memory) + Ring::kBytes * a.stages * warp, a.stages);
  const size_t stride = size_t{segments} * F::kSegmentBytes;
  SegmentWalk<F, kTiles> feed(first, last, segments, warp);
  const auto prime = [&](const uint8_t* weights) {
#pragma unroll 1
    for (uint32_t s = 0; s < a.stages && feed.more(); ++s, feed.advance()) {
      if (s > 0) ring.wait_first(s - 1);  // or x, of the kernel before, would wait behind all of the ring
      ring.fill(s, weights + feed.offset(), stride, feed.tiles());
    }
  };
  if constexpr (!kRouted) prime(p.weights);
  uint8_t* stage = memory + at.x;
  const RowSource source{kRouted && kShared ? p.x + blockIdx.y * a.x_stride : p.x, p.norm, a.k, segments};
  if (kShared && p.norm != nullptr) stage_norm<F>(source, warp, stage);
  wait();

  // The step itself may have chosen the experts: their weights are known now.
  const BlockRows<kRouted, kShared> block_rows(p);
  const uint8_t* weights = p.weights;
  const float* scales = p.scales;
  uint32_t multiplied = segments;
  if constexpr (kRouted) {
    if (block_rows[0] >= min(*p.live, a.rows)) return;  // a padding row, or no group
    const int32_t expert = block_rows.expert(a.experts);
    if (expert < 0) {
      multiplied = 0;
    } else {
      weights += static_cast<uint32_t>(expert) * (tiles * stride);
      if constexpr (F::kTotal) scales += static_cast<uint32_t>(expert) * (tiles * kTileRows);
      prime(weights);
    }
  }

  // x.
  auto* partials = reinterpret_cast<float*>(memory + at.partials);
  auto* squares = reinterpret_cast<float*>(memory + at.squares);
  RowPart part;
  const PreparedRows<F> rows(a.k, N);
  const uint8_t* prepared = kRouted && !kShared ? p.prepared + blockIdx.y * rows.bytes() : p.prepared;
  auto x = [&] {
    if constexpr (kShared) {
      auto* sums = reinterpret_cast<float*>(memory + at.sums);
      part = prepare_part<F>(
          source, warp, stage,
          [&](uint32_t octet, const uint4& high, const uint4& low) {
            auto* to = reinterpret_cast<uint4*>(stage + StagedOctet<F>::offset(octet));
            to[0] = high, to[StagedOctet<F>::kGap / 16] = low;
          },
          [&](uint32_t group, float sum) { sums[group] = sum; });
      return SharedRow<F>(stage, sums);
    } else {
      return GlobalRows<F, N>(prepared, rows);
    }
  }();

  const uint32_t live = min(*p.live, a.rows);
  float factor = 1;
  uint32_t group = 0;
  for (uint32_t tile = first; tile < last; tile += kTiles, ++group) {
    const auto exists = [&](const detail::Turn<kRows>& t) {
      return t.output < kOutputs && t.packed_row < last * kTileRows && block_rows[t.row] < live;
    };
    detail::Output out;
    if (const detail::Turn<kRows> t(group, tile); exists(t)) {
      out = detail::load_output<F>(a, p, scales, t.packed_row, block_rows[t.row]);
      if (!kShared && p.norm != nullptr) factor = reinterpret_cast<const float*>(prepared + rows.factors())[t.row];
    }

    float acc[kTiles][N][F::kAcc] = {};
    for (uint32_t c = warp; c < multiplied; c += kMatvecWarps) {
      x.seek(c);
      uint32_t segment[kTiles] = {ring.front()};
      if (kTiles == 2) segment[kTiles - 1] = segment[0] + (kTiles - 1) * F::kSegmentBytes;
      tile + kTiles <= last ? F::template multiply<kTiles>(acc, segment, x) : F::template multiply<1>(acc, segment, x);
      __syncwarp();
      if (feed.more()) {
        ring.fill(ring.stage(), weights + feed.offset(), stride, feed.tiles());
        feed.advance();
      }
      ring.pop();
    }

    if (kShared && group == 0) {
      if (F::kTotal) part.total = detail::warp_sum(part.total);
      if (p.norm != nullptr) part.square = detail::warp_sum(part.square);
      if (lane == 0) squares[warp] = part.square;
    }
    float* sums = partials + (group % 2 * kMatvecWarps + warp) * kOutputs;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      RowInfo info{part.unscale, part.total};
      if constexpr (!kShared) {
        info = reinterpret_cast<const RowInfo*>(prepared + rows.info())[(4 * n + lane % 4) * kMatvecWarps + warp];
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        float low, high;
        F::template partial<decltype(x)>(acc[t][n], low, high);
        if (kShared && lane % 4 != 0) continue;
        float* to = sums + (t * kRows + (kShared ? 0 : 4 * n + lane % 4)) * kTileRows + lane / 4;
        to[0] = F::finish(low, info), to[8] = F::finish(high, info);
      }
    }
    __syncthreads();
    if (kShared && group == 0 && p.norm != nullptr) factor = norm_factor(squares, a.k, a.eps);

    if (const detail::Turn<kRows> t(group, tile); t.output < (kOutputs + 31) / 32 * 32) {
      const float* from = partials + group % 2 * kMatvecWarps * kOutputs + min(t.output, kOutputs - 1);
      float sum = 0;
#pragma unroll
      for (uint32_t w = 0; w < kMatvecWarps; ++w) sum += from[w * kOutputs];
      if (kRouted && multiplied == 0) sum = 0;  // formats add what x sums up to
      float v = sum * factor * out.scale + out.addend;
      if (a.silu != 0) {
        const float up = __shfl_down_sync(~0U, v, 8);
        v = v / (1 + expf(-v)) * up;
      }
      const uint32_t column = a.map.column(t.packed_row);
      const bool gate = a.silu == 0 || t.packed_row % kTileRows < 8;
      if (exists(t) && gate && column != UINT32_MAX) p.y[block_rows[t.row] * a.y_stride + column] = v;
    }
  }
}

// A block a row.
template <class F, int N, bool kRouted = false>
__global__ void __launch_bounds__(kMatvecThreads)
    prepare_rows_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ MatvecPointers p) {
  extern __shared__ __align__(128) uint8_t stage[];
  __shared__ float squares[kMatvecWarps];
  const PreparedRows<F> rows(a.k, N);
  const uint32_t row = blockIdx.x, warp = threadIdx.x / 32;
  RowSource source{p.x + row * a.x_stride, p.norm, a.k, segments_of<F>(a.k)};
  if (p.norm != nullptr) stage_norm<F>(source, warp, stage);
  wait();
  uint8_t* prepared = p.prepared;
  if constexpr (kRouted) {
    const uint32_t from = BlockRows<true, false>(p)[row];
    if (from >= min(*p.live, a.rows)) return;
    source.x = p.x + from * a.x_stride;
    prepared += blockIdx.y * rows.bytes();
  }
  auto* sums = reinterpret_cast<float*>(prepared + rows.sums()) + row * rows.groups;
  RowPart part = prepare_part<F>(
      source, warp, stage,
      [&](uint32_t octet, const uint4& high, const uint4& low) {
        auto* to = reinterpret_cast<uint4*>(prepared);
        if constexpr (std::is_void_v<typename F::Half>) {
          to += size_t{row} * rows.padded / 4 + 2 * octet;
          to[0] = high, to[1] = low;
        } else {
          to +=
              ((octet / 4 * N + row / 4) * 8 + 2 * (row % 4)) * 4 + octet % 4;  // column 2 (row % 4), lane 4 column + t
          to[0] = high, to[4] = low;
        }
      },
      [&](uint32_t group, float sum) { sums[group] = sum; });
  part.total = detail::warp_sum(part.total), part.square = detail::warp_sum(part.square);
  if (lane_id() == 0) {
    reinterpret_cast<RowInfo*>(prepared + rows.info())[row * kMatvecWarps + warp] = {part.unscale, part.total};
    squares[warp] = part.square;
  }
  __syncthreads();
  if (threadIdx.x == 0 && p.norm != nullptr) {
    reinterpret_cast<float*>(prepared + rows.factors())[row] = norm_factor(squares, a.k, a.eps);
  }
}

// How a product is launched. kTiles: of a group.
template <class F, int kTiles = 2>
class Matvec {
  template <class, int>
  friend class RoutedMatvec;

 public:
  static constexpr const char* kName = "gemv";
  // The classes of blocks that multiply x as it is: TENON_BLOCKS_*; 0: x has to be prepared.
  static uint32_t direct_classes(const MatvecArgs& a) {
    return (in_shared<1>(a, false) ? TENON_BLOCKS_SMALL : 0) | (in_shared<1>(a, true) ? TENON_BLOCKS_LARGE : 0);
  }
  // The class of those that multiply prepared x.
  static uint32_t prepared_classes(const MatvecArgs&) { return TENON_BLOCKS_LARGE; }
  static uint64_t prepared_bytes(const MatvecArgs& a) { return PreparedRows<F>(a.k, row_blocks(a)).bytes(); }
  static uint64_t scratch_bytes(const MatvecArgs&) { return 0; }
  static uint64_t zeroed_bytes(const MatvecArgs&) { return 0; }
  // Makes MatvecPointers::prepared of x. Small blocks.
  static void prepare(const MatvecArgs& a, const MatvecPointers& p, const Launch& launch) {
    const auto run = [&](auto kernel) {
      const uint32_t padded = PreparedRows<F>(a.k, 1).padded;
      launch(kernel, {.blocks = {a.rows}, .threads = {kMatvecThreads}, .shared_bytes = 4 * padded}, a, p);
    };
    with_row_blocks(a, [&]<int N>() { run(&prepare_rows_kernel<F, N>); });
  }
  // Prepared x is multiplied by large blocks: the partial sums of several rows leave small ones too little for the
  // ring.
  static void multiply(const MatvecArgs& a, const MatvecPointers& p, bool large, const Launch& launch) {
    if (a.prepared != 0) return with_row_blocks(a, [&]<int N>() { run<kTiles, N, false>(a, p, true, launch); });
    if (in_shared<kTiles>(a, large)) return run<kTiles, 1, true>(a, p, large, launch);
    run<1, 1, true>(a, p, large, launch);
  }

 private:
  static constexpr uint32_t kLeastRingBytes = kMatvecWarps * 3 * 1024;

  static uint32_t row_blocks(const MatvecArgs& a) { return a.rows <= 4 ? 1 : a.rows <= 8 ? 2 : 4; }
  template <class Use>
  static void with_row_blocks(const MatvecArgs& a, const Use& use) {
    if (a.rows <= 4) return use.template operator()<1>();
    if (a.rows <= 8) return use.template operator()<2>();
    use.template operator()<4>();
  }
  static uint32_t block_bytes(const MatvecArgs& a, bool large) {
    return std::min(large ? kLargeBlockBytes : kSmallBlockBytes, a.most_block_bytes);
  }
  template <int T, bool kShared>
  static uint32_t stages(const MatvecArgs& a, uint32_t rows, bool large) {
    const MatvecLayout none = matvec_layout<F, T, kShared>(a.k, rows, 0);
    const uint32_t room = block_bytes(a, large);
    if (none.bytes >= room) return 0;
    return std::min(a.stages, (room - none.bytes) / (kMatvecWarps * (T * F::kSegmentBytes + 8)));
  }
  template <int T>
  static bool in_shared(const MatvecArgs& a, bool large) {
    return a.rows == 1 && stages<T, true>(a, 1, large) * kMatvecWarps * T * F::kSegmentBytes >= kLeastRingBytes;
  }
  template <int T, int N, bool kShared>
  static void run(MatvecArgs a, const MatvecPointers& p, bool large, const Launch& launch) {
    constexpr uint32_t kRows = kShared ? 1 : 4 * N;
    a.stages = stages<T, kShared>(a, kRows, large);
    launch(&matvec_kernel<F, T, N, kShared>,
           {.blocks = {std::min(a.blocks, a.map.tiles())},
            .threads = {kMatvecThreads},
            .shared_bytes = block_bytes(a, large)},
           a, p);
  }
};

}  // namespace tenon::cuda
