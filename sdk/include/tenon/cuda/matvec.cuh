// This multiplies packed weights (packed.cuh) by 1 to 16 rows of x at the speed of memory, with RMSNorm before, and
// bias, SiLU-multiply and residual after. The naive twin is Site::exact() of tests/cuda/gemv_test.cu, three loops in
// f64; unpack.cuh makes plain numbers of the same weights.
//
// A block has an equal share of the tiles and takes them kTiles at a time: a tile pair, or one tile
// where shared memory is short. Of a pair, segment s along K belongs to warp s % 16, which
// multiplies that segment of both tiles. The phases:
//
//   prime       each warp fills its ring with weights, before the wait: they do not depend on the step
//   prepare x   each warp prepares the k that it will multiply (row_prologue.cuh)
//   multiply    a segment from the ring, times x; the stage is filled again
//   reduce      the 16 warps' sums of a pair meet in shared memory
//   write       a thread adds up the 16 sums of an output and does the epilogue; warps without outputs go on meanwhile
//
// So a row's result depends neither on the other rows, nor on how tiles are paired or shared out. Digits give a single
// row other bits than pairs do.
//
// One row of x lies in shared memory (kShared), as halves in pairs or as digits (formats.cuh); several are prepared by
// a kernel before, in the order of fragments, and are read from L2. Unpaired (kPaired false, formats.cuh), 8 rows cost
// little more than 4 pairs, but have other bits.
//
// Example: K = 4096 and 4096 columns in Int4Format<64> on 132 multiprocessors. There are 256 tiles of 32 segments of
// 128 k; a block has 1 or 2 tiles. Warp 3 multiplies segments 3 and 19 of a tile pair. A stage has 2 * 1152 bytes, so
// 94 KB hold two stages a warp beside the row of x (16 KB).
#pragma once

#include <algorithm>

#include "tenon/cuda/block_size.h"
#include "tenon/cuda/matvec_phases.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda {

// More than 4 rows take the registers of two blocks. The phases are those of
// matvec_phases.cuh; the inner loop stands here.
template <PackedFormat F, uint32_t kVariantCode>
__global__ void __launch_bounds__(kMatvecThreads, detail::MatvecVariant::of(kVariantCode).row_blocks == 1 ? 2 : 1)
    matvec_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ MatvecPointers p) {
  using S = detail::MatvecShape<F, detail::MatvecVariant::of(kVariantCode)>;
  constexpr int kTiles = S::kTiles;
  extern __shared__ __align__(128) uint8_t memory[];
  trigger();

  // ---- prime the ring, before the wait ----
  const detail::MatvecBlock<S> block(a, p, memory);
  typename S::Feed feed = block.make_feed();
  if constexpr (!S::kRouted) feed.prime(p.weights, a.stages);
  uint8_t* const x_memory = memory + block.at.x;
  const RowSource source = block.x_source();
  detail::keep_constants<S>(block, source, x_memory);
  wait();

  // ---- choose the matrices ----
  const typename S::Rows block_rows(p);
  detail::BlockMatrices matrices{p.weights, p.scales, block.segments};
  if (!detail::choose_matrices<S>(block, block_rows, feed, matrices)) return;

  // ---- prepare x: (kRows, k) ----
  auto* partials = reinterpret_cast<float*>(memory + block.at.partials);  // [pair % 2][warp][kOutputs]
  auto* squares = reinterpret_cast<float*>(memory + block.at.squares);    // [warp]
  ShareSums share;
  const PreparedRows<F> rows(a.k, S::kRowBlocks, S::kPaired);
  const uint8_t* prepared = S::kRouted && !S::kShared ? p.prepared + blockIdx.y * rows.bytes() : p.prepared;
  typename S::X x = detail::prepare_x<S>(block, {source, x_memory, prepared, rows}, share);
  const detail::LiveOutputs<S> outputs{block_rows, block.last, min(*p.live, a.rows)};
  float factor = 1;  // the norm's, for the thread's output
  uint32_t pair = 0;
  for (uint32_t tile = block.first; tile < block.last; tile += kTiles, ++pair) {
    detail::OutputTerms terms;
    if (const typename S::Output o(pair, tile); outputs.has(o)) {
      terms = detail::load_terms<F>(a, p, matrices.scales, o.packed_row, block_rows[o.row]);
      if (!S::kShared && p.norm != nullptr) factor = reinterpret_cast<const float*>(prepared + rows.factors())[o.row];
    }
    typename S::Sums acc = {};  // multiply: the warp's k of (kTiles * 16 rows of weights, k) x (k, kRows)
    for (uint32_t s = block.warp; s < matrices.segments; s += kMatvecWarps) {
      x.seek(s);
      uint32_t segment[kTiles] = {feed.front()};  // by tile: addresses in shared memory
      if (kTiles == 2) segment[kTiles - 1] = segment[0] + (kTiles - 1) * F::kSegmentBytes;
      tile + kTiles <= block.last ? F::template multiply<kTiles>(acc, segment, x)
                                  : F::template multiply<1>(acc, segment, x);
      __syncwarp();
      feed.refill(matrices.weights);
    }
    detail::reduce<S>(block, pair, {partials, squares, prepared, rows}, share, acc);
    if (S::kShared && pair == 0 && p.norm != nullptr) factor = norm_factor(squares, a.k, a.eps);
    if (const detail::PairPlaces<S> places(block); places.writes(pair)) {
      const typename S::Output o(pair, tile);
      float sum = detail::sum_of_pair<S>(partials, pair, o);
      places.take(pair);
      if (S::kRouted && matrices.segments == 0)
        sum = 0;  // there is no expert; formats add the sum of x, which is not 0
      detail::write<S>(a, p, o, sum * factor * terms.scale + terms.addend, outputs);
    }
  }
}

// A block prepares a row.
template <PackedFormat F, int kRowBlocks, bool kRouted = false, bool kPaired = true>
__global__ void __launch_bounds__(kMatvecThreads)
    prepare_rows_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ MatvecPointers p) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ float squares[kMatvecWarps];
  const PreparedRows<F> rows(a.k, kRowBlocks, kPaired);
  const uint32_t row = blockIdx.x, warp = threadIdx.x / 32;
  RowSource source{p.x + row * a.x_stride, p.norm, a.k, segments_of<F>(a.k), kRouted ? nullptr : p.order};
  if (p.norm != nullptr) keep_norm<F>(source, warp, memory);
  wait();

  uint8_t* prepared = p.prepared;
  if constexpr (kRouted) {
    const uint32_t from = BlockRows<true, false>(p)[row];
    if (from >= min(*p.live, a.rows)) return;
    source.x = p.x + from * a.x_stride;
    prepared += blockIdx.y * rows.bytes();
  }
  ShareSums share =
      prepare_share<F>(source, warp, memory, detail::PreparedRowSink<F, kRowBlocks, kPaired>{prepared, rows, row});
  share.total = warp_sum(share.total);
  share.square = warp_sum(share.square);
  if (lane_id() == 0) {
    auto* info = reinterpret_cast<RowInfo*>(prepared + rows.info());  // [row][warp]
    info[row * kMatvecWarps + warp] = {share.unscale, share.total};
    squares[warp] = share.square;
  }
  __syncthreads();
  if (threadIdx.x == 0 && p.norm != nullptr) {
    reinterpret_cast<float*>(prepared + rows.factors())[row] = norm_factor(squares, a.k, a.eps);
  }
}

// More rows are multiplied unpaired, unless in f32.
inline constexpr uint32_t kPairedRows = 8;

// This launches a product. kTiles: tiles that a warp multiplies together.
template <PackedFormat F, int kTiles = 2>
class Matvec {
  template <PackedFormat, int>
  friend class RoutedMatvec;

 public:
  static constexpr const char* kName = "gemv";
  // Returns the classes of blocks (TENON_BLOCKS_*) that multiply x as it is; 0: x has to be prepared.
  static uint32_t direct_classes(const MatvecArgs& a) {
    return (in_shared<1>(a, BlockSize::kSmall) ? TENON_BLOCKS_SMALL : 0) |
           (in_shared<1>(a, BlockSize::kLarge) ? TENON_BLOCKS_LARGE : 0);
  }
  // Returns the class of those that multiply prepared x.
  static uint32_t prepared_classes(const MatvecArgs&) { return TENON_BLOCKS_LARGE; }
  static uint64_t prepared_bytes(const MatvecArgs& a) {
    uint64_t bytes = 0;
    with_row_blocks(a,
                    [&]<int kRowBlocks, bool kPaired>() { bytes = PreparedRows<F>(a.k, kRowBlocks, kPaired).bytes(); });
    return bytes;
  }
  static uint64_t scratch_bytes(const MatvecArgs&) { return 0; }
  static uint64_t zeroed_bytes(const MatvecArgs&) { return 0; }
  // Makes MatvecPointers::prepared from x, with small blocks.
  static void prepare(const MatvecArgs& a, const MatvecPointers& p, const Launch& launch) {
    const auto run = [&](auto kernel) {
      const uint32_t padded = PreparedRows<F>(a.k, 1).padded;
      launch(kernel, {.blocks = {a.rows}, .threads = {kMatvecThreads}, .shared_bytes = 4 * padded}, a, p);
    };
    with_row_blocks(a,
                    [&]<int kRowBlocks, bool kPaired>() { run(&prepare_rows_kernel<F, kRowBlocks, false, kPaired>); });
  }
  // Prepared x is multiplied by large blocks: the partial sums of several rows
  // leave small ones too little for the ring.
  static void multiply(const MatvecArgs& a, const MatvecPointers& p, BlockSize size, const Launch& launch) {
    if (a.prepared != 0) {
      return with_row_blocks(a, [&]<int kRowBlocks, bool kPaired>() {
        constexpr Variant kVariant{.tiles = kTiles, .row_blocks = kRowBlocks, .shared = false, .paired = kPaired};
        run<kVariant>(a, p, BlockSize::kLarge, launch);
      });
    }
    if constexpr (kTakesOrder<F>) {
      if (p.order != nullptr) return multiply_one<true>(a, p, size, launch);
    }
    multiply_one<false>(a, p, size, launch);
  }

 private:
  using Variant = detail::MatvecVariant;

  template <bool kOrdered>
  static void multiply_one(const MatvecArgs& a, const MatvecPointers& p, BlockSize size, const Launch& launch) {
    if constexpr (kTakesDigits<F>) {
      if (a.digits != 0) return multiply_one_as<true, kOrdered>(a, p, size, launch);
    }
    multiply_one_as<false, kOrdered>(a, p, size, launch);
  }
  template <bool kDigits, bool kOrdered>
  static void multiply_one_as(const MatvecArgs& a, const MatvecPointers& p, BlockSize size, const Launch& launch) {
    constexpr Variant kTogether{
        .tiles = kTiles, .row_blocks = 1, .shared = true, .digits = kDigits, .ordered = kOrdered},
        kOneByOne{.tiles = 1, .row_blocks = 1, .shared = true, .digits = kDigits, .ordered = kOrdered};
    if (in_shared<kTiles>(a, size)) return run<kTogether>(a, p, size, launch);
    run<kOneByOne>(a, p, size, launch);
  }

  // A ring of one stage brings nothing while a pair of tiles is multiplied; stages of single tiles often leave less room
  // unused. Weights of fewer bits take longer to unpack than to come, so that they are multiplied in pairs even so.
  static constexpr bool kPairNeedsTwoStages = F::kSegmentBytes >= kTileRows * F::kSegmentK * 6 / 8;
  // Beside a table a single tile makes do with two stages, since to prepare x before would cost more.
  template <int kOwnTiles>
  static constexpr uint32_t kLeastRingBytes =
      kMatvecWarps * (kOwnTiles == 1 && kMatvecTableBytes<F> != 0 ? 2 : 3) * 1024;

  template <class Use>
  static void with_row_blocks(const MatvecArgs& a, const Use& use) {
    if constexpr (!std::is_void_v<typename F::Half>) {
      if (a.rows > kPairedRows) return use.template operator()<2, false>();
      if (a.unpaired != 0) return use.template operator()<1, false>();
    }
    if (a.rows <= 4) return use.template operator()<1, true>();
    if (a.rows <= kPairedRows) return use.template operator()<2, true>();
    if constexpr (std::is_void_v<typename F::Half>) use.template operator()<4, true>();
  }
  // These are dynamic; a table comes besides, unless x is digits.
  static uint32_t block_bytes(const MatvecArgs& a, BlockSize size) {
    const bool digits = kTakesDigits<F> && a.digits != 0 && a.prepared == 0;
    return std::min(size == BlockSize::kLarge ? kLargeBlockBytes : kSmallBlockBytes, a.most_block_bytes) -
           (digits ? 0 : kMatvecTableBytes<F>);
  }
  // Returns for how many stages of a ring a block has room. `rows` is as matvec_layout() has it.
  template <int kOwnTiles, bool kShared>
  static uint32_t stages(const MatvecArgs& a, uint32_t rows, BlockSize size) {
    const MatvecLayout none = matvec_layout<F, kOwnTiles, kShared>(a.k, rows, 0);
    const uint32_t room = block_bytes(a, size);
    if (none.bytes >= room) return 0;
    return std::min(a.stages, (room - none.bytes) / (kMatvecWarps * (kOwnTiles * F::kSegmentBytes + Barrier::kBytes)));
  }
  template <int kOwnTiles>
  static bool in_shared(const MatvecArgs& a, BlockSize size) {
    const uint32_t ring = stages<kOwnTiles, true>(a, 1, size);
    return a.rows == 1 && (kOwnTiles == 1 || !kPairNeedsTwoStages || ring >= 2) &&
           ring * kMatvecWarps * kOwnTiles * F::kSegmentBytes >= kLeastRingBytes<kOwnTiles>;
  }
  template <Variant kVariant>
  static void run(MatvecArgs a, const MatvecPointers& p, BlockSize size, const Launch& launch) {
    const uint32_t rows = kVariant.shared ? 1 : (kVariant.paired ? 4 : 8) * kVariant.row_blocks;
    a.stages = stages<kVariant.tiles, kVariant.shared>(a, rows, size);
    launch(&matvec_kernel<F, kVariant.code()>,
           {.blocks = {std::min(a.blocks, a.map.tiles())},
            .threads = {kMatvecThreads},
            .shared_bytes = block_bytes(a, size)},
           a, p);
  }
};

}  // namespace tenon::cuda
