// This multiplies packed weights of few columns with up to 16 rows of x, as tile_gemm.cuh does, where each pair of blocks
// can have a panel of its own: four tiles, 64 columns. Each block multiplies half of K, and each of its warpgroups every
// other stage of that. Then they leave their sums in the shared memory of the block, of the two, that finishes the row,
// which adds up the four parts: bias and residual follow, and rows for a norm after the product.
//
// So nothing waits for device memory between the last product and y. Pairs that share a panel (tile_gemm.cuh) leave
// their sums there, and one of them finishes, long after the others are done.
#pragma once

#include "tenon/cuda/tile_gemm_finish.cuh"
#include "tenon/cuda/tile_gemm_turns.cuh"

namespace tenon::cuda {

inline constexpr int kClusterRows = 16;  // clusters multiply at most so many rows

namespace detail {

inline constexpr uint32_t kClusterTiles = 4;  // a panel has so many
inline constexpr uint32_t kClusterColumns = kClusterTiles * kTileRows;
static_assert(kClusterColumns == sdk::summed_columns(kClusterRows));  // so a block has whole sums of squares

// The sums that a block gets: [part of K][pair of rows][column][row of the pair] f32, and a barrier.
struct PartSumsLayout {
  static constexpr uint32_t kParts = kClusterBlocks * kPanelTiles / kClusterTiles;      // warpgroups of both blocks
  static constexpr uint32_t kRows = kClusterRows / kClusterBlocks, kPairs = kRows / 2;  // a block finishes so many rows
  static constexpr uint32_t kPairBytes = kClusterColumns * sizeof(float2), kPartBytes = kPairs * kPairBytes;
  static constexpr uint32_t kBarrier = kParts * kPartBytes, kBytes = kBarrier + 16;
};

// This is a block's share of the product: half of the stages of its cluster's panel.
template <PackedFormat F>
struct ClusterBlock {
  using Format = F;
  using Layout = TileGemmLayout<F, kClusterRows, PartSumsLayout::kBytes, kPanelTiles / kClusterTiles>;
  static constexpr int kRows = kClusterRows;
  static constexpr uint32_t kXReaders = 1, kStagesAtOnce = kPanelTiles / kClusterTiles;
  static constexpr uint32_t kXBytes = Layout::kXBytes, kWeightBytes = Layout::kWeightBytes;
  static constexpr uint32_t kTurns = kStageK<F> / TileGemmShape<kRows>::kTurnK;  // a stage of K has so many turns

  const MatvecArgs& a;
  const TileGemmPointers& p;
  static constexpr uint32_t band = 0;  // there is one
  uint32_t panel, rank;                // the rank in the cluster
  uint32_t tiles, segments, stages_of_panel;
  PreparedHalves halves;
  uint32_t first, last;  // stages
  uint32_t base, sums;   // shared memory begins here, and what is left in it
  RingBarriers<Layout::kWeightStages> of_weights;
  RingBarriers<Layout::kXStages> of_x;

  __device__ __forceinline__ ClusterBlock(const MatvecArgs& args, const TileGemmPointers& pointers,
                                          const uint8_t* memory)
      : a(args),
        p(pointers),
        panel(blockIdx.x / kClusterBlocks),
        rank(blockIdx.x % kClusterBlocks),
        tiles(a.map.tiles()),
        segments(segments_of<F>(a.k)),
        stages_of_panel(stages_of<F>(a.k)),
        halves(prepared_halves<F>(a.k, kRows, 1)),
        first(rank * stages_of_panel / kClusterBlocks),
        last((rank + 1) * stages_of_panel / kClusterBlocks),
        base(shared_address(memory)),
        sums(base + Layout::kSums),
        of_weights{base + Layout::kBarriers},
        of_x{base + Layout::kBarriers + 16 * Layout::kWeightStages} {
    if (threadIdx.x == 0) {
      of_weights.init(kWeightFillers, kPanelTiles);
      of_x.init(1, kPanelTiles);
      all_left().init(1);
      all_left().arrive_expecting(PartSumsLayout::kBarrier);
      publish_barriers();
    }
    __syncthreads();
    this_cluster().arrive();
  }
  // Its phase ends when all parts have been left.
  __device__ __forceinline__ Barrier all_left() const { return Barrier(sums + PartSumsLayout::kBarrier); }
  __device__ __forceinline__ uint32_t x_writer() const { return rank; }
  __device__ __forceinline__ uint32_t part_of_panels() const { return panel; }
  static __device__ __forceinline__ uint32_t warpgroup_of(uint32_t warp) { return warp / kClusterTiles; }
  static __device__ __forceinline__ uint32_t x_of_warp(uint32_t warp) {
    return warpgroup_of(warp) * (kXBytes / kStagesAtOnce);
  }
  // A warp goes from stage to stage of the ring, which may have nothing for the second warpgroup at last.
  __device__ __forceinline__ uint32_t end_of_panel(uint32_t) const {
    return first + (last - first + 1 - warpgroup_of(warp_id())) / kStagesAtOnce * kStagesAtOnce;
  }
};

template <PackedFormat F>
class PartSums : PanelTurns<ClusterBlock<F>> {
  using Block = ClusterBlock<F>;
  using Turns = PanelTurns<Block>;
  using Shape = TileGemmShape<kClusterRows>;
  using Layout = PartSumsLayout;
  using Numbers = RowNumbers<kClusterRows>;
  using Turns::b_, Turns::sum_, Turns::warp_;

 public:
  // It is called after the wait.
  __device__ __forceinline__ PartSums(const Block& b, Numbers& numbers)
      : Turns(b), numbers_(b, numbers), shared_(numbers), live_(min(*b.p.live, b.a.rows)) {
    numbers_.prefetch();
  }
  // Multiplies the block's half, and leaves both blocks their rows.
  __device__ __forceinline__ void multiply() {
    Turns::multiply(b_.first);
    leave();
    numbers_.find(live_);
  }
  // Makes y of the sums of the block's rows. All threads that multiply call it.
  __device__ __forceinline__ void finish() const {
    static_assert(Shape::kMultiplying == Layout::kPairs * kClusterColumns);
    const uint32_t in_panel = threadIdx.x % kClusterColumns, pair = threadIdx.x / kClusterColumns;
    const uint32_t packed_row = b_.panel * kClusterColumns + in_panel, row = b_.rank * Layout::kRows + 2 * pair;
    const uint32_t column = b_.a.map.column(packed_row);
    const bool is_column = column != UINT32_MAX, live[2] = {is_column && row < live_, is_column && row + 1 < live_};
    float scale = 1, v[2] = {};
    if (is_column) {
      if constexpr (F::kRowScales) scale = b_.p.scales[packed_row];
      if (b_.p.bias != nullptr) v[0] = v[1] = b_.p.bias[column];
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      if (live[i] && b_.p.addend != nullptr) v[i] += b_.p.addend[(row + i) * b_.a.addend_stride + column];
    }
    named_sync(kSumBarrier, Shape::kMultiplying);  // the numbers of rows are there
    b_.all_left().wait(0);
    const float2 sum = sum_of_parts(pair, in_panel);
    const float sums[2] = {sum.x, sum.y};
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      v[i] = live[i] ? fmaf(sums[i], shared_.factor[row + i] * scale, v[i]) : 0;
      if (live[i]) b_.p.y[(row + i) * b_.a.y_stride + column] = v[i];
    }
    if (b_.a.normed != Tiled::kNo) leave_normed(row, column, is_column && live_ > 0, v);
  }

 private:
  // A lane has two rows of each eight, of packed rows g and g + 8. A block finishes eight rows.
  __device__ __forceinline__ void leave() const {
    static_assert(Layout::kRows == 8);
    const uint32_t lane = lane_id(), part = b_.rank * (kPanelTiles / kClusterTiles) + Block::warpgroup_of(warp_);
    const uint32_t own = b_.sums + part * Layout::kPartBytes + lane % 4 * Layout::kPairBytes +
                         (warp_ % kClusterTiles * kTileRows + lane / 4) * sizeof(float2);
#pragma unroll
    for (uint32_t to = 0; to < kClusterBlocks; ++to) {
      const uint32_t barrier = b_.all_left().in_cluster(to), place = address_in_cluster(own, to);
      Barrier::store_in_cluster(barrier, place, {sum_[4 * to], sum_[4 * to + 1]});
      Barrier::store_in_cluster(barrier, place + 8 * sizeof(float2), {sum_[4 * to + 2], sum_[4 * to + 3]});
    }
  }
  __device__ __forceinline__ float2 sum_of_parts(uint32_t pair, uint32_t in_panel) const {
    const uint32_t at = b_.sums + pair * Layout::kPairBytes + in_panel * sizeof(float2);
    float2 sum{};
#pragma unroll
    for (uint32_t part = 0; part < Layout::kParts; ++part) {
      const uint2 bits = load_shared_8(at + part * Layout::kPartBytes);
      sum.x += __uint_as_float(bits.x);
      sum.y += __uint_as_float(bits.y);
    }
    return sum;
  }
  // Leaves a column of two rows of y for the norm after the product, and the sum of the squares of the panel's columns.
  // Two lanes that have neighbouring columns exchange what they have of each other's row: a word has both columns.
  __device__ __forceinline__ void leave_normed(uint32_t row, uint32_t column, bool stores, const float (&v)[2]) const {
    using H = typename F::Half;
    const bool odd = lane_id() % 2 != 0;
    const uint32_t octet = column / 32 * 4 + column % 8 / 2, columns = b_.a.map.columns;
    const TiledRows rows(b_.p.normed, b_.a.rows, columns + sdk::number_columns(columns, kClusterRows));
    const float weight = stores ? octet_scale(b_.a.normed, octet) * b_.p.normed_weights[column] : 0;
    const float first = saturated<H>(v[0] * weight * numbers_.scale(row)),
                second = saturated<H>(v[1] * weight * numbers_.scale(row + 1));
    const uint32_t word = exchanged_halves<H>(first, second, odd, 1);
    if (stores) *reinterpret_cast<uint32_t*>(rows.at(row + (odd ? 1 : 0), octet) + column % 32 / 8 * 4) = word;

    constexpr uint32_t kWarps = kClusterColumns / 32;  // they have a row
    const float squares[2] = {warp_sum(v[0] * v[0]), warp_sum(v[1] * v[1])};
    if (lane_id() == 0) {
      shared_.square[warp_][0] = squares[0];
      shared_.square[warp_][1] = squares[1];
    }
    named_sync(kSumBarrier, Shape::kMultiplying);
    const uint32_t i = threadIdx.x % kClusterColumns, own = row + i, all = columns / kClusterColumns;
    if (i < 2 && own < live_ && b_.panel < all) {
      float square = 0;
      for (uint32_t w = 0; w < kWarps; ++w) square += shared_.square[warp_ + w][i];
      *rows.number(own, columns, b_.panel) = square;
      if (b_.panel == 0) *rows.number(own, columns, all) = 1 / numbers_.scale(own);
    }
  }

  const NumbersOfRows<Block> numbers_;
  Numbers& shared_;
  uint32_t live_;
};

}  // namespace detail

template <PackedFormat F>
__global__ void __launch_bounds__(detail::TileGemmShape<kClusterRows>::kThreads, 1)
    cluster_gemm_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ TileGemmPointers p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ detail::RowNumbers<kClusterRows> numbers;
  trigger();
  make_table<F>();
  const detail::ClusterBlock<F> block(a, p, memory);
  const uint32_t warp = warp_id();
  using Shape = detail::TileGemmShape<kClusterRows>;
  if (warp >= detail::kPanelTiles) {
    detail::fill_rings(block, warp);
  } else {
    this_cluster().wait();
    wait();
    detail::PartSums<F> sums(block, numbers);
    sums.multiply();
    sums.finish();
  }
#endif
}

}  // namespace tenon::cuda
