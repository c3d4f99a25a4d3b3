// Routed products of packed weights: y[r] = epilogue(x[r] W_{expert[r]}^T), with the kernels of matvec.cuh. A store has
// the experts one after the other, each as a site of its own would have it.
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

// As Matvec. MatvecArgs::experts is set; there may be any number of rows.
template <PackedFormat F, int kTiles = 2>
class RoutedMatvec {
  using Dense = Matvec<F, kTiles>;

 public:
  static constexpr const char* kName = Dense::kName;
  // The classes of blocks that multiply x as it is: TENON_BLOCKS_*; 0: x has to be prepared in groups. The ops before, which
  // choose the experts, leave the multiprocessors to small blocks that would pile up in pairs (block_size.h): only large
  // ones lie one on each. That they are not overlapped with another large op costs little, since no weights are read
  // before the wait.
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
  static void multiply(const MatvecArgs& a, const MatvecPointers& p, bool large, const Launch& launch) {
    if (a.prepared != 0) return run<kTiles, kRowBlocks, false>(a, p, true, launch);
    if (Dense::template in_shared<kTiles>(one_row(a), large)) return run<kTiles, 1, true>(a, p, large, launch);
    run<1, 1, true>(a, p, large, launch);
  }
  static uint32_t groups(const MatvecArgs& a) { return ExpertGroups::most(a.rows, a.experts); }

 private:
  static constexpr int kRowBlocks = ExpertGroups::kRows / 4;

  static MatvecArgs one_row(MatvecArgs a) {
    a.rows = 1;
    return a;
  }
  // Rows, or groups of them, share the multiprocessors. Blocks for which there is none would have all others wait.
  template <int kOwnTiles, int kOwnRowBlocks, bool kShared>
  static void run(MatvecArgs a, const MatvecPointers& p, bool large, const Launch& launch) {
    const uint32_t sharers = kShared ? a.rows : groups(a);
    a.stages = Dense::template stages<kOwnTiles, kShared>(a, kShared ? 1 : 4 * kOwnRowBlocks, large);
    launch(&matvec_kernel<F, kOwnTiles, kOwnRowBlocks, kShared, true>,
           {.blocks = {std::clamp(a.blocks / sharers, 1U, a.map.tiles()), sharers},
            .threads = {kMatvecThreads},
            .shared_bytes = Dense::block_bytes(a, large)},
           a, p);
  }
};

}  // namespace tenon::cuda
