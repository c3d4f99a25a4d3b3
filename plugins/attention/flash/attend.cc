// Phase 0 attends: a work item is a block of rows, a KV head and, where spots are cut, a split of them. Phase 1 folds
// the splits of a row together. attend.h says what a spot is and why the bits of a row depend on nothing but the row.
//
// Invariants: splits are folded in growing order, in phase 1 as in attend_whole(); a split that no row of an item sees
// is left out by both; partial results of one (row, head, split) are written by one work item.
#include "attend.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "kernels.h"
#include "step.h"

namespace tenon::flash {
namespace {

using sdk::Part;

// This is the softmax of a query, with the sum of its weighted values: (padded).
struct QuerySums {
  Softmax* state;
  float* sum;
};

// Phase 0 leaves these partial results for phase 1: by row, query head and split.
class Partials {
 public:
  Partials(const AttendArgs& a, void* scratch)
      : splits_(a.splits), heads_(a.kv_heads * a.group), padded_(a.padded), sums_(static_cast<float*>(scratch)) {
    states_ = reinterpret_cast<Softmax*>(sums_ + size_t{a.rows} * heads_ * splits_ * padded_);
  }
  QuerySums at(uint32_t row, uint32_t head, uint32_t split) const {
    const size_t index = (size_t{row} * heads_ + head) * splits_ + split;
    return {states_ + index, sums_ + index * padded_};
  }

 private:
  uint32_t splits_, heads_, padded_;
  float* sums_;
  Softmax* states_;
};

// Returns the work item that takes a split. After the sinks' splits they are taken in turns; there are more
// turns than any rows of one item see splits.
uint32_t item_of(const AttendArgs& a, uint32_t split) {
  return split < a.sink_splits ? split : a.sink_splits + (split - a.sink_splits) % (a.splits - a.sink_splits);
}
// Returns the split, from `first` on, that a work item takes.
uint32_t split_of(const AttendArgs& a, uint32_t item, uint32_t first) {
  if (item < a.sink_splits) return item;
  const uint32_t turns = a.splits - a.sink_splits, from = std::max(first, a.sink_splits);
  return from + (item - a.sink_splits + turns - (from - a.sink_splits) % turns) % turns;
}

// The total becomes the softmax over what both saw.
void fold(const AttendArgs& args, const QuerySums& total, const QuerySums& part) {
  if (part.state->maximum == -kInfinity) return;
  const Kernels& k = kernels(args.isa);
  const float now = part.state->maximum > total.state->maximum ? part.state->maximum : total.state->maximum;
  const float a = k.exp(total.state->maximum - now), b = k.exp(part.state->maximum - now);
  k.fold(total.sum, a, part.sum, b, args.padded);
  *total.state = {now, total.state->sum * a + part.state->sum * b};
}

// This names a query head of a row.
struct Head {
  uint32_t row, head;
};
// Writes the head's mean of the values, which it makes of its sums.
void write_mean(const AttendArgs& a, const Part& part, Head at, const Softmax& state, const float* sum) {
  float* out = attention::out_of(a, part, at.row, at.head);
  if (a.joining == attention::kJoins) {
    const auto [own, before] = attention::join_factors(a, part, {at.row, at.head, state.maximum, state.sum});
    for (uint32_t d = 0; d < a.kv.v.dim; ++d) out[d] = sum[d] * own + out[d] * before;
    return;
  }
  float factor = 1 / state.sum, top = state.maximum, all = state.sum;
  if (a.sinks != 0) {
    const float sink = attention::sink_of(a, part, at.head);
    top = std::max(state.maximum, sink);
    const float kept = std::exp(state.maximum - top);
    all = state.sum * kept + std::exp(sink - top);
    factor = kept / all;
  }
  if (a.joining == attention::kLeaves) attention::leave_sum(a, part, {at.row, at.head, top, all});
  for (uint32_t d = 0; d < a.kv.v.dim; ++d) out[d] = sum[d] * factor;
}

// A run of rows has this place: its first row, its KV head, and the work item along the spots.
struct RunPlace {
  uint32_t row, head, item;
  // Returns the head of query i of the run.
  Head query(const AttendArgs& a, uint32_t i) const { return {row + i / a.group, head * a.group + i % a.group}; }
};

// All splits of a run by one work item, folded as it goes.
void attend_whole(const AttendArgs& a, const Part& part, Run& run, const RunPlace& at) {
  const Workspace& w = run.work();
  const uint32_t n = run.queries();
  std::fill_n(w.total_state, n, Softmax{});
  std::fill_n(w.total, size_t{n} * a.padded, 0.0f);
  for (uint32_t split = 0; uint64_t{split} * a.split < run.end(); ++split) {
    if (run.skips(split * a.split, split * a.split + a.split)) split = run.first() / a.split;
    run.split(split);
    for (uint32_t i = 0; i < n; ++i) {
      const size_t at_sum = size_t{i} * a.padded;
      fold(a, {w.total_state + i, w.total + at_sum}, {w.state + i, w.sum + at_sum});
    }
  }
  for (uint32_t i = 0; i < n; ++i) {
    write_mean(a, part, at.query(a, i), w.total_state[i], w.total + size_t{i} * a.padded);
  }
}

// Attends to one split of a run; its sums and states are left for phase 1.
void attend_split(const AttendArgs& a, const Part& part, Run& run, const RunPlace& at) {
  const uint32_t split = split_of(a, at.item, run.first() / a.split);
  if (uint64_t{split} * a.split >= run.end()) return;
  const Partials partials(a, part.scratch());
  run.split(split);
  const Workspace& w = run.work();
  for (uint32_t i = 0; i < run.queries(); ++i) {
    const auto [row, head] = at.query(a, i);
    const QuerySums left = partials.at(row, head, at.item);
    *left.state = w.state[i];
    std::copy_n(w.sum + size_t{i} * a.padded, a.padded, left.sum);
  }
}

// Adds the softmax of n scores and a sink: each score's weight to the sum of its cell.
void add_weights(const float* score, const uint32_t* cell, uint32_t n, float sink, float* sums) {
  const float top = std::max(sink, *std::max_element(score, score + n));
  double sum = std::exp(sink - top);
  for (uint32_t c = 0; c < n; ++c) sum += std::exp(score[c] - top);
  for (uint32_t c = 0; c < n; ++c) sums[cell[c]] += static_cast<float>(std::exp(score[c] - top) / sum);
}

void attend_chunk(const AttendArgs& a, const Part& part, const Step& step, uint32_t chunk) {
  const uint32_t item = chunk % a.splits, head = chunk / a.splits % a.kv_heads;
  const uint32_t first = chunk / a.splits / a.kv_heads * a.block_rows;
  const uint32_t last = std::min(first + a.block_rows, step.live());
  for (uint32_t row = first, next; row < last; row = next) {
    // A run has rows of one sequence whose keys are the same, turned or not.
    next = row;
    while (next < last && step.active(next) && step.slot(next) == step.slot(row) &&
           step.shift(next) == step.shift(row)) {
      ++next;
    }
    if (next == row) {
      ++next;
      continue;
    }
    Run run(a, part, step, {head, row, next});
    a.splits == 1 ? attend_whole(a, part, run, {row, head, item}) : attend_split(a, part, run, {row, head, item});
  }
}

void combine_chunk(const AttendArgs& a, const Part& part, const Step& step, uint32_t chunk) {
  const uint32_t row = chunk / a.kv_heads;
  if (row >= step.live() || !step.active(row)) return;
  const Partials partials(a, part.scratch());
  auto* sum = part.thread_scratch<float>();
  const Spots spots = step.spots(row, chunk % a.kv_heads);
  for (uint32_t i = 0; i < a.group; ++i) {
    const uint32_t head = chunk % a.kv_heads * a.group + i;
    Softmax total;
    std::fill_n(sum, a.padded, 0.0f);
    for (uint32_t split = 0; uint64_t{split} * a.split < spots.end; ++split) {
      if (split >= a.sink_splits) split = std::max(split, spots.first / a.split);
      fold(a, {&total, sum}, partials.at(row, head, item_of(a, split)));
    }
    write_mean(a, part, {row, head}, total, sum);
  }
}

}  // namespace

uint64_t scratch_bytes(const AttendArgs& a) {
  if (a.splits == 1) return 0;
  return uint64_t{a.rows} * a.kv_heads * a.group * a.splits * (a.padded * sizeof(float) + sizeof(Softmax));
}

uint64_t thread_scratch_bytes(const AttendArgs& a) {
  return Workspace(a, nullptr).bytes;
}

void attend(const AttendArgs& a, const Part& part) {
  const Step step(a, part);
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    part.phase() == 0 ? attend_chunk(a, part, step, chunk) : combine_chunk(a, part, step, chunk);
  }
}

uint64_t weights_scratch_bytes(const AttendArgs& a) {
  return Workspace(a, nullptr).bytes + a.kv.capacity() * (sizeof(uint32_t) + a.group * sizeof(float));
}

void sum_weights(const AttendArgs& a, const Part& part) {
  const Step step(a, part);
  const auto cells = static_cast<size_t>(a.kv.capacity());
  auto* cell = reinterpret_cast<uint32_t*>(part.thread_scratch<std::byte>() + Workspace(a, nullptr).bytes);
  auto* scores = reinterpret_cast<float*>(cell + cells);  // (group, cells)
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const attention::WeightChunk at = attention::weight_chunk(a, part, chunk);
    for (uint32_t row = at.begin; row < at.end && step.active(row); ++row) {
      Run run(a, part, step, {at.kv_head, row, row + 1});
      const uint32_t n = run.all_scores(cell, scores, cells);
      for (uint32_t i = 0; i < a.group; ++i) {
        add_weights(scores + i * cells, cell, n, attention::sink_of(a, part, at.kv_head * a.group + i), at.sums);
      }
    }
  }
}

}  // namespace tenon::flash
