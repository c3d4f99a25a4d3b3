// The queries that a block of the prefill kernels takes.
#pragma once

#include "cuda_ops.h"

namespace tenon::flash {

// Up to kRows rows of one sequence. Example: sequences of 200 and 100 rows in tiles of 64 rows have 4 and 2 tiles; block 0
// takes the last 36 rows of the second sequence, block 5 the first 64 rows of the first one. So the blocks that start last
// have the shortest contexts of a sequence.
struct QueryTile {
  uint32_t slot = 0;
  uint32_t first_row = 0, rows = 0;  // of the step; rows is 0 for blocks after the last tile
  uint32_t position = 0;             // of the first row; those of the others follow

  template <uint32_t kRows>
  __device__ static QueryTile of(const GpuPointers& p, uint32_t block) {
    QueryTile t;
    uint32_t tiles = 0;
    const uint32_t seqs = p.live[kLiveSeqs];
    const auto tiles_of = [&](uint32_t s) {
      return p.seq_slot[s] < 0 ? 0u : (static_cast<uint32_t>(p.seq_row[s + 1] - p.seq_row[s]) + kRows - 1) / kRows;
    };
    for (uint32_t s = 0; s < seqs; ++s) tiles += tiles_of(s);
    if (block >= tiles) return t;
    uint32_t at = tiles - 1 - block, s = 0;
    for (uint32_t n = tiles_of(s); at >= n; n = tiles_of(++s)) at -= n;
    const auto begin = static_cast<uint32_t>(p.seq_row[s]), end = static_cast<uint32_t>(p.seq_row[s + 1]);
    t.slot = static_cast<uint32_t>(p.seq_slot[s]);
    t.first_row = begin + at * kRows;
    t.rows = min(kRows, end - t.first_row);
    t.position = static_cast<uint32_t>(p.pos[t.first_row]);
    return t;
  }
};
// Enough blocks for rows in any number of sequences.
inline uint32_t query_tiles(const GpuArgs& a, uint32_t rows_of_tile) {
  return (a.rows + rows_of_tile - 1) / rows_of_tile + a.seqs - 1;
}

}  // namespace tenon::flash
