// A block of the prefill kernels takes these queries.
#pragma once

#include "cuda_ops.h"
#include "head.cuh"

namespace tenon::flash {

// A query tile is up to kRows rows of one sequence. Example: sequences of 200 and 100 rows in tiles of 64 rows have 4
// and 2 tiles; tile 0 has the last 36 rows of the second sequence, tile 5 the first 64 rows of the first one. So the
// blocks that start last have the shortest contexts of a sequence.
struct QueryTile {
  uint32_t slot;
  uint32_t first_row, rows;  // rows is 0 after the last tile
  uint32_t position;         // the first row's; the others follow
  uint32_t end;              // no row sees a position from there on

  // Says whether there is nothing that any row sees.
  __device__ bool is_empty(const GpuArgs& a) const { return rows == 0 || end <= a.first(position); }

  // Says whether a row of the tile is read by anybody.
  __device__ bool is_wanted(const GpuPointers& p) const {
    if (p.out_row == nullptr) return true;
    uint32_t begin = 0, end = p.live[kLiveOutRows];  // the first out row that is none before the tile is within these
    while (begin < end) {
      const uint32_t middle = (begin + end) / 2;
      if (static_cast<uint32_t>(p.out_row[middle]) < first_row) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin < p.live[kLiveOutRows] && static_cast<uint32_t>(p.out_row[begin]) < first_row + rows;
  }

  // Returns the tile of that number.
  template <uint32_t kRows>
  __device__ static QueryTile of(const GpuArgs& a, const GpuPointers& p, uint32_t number, uint32_t head) {
    QueryTile t{};
    if (a.tile_rows != 0) {
      if (number >= static_cast<uint32_t>(p.tiles[0].x)) return t;
      const int4 listed = p.tiles[1 + number];
      t.slot = static_cast<uint32_t>(listed.x);
      t.first_row = static_cast<uint32_t>(listed.y);
      t.rows = static_cast<uint32_t>(listed.z);
    } else {
      const int32_t slot = p.live[kLiveSeqs] != 0 ? p.seq_slot[0] : -1;
      const auto begin = static_cast<uint32_t>(p.seq_row[0]), end = static_cast<uint32_t>(p.seq_row[1]);
      const uint32_t tiles = (end - begin + kRows - 1) / kRows;
      if (slot < 0 || number >= tiles) return t;
      t.slot = static_cast<uint32_t>(slot);
      t.first_row = begin + (tiles - 1 - number) * kRows;
      t.rows = min(kRows, end - t.first_row);
    }
    t.position = static_cast<uint32_t>(p.pos[head / a.group * a.copied_rows + t.first_row]);
    t.end = a.past(t.position + t.rows - 1);
    return t;
  }
  // Returns the first tile that has something to see and is wanted, of that number or as many further on as there are
  // blocks; number becomes its own. rows is 0 if there is none.
  template <uint32_t kRows>
  __device__ static QueryTile next(const GpuArgs& a, const GpuPointers& p, uint32_t& number) {
    while (true) {
      const QueryTile t = of<kRows>(a, p, number, blockIdx.x);
      if (t.rows == 0 || (!t.is_empty(a) && t.is_wanted(p))) return t;
      number += gridDim.y;
    }
  }
};

// One warp lists the tiles of all sequences that prefill does not pass over: how many there are; then of each the slot,
// the first row, and how many rows.
__device__ inline void list_tiles(const GpuArgs& a, const GpuPointers& p) {
  constexpr uint32_t kLanes = 32;
  const uint32_t seqs = p.live[kLiveSeqs], lane = threadIdx.x % kLanes;
  const auto rows_of = [&](uint32_t s) {
    if (s >= seqs || p.seq_slot[s] < 0) return 0u;
    const auto rows = static_cast<uint32_t>(p.seq_row[s + 1] - p.seq_row[s]);
    return rows <= a.few_rows ? 0u : rows;
  };
  const auto tiles_of = [&](uint32_t rows) { return (rows + a.tile_rows - 1) / a.tile_rows; };
  uint32_t all = 0;
  for (uint32_t s = lane; s < seqs; s += kLanes) all += tiles_of(rows_of(s));
  all = __reduce_add_sync(~0u, all);
  if (lane == 0) p.tiles[0] = make_int4(static_cast<int32_t>(all), 0, 0, 0);
  uint32_t left = all;  // this lane's sequence, those of other lanes after it and later ones have so many
  for (uint32_t first = 0; first < seqs; first += kLanes) {
    const uint32_t rows = rows_of(first + lane), own = tiles_of(rows);
    uint32_t through = own;
    for (uint32_t d = 1; d < kLanes; d *= 2) {
      const uint32_t before = __shfl_up_sync(~0u, through, d);
      if (lane >= d) through += before;
    }
    for (uint32_t i = 0; i < own; ++i) {
      const uint32_t number = left - through + own - 1 - i, begin = i * a.tile_rows;
      p.tiles[1 + number] = make_int4(p.seq_slot[first + lane], p.seq_row[first + lane] + static_cast<int32_t>(begin),
                                      static_cast<int32_t>(min(a.tile_rows, rows - begin)), 0);
    }
    left -= __shfl_sync(~0u, through, kLanes - 1);
  }
}

// Returns how many tiles there may be, of rows in any number of sequences.
inline uint32_t most_tiles(const GpuArgs& a, uint32_t rows_of_tile) {
  const uint32_t seqs = std::min(a.seqs, a.rows / (a.few_rows + 1));
  return (a.rows + rows_of_tile - 1) / rows_of_tile + seqs - 1;
}
// Returns how many blocks take the tiles of a query head, in turn. Where there may be many sequences, mostly a few of
// them have nearly all rows, and a block without a tile takes longer to come and go than to find the next tile.
inline uint32_t tile_blocks(const GpuArgs& a, uint32_t rows_of_tile) {
  constexpr uint32_t kSpare = 4;
  const uint32_t full = (a.rows + rows_of_tile - 1) / rows_of_tile;
  return std::min(most_tiles(a, rows_of_tile), full + full / 4 + kSpare);
}

}  // namespace tenon::flash
