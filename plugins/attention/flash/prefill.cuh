// A block of the prefill kernels takes these queries.
#pragma once

#include "cuda_ops.h"
#include "head.cuh"

namespace tenon::flash {

// A query tile is up to kRows rows of one sequence. Example: sequences of 200 and 100 rows in tiles of 64 rows have 4
// and 2 tiles; block 0 takes the last 36 rows of the second sequence, block 5 the first 64 rows of the first one. So
// the blocks that start last have the shortest contexts of a sequence.
struct QueryTile {
  uint32_t slot = 0;
  uint32_t first_row = 0, rows = 0;  // rows is 0 for blocks after the last tile
  uint32_t position = 0;             // the first row's; the others follow
  uint32_t end = 0;                  // no row sees a position from there on

  // Says whether there is nothing that any row sees.
  __device__ bool is_empty(const GpuArgs& a) const { return rows == 0 || end <= a.first(position); }

  // Returns the tile of a block; whole warps call it.
  template <uint32_t kRows>
  __device__ static QueryTile of(const GpuArgs& a, const GpuPointers& p, uint32_t block, uint32_t head) {
    constexpr uint32_t kLanes = 32;
    const uint32_t seqs = p.live[kLiveSeqs], lane = threadIdx.x % kLanes;
    const auto tiles_of = [&](uint32_t s) {
      if (s >= seqs || p.seq_slot[s] < 0) return 0u;
      const auto rows = static_cast<uint32_t>(p.seq_row[s + 1] - p.seq_row[s]);
      return rows <= a.few_rows ? 0u : (rows + kRows - 1) / kRows;
    };
    QueryTile t;
    uint32_t tiles = 0;
    for (uint32_t s = lane; s < seqs; s += kLanes) tiles += tiles_of(s);
    tiles = __reduce_add_sync(~0u, tiles);
    if (block >= tiles) return t;

    // The wanted tile is the `at`-th of this sequence's.
    uint32_t at = tiles - 1 - block, s = 0;
    for (uint32_t found = 0; found == 0; s += kLanes) {
      const uint32_t own = tiles_of(s + lane);
      uint32_t through = own;  // this lane's sequence and those before it have so many tiles
      for (uint32_t d = 1; d < kLanes; d *= 2) {
        const uint32_t before = __shfl_up_sync(~0u, through, d);
        if (lane >= d) through += before;
      }
      found = __ballot_sync(~0u, at < through);
      const uint32_t its = found != 0 ? static_cast<uint32_t>(__ffs(static_cast<int>(found))) - 1 : kLanes - 1;
      at -= __shfl_sync(~0u, found != 0 ? through - own : through, static_cast<int>(its));
      if (found != 0) s += its - kLanes;
    }
    const auto begin = static_cast<uint32_t>(p.seq_row[s]), end = static_cast<uint32_t>(p.seq_row[s + 1]);
    t.slot = static_cast<uint32_t>(p.seq_slot[s]);
    t.first_row = begin + at * kRows;
    t.rows = min(kRows, end - t.first_row);
    t.position = static_cast<uint32_t>(p.pos[head / a.group * a.copied_rows + t.first_row]);
    t.end = a.past(t.position + t.rows - 1);
    return t;
  }
};
// Returns enough blocks for rows in any number of sequences.
inline uint32_t query_tiles(const GpuArgs& a, uint32_t rows_of_tile) {
  const uint32_t seqs = std::min(a.seqs, a.rows / (a.few_rows + 1));
  return (a.rows + rows_of_tile - 1) / rows_of_tile + seqs - 1;
}

}  // namespace tenon::flash
