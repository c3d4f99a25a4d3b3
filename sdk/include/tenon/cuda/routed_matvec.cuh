// This does routed products of packed weights: y[r] = epilogue(x[r] W_{expert[r]}^T), with the kernels of matvec.cuh. A
// store has the experts one after the other, each as a site of its own would have it.
//
// Up to 16 rows are multiplied one by one, each by its share of the blocks, which read the matrices of the row's expert
// and no others. More rows are prepared in groups of up to 16 that share an expert (expert_groups.cuh), whose matrices
// are then read once a group. A row has the same bits either way. Neither reads weights before the wait.
//
// Their naive twin is the dense reference of tests/conformance/routed_test.cc.
#pragma once

#include <algorithm>

#include "tenon/cuda/matvec.cuh"

namespace tenon::cuda {

// It has the members of Matvec. MatvecArgs::experts is set, and there may be any number of rows.
template <PackedFormat F, int kTiles = 2>
class RoutedMatvec {
  using Dense = Matvec<F, kTiles>;

 public:
  static constexpr const char* kName = Dense::kName;
  // Returns the classes of blocks that multiply x as it is: TENON_BLOCKS_*; 0: x has to be prepared in groups. Only
  // large blocks do: their rings, filled after the wait, are deeper, and they lie one on each multiprocessor, where
  // small ones could lie in pairs after ops of few blocks (block_size.h), such as those that choose the experts.
  static uint32_t direct_classes(const MatvecArgs& a) {
    return a.rows > kMatvecRows ? 0 : Dense::direct_classes(one_row(a)) & TENON_BLOCKS_LARGE;
  }
  static uint32_t prepared_classes(const MatvecArgs& a) { return Dense::prepared_classes(a); }
  static uint64_t scratch_bytes(const MatvecArgs&) { return 0; }
  static uint64_t zeroed_bytes(const MatvecArgs&) { return 0; }
  static uint64_t prepared_bytes(const MatvecArgs& a) { return groups(a) * PreparedRows<F>(a.k, kRowBlocks).bytes(); }
  static void prepare(const MatvecArgs& a, const MatvecPointers& p, const Launch& launch) {
    launch(&prepare_rows_kernel<F, kRowBlocks, true>,
           {.blocks = {ExpertGroups::kRows, groups(a)},
            .threads = {kMatvecThreads},
            .shared_bytes = 4 * PreparedRows<F>(a.k, 1).padded},
           a, p);
  }
  static void multiply(const MatvecArgs& a, const MatvecPointers& p, BlockSize size, const Launch& launch) {
    constexpr Variant kPrepared{.tiles = kTiles, .row_blocks = kRowBlocks, .shared = false, .routed = true},
        kTogether{.tiles = kTiles, .row_blocks = 1, .shared = true, .routed = true},
        kOneByOne{.tiles = 1, .row_blocks = 1, .shared = true, .routed = true};
    if (a.prepared != 0) return run<kPrepared>(a, p, BlockSize::kLarge, launch);
    if (Dense::template in_shared<kTiles>(one_row(a), size)) return run<kTogether>(a, p, size, launch);
    run<kOneByOne>(a, p, size, launch);
  }
  static uint32_t groups(const MatvecArgs& a) { return ExpertGroups::most(a.rows, a.experts); }

 private:
  using Variant = detail::MatvecVariant;
  static constexpr int kRowBlocks = ExpertGroups::kRows / 4;

  static MatvecArgs one_row(MatvecArgs a) {
    a.rows = 1;
    return a;
  }
  // Rows share the multiprocessors: a block more than there are of these would have all others wait. Groups get
  // kTurns blocks a multiprocessor, one after the other, since only the GPU knows how many groups have rows.
  // Example: 512 rows of 2 of 8 experts have room for 73 groups, of which some 68 have rows: one block each
  // would leave 64 of 132 multiprocessors empty.
  static constexpr uint32_t kTurns = 4;
  template <Variant kVariant>
  static void run(MatvecArgs a, const MatvecPointers& p, BlockSize size, const Launch& launch) {
    constexpr bool kShared = kVariant.shared;
    const uint32_t sharers = kShared ? a.rows : groups(a);
    const uint32_t blocks = kShared ? a.blocks / sharers : (kTurns * a.blocks + sharers - 1) / sharers;
    a.stages = Dense::template stages<kVariant.tiles, kShared>(a, kShared ? 1 : 4 * kVariant.row_blocks, size);
    launch(&matvec_kernel<F, kVariant.code()>,
           {.blocks = {std::clamp(blocks, 1U, a.map.tiles()), sharers},
            .threads = {kMatvecThreads},
            .shared_bytes = Dense::block_bytes(a, size)},
           a, p);
  }
};

}  // namespace tenon::cuda
