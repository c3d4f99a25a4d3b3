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

// What phase 0 leaves for phase 1: by row, query head and split.
class Partials {
 public:
  Partials(const AttendArgs& a, void* scratch)
      : splits_(a.splits), heads_(a.kv_heads * a.group), padded_(a.padded), sums_(static_cast<float*>(scratch)) {
    states_ = reinterpret_cast<Softmax*>(sums_ + size_t{a.rows} * heads_ * splits_ * padded_);
  }
  float* sum(uint32_t row, uint32_t head, uint32_t split) const { return sums_ + index(row, head, split) * padded_; }
  Softmax& state(uint32_t row, uint32_t head, uint32_t split) const { return states_[index(row, head, split)]; }

 private:
  size_t index(uint32_t row, uint32_t head, uint32_t split) const {
    return (size_t{row} * heads_ + head) * splits_ + split;
  }
  uint32_t splits_, heads_, padded_;
  float* sums_;
  Softmax* states_;
};

// Which work item takes a split: behind the sinks' they are taken in turns, more than any rows of one item see.
uint32_t item_of(const AttendArgs& a, uint32_t split) {
  return split < a.sink_splits ? split : a.sink_splits + (split - a.sink_splits) % (a.splits - a.sink_splits);
}
// The split from `first` on that a work item takes.
uint32_t split_of(const AttendArgs& a, uint32_t item, uint32_t first) {
  if (item < a.sink_splits) return item;
  const uint32_t turns = a.splits - a.sink_splits, from = std::max(first, a.sink_splits);
  return from + (item - a.sink_splits + turns - (from - a.sink_splits) % turns) % turns;
}

// total becomes the softmax over what both saw.
void fold(const Kernels& k, Softmax& total, float* total_sum, const Softmax& part, const float* part_sum, uint32_t n) {
  if (part.maximum == -kInfinity) return;
  const float now = part.maximum > total.maximum ? part.maximum : total.maximum;
  const float a = k.exp(total.maximum - now), b = k.exp(part.maximum - now);
  k.fold(total_sum, a, part_sum, b, n);
  total = {now, total.sum * a + part.sum * b};
}

void finish(const AttendArgs& a, const Part& part, uint32_t row, uint32_t head, const Softmax& state,
            const float* sum) {
  float* out = attention::out_of(a, part, row, head);
  const float factor = 1 / state.sum;
  for (uint32_t d = 0; d < a.kv.v.dim; ++d) out[d] = sum[d] * factor;
}

void whole(const AttendArgs& a, const Part& part, Run& run, uint32_t begin, uint32_t head) {
  const Workspace& w = run.work();
  const uint32_t n = run.queries();
  std::fill_n(w.total_state, n, Softmax{});
  std::fill_n(w.total, size_t{n} * a.padded, 0.0f);
  for (uint32_t split = 0; uint64_t{split} * a.split < run.end(); ++split) {
    if (run.skips(split * a.split, split * a.split + a.split)) split = run.first() / a.split;
    run.split(split);
    for (uint32_t i = 0; i < n; ++i) {
      fold(kernels(a.isa), w.total_state[i], w.total + size_t{i} * a.padded, w.state[i], w.sum + size_t{i} * a.padded,
           a.padded);
    }
  }
  for (uint32_t i = 0; i < n; ++i) {
    finish(a, part, begin + i / a.group, head * a.group + i % a.group, w.total_state[i],
           w.total + size_t{i} * a.padded);
  }
}

void one_split(const AttendArgs& a, const Part& part, Run& run, uint32_t begin, uint32_t head, uint32_t item) {
  const uint32_t split = split_of(a, item, run.first() / a.split);
  if (uint64_t{split} * a.split >= run.end()) return;
  const Partials partials(a, part.scratch());
  run.split(split);
  const Workspace& w = run.work();
  for (uint32_t i = 0; i < run.queries(); ++i) {
    const uint32_t row = begin + i / a.group, query_head = head * a.group + i % a.group;
    partials.state(row, query_head, item) = w.state[i];
    std::copy_n(w.sum + size_t{i} * a.padded, a.padded, partials.sum(row, query_head, item));
  }
}

// The softmax of n scores, each to the sum of its cell.
void add_weights(const float* score, const uint32_t* cell, uint32_t n, float* sums) {
  const float top = *std::max_element(score, score + n);
  double sum = 0;
  for (uint32_t c = 0; c < n; ++c) sum += std::exp(score[c] - top);
  for (uint32_t c = 0; c < n; ++c) sums[cell[c]] += static_cast<float>(std::exp(score[c] - top) / sum);
}

void attend_chunk(const AttendArgs& a, const Part& part, const Step& step, uint32_t chunk) {
  const uint32_t item = chunk % a.splits, head = chunk / a.splits % a.kv_heads;
  const uint32_t first = chunk / a.splits / a.kv_heads * a.block_rows;
  const uint32_t last = std::min(first + a.block_rows, step.live());
  for (uint32_t row = first, next; row < last; row = next) {
    // Rows of one sequence whose keys are the same, turned or not.
    next = row;
    while (next < last && step.active(next) && step.slot(next) == step.slot(row) &&
           step.shift(next) == step.shift(row)) {
      ++next;
    }
    if (next == row) {
      ++next;
      continue;
    }
    Run run(a, part, step, head, row, next);
    a.splits == 1 ? whole(a, part, run, row, head) : one_split(a, part, run, row, head, item);
  }
}

void combine_chunk(const AttendArgs& a, const Part& part, const Step& step, uint32_t chunk) {
  const uint32_t row = chunk / a.kv_heads;
  if (row >= step.live() || !step.active(row)) return;
  const Partials partials(a, part.scratch());
  auto* sum = part.thread_scratch<float>();
  const Lanes lanes = step.lanes(row, chunk % a.kv_heads);
  for (uint32_t i = 0; i < a.group; ++i) {
    const uint32_t head = chunk % a.kv_heads * a.group + i;
    Softmax total;
    std::fill_n(sum, a.padded, 0.0f);
    for (uint32_t split = 0; uint64_t{split} * a.split < lanes.end; ++split) {
      if (split >= a.sink_splits) split = std::max(split, lanes.first / a.split);
      fold(kernels(a.isa), total, sum, partials.state(row, head, item_of(a, split)),
           partials.sum(row, head, item_of(a, split)), a.padded);
    }
    finish(a, part, row, head, total, sum);
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
      Run run(a, part, step, at.kv_head, row, row + 1);
      const uint32_t n = run.all_scores(cell, scores, cells);
      for (uint32_t i = 0; i < a.group; ++i) add_weights(scores + i * cells, cell, n, at.sums);
    }
  }
}

}  // namespace tenon::flash
