// What the prefill kernels share: which queries a block takes.
#pragma once

#include "cuda_ops.h"

namespace tenon::flash {

// Up to kRows rows of one sequence. Blocks are counted from the longest contexts down, so that the last ones to start
// are short; `rows` is 0 for blocks beyond.
struct QueryTile {
  uint32_t slot = 0, first_row = 0, rows = 0;
  uint32_t position = 0;  // of the first row; the others follow

  template <uint32_t kRows>
  __device__ static QueryTile of(const GpuPointers& p, uint32_t block) {
    QueryTile t;
    uint32_t tiles = 0;
    const uint32_t seqs = p.live[1];
    const auto tiles_of = [&](uint32_t s) {
      return p.seq_slot[s] < 0 ? 0u : (static_cast<uint32_t>(p.seq_row[s + 1] - p.seq_row[s]) + kRows - 1) / kRows;
    };
    for (uint32_t s = 0; s < seqs; ++s) tiles += tiles_of(s);
    if (block >= tiles) return t;
    uint32_t at = tiles - 1 - block, s = 0;
    for (uint32_t n = tiles_of(s); at >= n; n = tiles_of(++s)) at -= n;
    const auto begin = static_cast<uint32_t>(p.seq_row[s]), end = static_cast<uint32_t>(p.seq_row[s + 1]);
    t.slot = static_cast<uint32_t>(p.seq_slot[s]);
    t.first_row = begin + at * kRows, t.rows = min(kRows, end - t.first_row);
    t.position = static_cast<uint32_t>(p.pos[t.first_row]);
    return t;
  }
};
// Enough blocks for rows in any number of sequences.
inline uint32_t query_tiles(const GpuArgs& a, uint32_t rows_of_tile) {
  return (a.rows + rows_of_tile - 1) / rows_of_tile + a.seqs - 1;
}

}  // namespace tenon::flash
