// This is one step as Flash reads it: which spots its rows see, and their scores and sums, block by block. attend.h
// says what a spot is.
#pragma once

#include <cstdint>
#include <limits>

#include "attend.h"
#include "kernels.h"
#include "tenon/sdk/cpu/kv_reader.h"

namespace tenon::flash {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

const Kernels& kernels(uint32_t isa);

// This is a softmax under way: the greatest score so far, and the sum of the weights.
struct Softmax {
  float maximum = -kInfinity, sum = 0;
};

// A work item has this memory; made of nullptr it has just the size. Query i of a run of rows is query head i % group
// of row i / group.
struct Workspace {
  Workspace(const AttendArgs& a, void* memory);
  float *keys, *values, *angles, *q, *scores, *sum, *total, *shrink;
  Softmax *state, *total_state;
  uint64_t* visible;  // by row: it has a bit for each of a block's spots
  uint32_t* path;     // a row's ancestors in this step have these cells, from the first one to the row itself
  uint64_t bytes;
};

// A row sees nothing outside of spots [0, sinks) and [first, end).
struct Spots {
  uint32_t sinks, first, end;
};

// This is the step as the masks see it.
class Step {
 public:
  Step(const AttendArgs& a, const sdk::Part& part);

  uint32_t live() const { return live_; }
  // Returns false for padding, and for rows whose result nobody reads. Throws Failed for a row whose cell the program
  // does not have.
  bool active(uint32_t row) const;
  uint32_t slot(uint32_t row) const { return static_cast<uint32_t>(slot_[row]); }
  uint32_t position(uint32_t row) const { return static_cast<uint32_t>(pos_[row]); }
  uint32_t kv_len(uint32_t row) const { return static_cast<uint32_t>(kv_len_[slot_[row]]); }
  uint32_t place(uint32_t row, uint32_t head) const {
    return static_cast<uint32_t>(a_.kv.apart() ? place_[row * a_.kv_heads + head] : place_[row]);
  }
  // Returns how far the row's indices are below its positions.
  uint32_t shift(uint32_t row) const { return a_.kv.shift_at(position(row)); }
  bool by_cell() const { return a_.kv.rule == TENON_POS_TABLE; }
  // Says whether the rows of the row's sequence branch.
  bool branches(uint32_t row) const;

  Spots spots(uint32_t row, uint32_t head) const;
  // Bit i says whether the row sees spot block + i.
  uint64_t visible(uint32_t row, uint32_t head, uint32_t block) const;
  // Returns the position of a spot that a row sees.
  uint32_t position_of(uint32_t row, uint32_t head, uint32_t spot) const;
  // Calls f(row) for the row and its ancestors in this step.
  template <class F>
  void for_path(uint32_t row, F&& f) const {
    // A parent is an earlier row, which ends the walk.
    for (auto i = static_cast<int32_t>(row), before = i + 1; i >= 0 && i < before; before = i, i = parent_[i]) {
      f(static_cast<uint32_t>(i));
    }
  }

 private:
  bool in_windows(int64_t p, int64_t n) const { return (a_.window == 0 || p > n - a_.window) && a_.kv.in_window(p, n); }
  uint32_t used(uint32_t row, uint32_t head) const {
    return static_cast<uint32_t>(
        a_.kv.apart() ? used_[slot_[row] * static_cast<int32_t>(a_.kv_heads) + static_cast<int32_t>(head)]
                      : used_[slot_[row]]);
  }
  const int32_t* table_line(uint32_t row, uint32_t head, uint32_t cell) const;
  // Returns the spots of a block that the spans chosen for a row have, and those of the step.
  uint64_t in_spans(uint32_t row, uint32_t head, uint32_t block) const;

  const AttendArgs& a_;
  const int32_t *pos_, *slot_, *parent_, *kv_len_, *place_, *used_, *table_, *pages_, *chosen_, *out_row_;
  uint32_t live_, out_rows_;
};

// Rows [begin, end) of one sequence, and a KV head.
struct RunRows {
  uint32_t head, begin, end;
};
// This is a run of rows of one sequence against one KV head.
class Run {
 public:
  Run(const AttendArgs& a, const sdk::Part& part, const Step& step, const RunRows& rows);

  uint32_t first() const { return first_; }
  uint32_t end() const { return end_; }
  // Says whether no row sees anything of spots [from, to).
  bool skips(uint32_t from, uint32_t to) const { return from >= sinks_ && to <= first_; }
  uint32_t queries() const { return rows_ * a_.group; }
  const Workspace& work() const { return w_; }

  // Computes one split's softmax and sums, into state and sum of the workspace.
  void split(uint32_t index);
  // Writes the cells that a run of one row sees, and its scores, those of a query head `stride` after those of the one
  // before. Returns how many cells there are.
  uint32_t all_scores(uint32_t* cell, float* scores, size_t stride);

 private:
  void turn_query(float* q, uint32_t row) const;
  void block(uint32_t at);
  void attend_block(uint32_t at, uint32_t low, uint32_t high);
  uint64_t score_block(uint32_t at, uint32_t& low, uint32_t& high);
  void find_cells(uint32_t at, uint64_t seen, uint32_t row);
  void scale_channels() const;
  void load_turned_keys(uint32_t at, uint64_t seen, uint32_t low);
  void add_values(uint32_t query, uint32_t n, uint64_t visible);
  CachedRows cached_keys() const;
  CachedRows cached_values() const;

  const AttendArgs& a_;
  const Step& step_;
  const Kernels& k_;
  Workspace w_;
  const float* rope_;
  uint32_t head_, begin_, rows_, sinks_ = 0, first_ = UINT32_MAX, end_ = 0;
  uint32_t branches_from_ = UINT32_MAX;  // from that position on, rows have cells of their own
  sdk::cpu::KvCells keys_, values_;
  // The block at hand has these spots, and their cells, keys and values. Spots that nobody sees have a neighbour's.
  uint32_t low_spot_ = 0, end_spot_ = 0;
  uint32_t cell_[kKeys];
  const void *key_[kKeys], *value_[kKeys];
  float key_scale_[kKeys], value_scale_[kKeys];
  bool few_ = false;  // true: few queries see it
};

}  // namespace tenon::flash
