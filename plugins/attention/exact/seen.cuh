// A block of threads finds together what a row of a step sees of a KV view, whatever the view (tenon/abi/kv_cache.h
// says the rule). This file is a part of exact.cuh.
//
// Cells come in spots: under LINEAR and RING a spot is a position, under TABLE a cell. Spots come in chunks, each of
// which has sums of its own, whichever block makes them. Which chunk and which warp take a spot, and in which order,
// follows from the spot alone: a row's sums have the same bits alone, among others and in a tree of drafts.
#pragma once

#include <concepts>
#include <cstdint>

#include "../common/set_up.h"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/sdk/live.h"

namespace tenon::exact {

using attention::after_window;
using cuda::KvCells, cuda::KvLayout;

inline constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps;
inline constexpr uint32_t kAtOnce = 4;  // a warp takes so many spots together
inline constexpr uint32_t kTurn = kWarps * kAtOnce;
inline constexpr uint32_t kTableCells = 512;     // a table, by which a block finds the step's rows, has so many
inline constexpr uint32_t kMostTreeRows = 8192;  // a step with trees has at most so many: its path is in shared memory

// The bound of sequences is at least 1.
struct Args : attention::ViewArgs {
  uint32_t few_rows;            // only sequences of at most so many rows are attended to; 0: all are
  uint32_t chunk_spots;         // whole turns
  uint32_t most_chunks;         // a row sees spots of so many at most
  uint32_t splits;              // most_chunks blocks share a query head of a row, or 1 has it alone
  uint32_t first_row, end_row;  // the op is for these rows of the step

  // Returns where the scores of a query head of a row begin, (cells), in memory for those rows.
  __device__ size_t scores_at(uint32_t row, uint32_t head) const {
    return (size_t{row - first_row} * q_heads + head) * kv.capacity();
  }
};
struct Pointers {
  const float* q;
  float* out;
  void *keys, *values, *key_scales, *value_scales;
  const int32_t *pages, *place, *used, *table;
  const uint32_t* live;
  const int32_t *pos, *order, *slot, *parent, *kv_len, *seq_slot, *seq_row;
  const int32_t* chosen;      // (rows, KV heads, 1 + most_spans), if spans are chosen
  const float *rope, *sinks;  // sinks has (query heads), or is nullptr
  float* half_sums;           // (row, query head): of one half of a view with a tail
  float2* stats;              // by (row, query head): it has the maximum and the sum
  float *scores, *weights;    // where the cache wants softmax weights
};

// A warp takes these spots together: they have a cell and a position each, and the row sees some of them.
struct Spots {
  uint32_t cell[kAtOnce], position[kAtOnce];
  bool seen[kAtOnce];
};

// A block has this memory.
struct Shared {
  int32_t row_of[kTableCells];  // a cell is the place of this row of the step; -1: of none
  uint32_t end;                 // a table's cells from here on are not looked at
  int32_t base, straight;       // see Seen
};
struct SharedMemory {
  Shared& shared;
  int32_t* path;  // (rows) of a step that has trees
};

class Seen {
 public:
  // Every thread of the block makes it together.
  __device__ Seen(const Args& a, const Pointers& p, const SharedMemory& memory, uint32_t row, uint32_t kv_head)
      : a_(a),
        p_(p),
        shared_(memory.shared),
        path_(memory.path),
        head_(kv_head),
        row_(row),
        slot_(static_cast<uint32_t>(p.slot[row])),
        position_(p.pos[row]),
        base_(position_),
        straight_(static_cast<int32_t>(row)),
        kv_len_(p.kv_len[slot_]) {
    __syncthreads();
    if (a.trees != 0) walk();
    const auto n = static_cast<uint32_t>(position_);
    own_ = after_window(n, a.window);
    first_ = max(own_, after_window(n, a.kv.window));
    sinks_ = a.kv.window != 0 || a.kv.rule == TENON_POS_RING ? min(a.kv.sinks, n + 1) : 0;
    if (a.kv.rule == TENON_POS_RING) first_ = max(first_, oldest_of_ring(row));
    find_chunks();
  }

  __device__ uint32_t slot() const { return slot_; }
  __device__ uint32_t position() const { return static_cast<uint32_t>(position_); }
  __device__ uint32_t shift() const { return a_.kv.shift_at(position()); }
  // Returns the row of the rope's table for a key of that position.
  __device__ uint32_t index_of(uint32_t position) const {
    return position < a_.kv.sinks ? position : position - shift();
  }

  // The row sees spots of so many chunks at most.
  __device__ uint32_t chunks() const { return sink_chunks_ + later_chunks_; }
  // Calls f(Spots&) in each warp for its spots of the i-th chunk of which the row sees any. f may change them. The
  // whole block calls this.
  template <std::invocable<Spots&> F>
  __device__ void each(uint32_t i, F&& f) const {
    const uint32_t begin = (i < sink_chunks_ ? own_ / a_.chunk_spots + i : later_ + i - sink_chunks_) * a_.chunk_spots;
    const Stretch chunk{begin, begin + a_.chunk_spots};
    if (a_.kv.rule == TENON_POS_TABLE) return each_of_table(chunk, f);
    const auto spot = [&](uint32_t l, uint32_t& cell, uint32_t& position) {
      position = l;
      cell = cell_of(l);
      return true;
    };
    // f's code is long, so there is one call of range for all of them.
    const int32_t* list = chosen();
    const uint32_t ranges = 1 + (list != nullptr ? static_cast<uint32_t>(list[0]) : 1);
    uint32_t step = list != nullptr ? static_cast<uint32_t>(kv_len_) : max(first_, sinks_);
    for (uint32_t r = 0; r < ranges; ++r) {
      Stretch seen{max(own_, step), a_.past(position())};
      if (r + 1 < ranges) {
        seen = {own_, sinks_};
        if (list != nullptr) seen = old_cells(static_cast<uint32_t>(list[1 + r]), step);
      }
      range(seen.in(chunk), spot, f);
    }
  }
  template <std::invocable<Spots&> F>
  __device__ void each(F&& f) const {
    for (uint32_t i = 0; i < chunks(); ++i) each(i, f);
  }

 private:
  // These are spots [from, to).
  struct Stretch {
    uint32_t from, to;
    __device__ Stretch in(const Stretch& other) const { return {max(from, other.from), min(to, other.to)}; }
  };

  // Finds the chunks of spots [own, sinks), and those of the later ones that are no chunks of these.
  __device__ void find_chunks() {
    const auto past_chunk = [&](uint32_t spot) { return (spot + a_.chunk_spots - 1) / a_.chunk_spots; };
    uint32_t from = max(own_, max(first_, sinks_)), past = a_.past(position());
    if (a_.kv.rule == TENON_POS_TABLE) {
      from = 0;
      past = find_end_of_table();
    } else if (chosen() != nullptr) {
      from = own_;
    } else if (sinks_ > own_) {
      sink_chunks_ = past_chunk(sinks_) - own_ / a_.chunk_spots;
      from = max(from, past_chunk(sinks_) * a_.chunk_spots);
    }
    later_ = from / a_.chunk_spots;
    later_chunks_ = max(past_chunk(past), later_) - later_;
  }
  __device__ uint32_t place(int32_t row) const {
    return static_cast<uint32_t>(a_.kv.apart() ? p_.place[static_cast<uint32_t>(row) * a_.kv.heads + head_]
                                               : p_.place[row]);
  }
  // Walks from the row to its first ancestor whose order is its position: that one comes after all
  // rows before it, and its position is base, or that of the newest old cell. path[i] becomes the
  // row of the position i below the row's own.
  __device__ void walk() {
    if (threadIdx.x == 0) {
      int32_t i = straight_;
      // A parent is an earlier row, which ends the walk.
      for (int32_t before = i + 1; i >= 0 && i < before && p_.order[i] != p_.pos[i]; before = i, i = p_.parent[i]) {
        path_[position_ - p_.pos[i]] = i;
        shared_.base = p_.pos[i] - 1;
      }
      if (i == straight_) shared_.base = position_;
      shared_.straight = i;
    }
    __syncthreads();
    base_ = shared_.base;
    straight_ = shared_.straight;
  }
  // Returns the first position after the sinks that no row of the sequence's step overwrites.
  __device__ uint32_t oldest_of_ring(uint32_t row) const {
    uint32_t s = 0;
    while (s + 1 < p_.live[sdk::kLiveSeqs] && static_cast<uint32_t>(p_.seq_row[s + 1]) <= row) ++s;
    const auto end = static_cast<uint32_t>(p_.order[p_.seq_row[s + 1] - 1]) + 1;
    return max(a_.kv.sinks, end > a_.kv.ring ? end - a_.kv.ring : 0);
  }
  // Returns the cell of a position, under LINEAR or RING.
  __device__ uint32_t cell_of(uint32_t position) const {
    if (static_cast<int32_t>(position) > base_) return place(path_[position_ - static_cast<int32_t>(position)]);
    return a_.kv.cell_of(position);
  }
  __device__ bool in_windows(int32_t p) const {
    return (a_.window == 0 || int64_t{p} + a_.window > position_) && a_.kv.in_window(p, position_);
  }

  // Takes these spots. find(spot, cell, position) says whether the row sees a spot, and if so where.
  template <class Find, std::invocable<Spots&> F>
  __device__ void range(const Stretch& spots_of_it, const Find& find, F& f) const {
    const auto [from, to] = spots_of_it;
    const uint32_t capacity = static_cast<uint32_t>(a_.kv.capacity());
    for (uint32_t at = from / kTurn * kTurn + threadIdx.x / 32 * kAtOnce; at < to; at += kTurn) {
      Spots spots{};
      bool any = false;
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        const uint32_t spot = at + j;
        spots.seen[j] =
            spot >= from && spot < to && find(spot, spots.cell[j], spots.position[j]) && spots.cell[j] < capacity;
        any |= spots.seen[j];
      }
      if (any) f(spots);
    }
  }

  // Returns the spans that are chosen for the row, how many first; nullptr if it sees all.
  __device__ const int32_t* chosen() const {
    if (a_.most_spans == 0) return nullptr;
    const int32_t* list = p_.chosen + (size_t{row_} * a_.kv.heads + head_) * (1 + a_.most_spans);
    return list[0] >= 0 ? list : nullptr;
  }
  // Returns the old spots of a span. A span that has spots of the step besides is left to the range of these, which
  // begins at `step`. Spans are whole turns, so that spots go together as they would in another step.
  __device__ Stretch old_cells(uint32_t span, uint32_t& step) const {
    const uint32_t mixed = static_cast<uint32_t>(kv_len_) / a_.span_cells;
    if (span == mixed) step = span * a_.span_cells;
    return {max(own_, span * a_.span_cells), span < mixed ? (span + 1) * a_.span_cells : 0};
  }

  // Calls f for the row and its ancestors in the step, each in one of the block's threads.
  template <std::invocable<int32_t> F>
  __device__ void each_ancestor(F&& f) const {
    for (int32_t i = threadIdx.x; i < position_ - base_; i += kThreads) f(path_[i]);
    if (straight_ < 0) return;
    for (int32_t p = base_ - static_cast<int32_t>(threadIdx.x); p >= kv_len_; p -= kThreads) f(straight_ - (base_ - p));
  }
  // Returns the line of the table that has the row's cells.
  __device__ size_t line() const { return a_.kv.apart() ? size_t{slot_} * a_.kv.heads + head_ : slot_; }
  // No cell from there on is seen.
  __device__ uint32_t find_end_of_table() const {
    if (threadIdx.x == 0) shared_.end = static_cast<uint32_t>(p_.used[line()]);
    __syncthreads();
    each_ancestor([&](int32_t row) { atomicMax(&shared_.end, place(row) + 1); });
    __syncthreads();
    return shared_.end;
  }
  template <std::invocable<Spots&> F>
  __device__ void each_of_table(const Stretch& chunk, F& f) const {
    const uint32_t end = shared_.end;
    const KvCells cells({a_.kv, a_.kv.k, nullptr, nullptr, p_.pages}, slot_, head_);
    const auto spot = [&](uint32_t cell, uint32_t& to, uint32_t& position) {
      const int32_t row = shared_.row_of[cell % kTableCells], page = cells.page(cell);
      if (page < 0) return false;
      const size_t entry = a_.kv.apart() ? static_cast<size_t>(page) * a_.kv.heads + head_ : static_cast<size_t>(page);
      const int32_t p = row >= 0 ? p_.pos[row] : p_.table[entry * a_.kv.page_cells + cells.inside(cell)];
      to = cell;
      position = static_cast<uint32_t>(p);
      return p >= 0 && (row >= 0 || (p < kv_len_ && cell < static_cast<uint32_t>(p_.used[line()]))) && in_windows(p);
    };
    for (uint32_t from = chunk.from / kTableCells * kTableCells; from < min(end, chunk.to); from += kTableCells) {
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < kTableCells; i += kThreads) shared_.row_of[i] = -1;
      __syncthreads();
      each_ancestor([&](int32_t row) {
        if (const uint32_t cell = place(row); cell / kTableCells == from / kTableCells) {
          shared_.row_of[cell % kTableCells] = row;
        }
      });
      __syncthreads();
      range(Stretch{from, min(end, from + kTableCells)}.in(chunk), spot, f);
    }
  }

  const Args& a_;
  const Pointers& p_;
  Shared& shared_;
  int32_t* path_;
  uint32_t head_, row_, slot_;
  int32_t position_, base_, straight_, kv_len_;
  uint32_t own_, first_, sinks_;  // LINEAR, RING: it sees [own, sinks) and [first, position]
  uint32_t sink_chunks_ = 0;      // chunks of [own, sinks); of the other spots `later_chunks` from number `later` on
  uint32_t later_, later_chunks_;
};

}  // namespace tenon::exact
