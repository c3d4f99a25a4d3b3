#include "attend.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "kernels.h"

namespace tenon::flash {
namespace {

using sdk::Part;
using sdk::cpu::KvRows;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const Kernels& kernels(uint32_t isa) {
  static constexpr const Kernels* kTables[] = {&kScalarKernels, &kAvx2Kernels, &kAvx512Kernels};
  return *kTables[isa];
}

// The state of a softmax under way.
struct Softmax {
  float maximum = -kInfinity, sum = 0;
};

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

// A work item's memory; of nullptr just its size. Query i of a run of rows is query head i % group of row i / group.
struct Workspace {
  Workspace(const AttendArgs& a, void* memory) {
    const size_t n = size_t{a.block_rows} * a.group;
    auto* base = static_cast<float*>(memory);
    size_t used = 0;
    const auto take = [&](size_t floats) {
      float* mine = base == nullptr ? nullptr : base + used;
      used += (floats + 15) / 16 * 16;
      return mine;
    };
    keys = take(size_t{a.kv.k.dim} * kKeys);
    values = take(size_t{a.padded} * kKeys);
    q = take(n * a.kv.k.dim);
    scores = take(n * kKeys);
    sum = take(n * a.padded);
    total = take(n * a.padded);
    shrink = take(n);
    state = reinterpret_cast<Softmax*>(take(2 * n));
    total_state = reinterpret_cast<Softmax*>(take(2 * n));
    visible = reinterpret_cast<uint64_t*>(take(size_t{2} * a.block_rows));
    bytes = used * sizeof(float);
  }
  float *keys, *values, *q, *scores, *sum, *total, *shrink;
  Softmax *state, *total_state;
  uint64_t* visible;
  uint64_t bytes;
};

uint64_t bits_below(uint32_t n) {
  return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}

// The step as the mask sees it.
class Step {
 public:
  Step(const AttendArgs& a, const Part& part)
      : a_(a),
        pos_(part.ptr<int32_t>(kPos)),
        slot_(part.ptr<int32_t>(kSlot)),
        parent_(part.ptr<int32_t>(kParent)),
        kv_len_(part.ptr<int32_t>(kKvLen)),
        live_(std::min(*part.ptr<uint32_t>(kLive), a.rows)) {}

  uint32_t live() const { return live_; }
  // False for padding.
  bool active(uint32_t row) const {
    if (slot_[row] < 0) return false;
    if (static_cast<uint32_t>(pos_[row]) >= a_.kv_len) {
      throw sdk::Failed("position " + std::to_string(pos_[row]) + " in a program for " + std::to_string(a_.kv_len) +
                        " tokens");
    }
    return true;
  }
  uint32_t slot(uint32_t row) const { return static_cast<uint32_t>(slot_[row]); }
  // A row sees nothing outside of positions [first, end).
  uint32_t first(uint32_t row) const { return a_.window != 0 && end(row) > a_.window ? end(row) - a_.window : 0; }
  uint32_t end(uint32_t row) const { return static_cast<uint32_t>(pos_[row]) + 1; }
  // Bit i: the row sees position block + i.
  uint64_t visible(uint32_t row, uint32_t block) const {
    const uint32_t low = first(row);
    const uint32_t high = a_.tree != 0 ? std::min(end(row), static_cast<uint32_t>(kv_len_[slot_[row]])) : end(row);
    uint64_t bits = high > block ? bits_below(high - block) : 0;
    if (a_.tree != 0) {
      // A parent is an earlier row, which ends the walk.
      for (auto i = static_cast<int32_t>(row), before = i + 1; i >= 0 && i < before; before = i, i = parent_[i]) {
        const int64_t at = int64_t{pos_[i]} - block;
        if (at >= 0 && at < kKeys) bits |= uint64_t{1} << at;
      }
    }
    return low > block ? bits & ~bits_below(low - block) : bits;
  }

 private:
  const AttendArgs& a_;
  const int32_t *pos_, *slot_, *parent_, *kv_len_;
  uint32_t live_;
};

// Rows of one sequence against one KV head.
class Run {
 public:
  Run(const AttendArgs& a, const Part& part, const Step& step, uint32_t head, uint32_t begin, uint32_t end)
      : a_(a),
        step_(step),
        k_(kernels(a.isa)),
        w_(a, part.thread_scratch()),
        begin_(begin),
        rows_(end - begin),
        keys_(a.kv, a.kv.k, part.ptr<void>(kKeysPlane), part.ptr<int32_t>(kPages), step.slot(begin), head),
        values_(a.kv, a.kv.v, part.ptr<void>(kValuesPlane), part.ptr<int32_t>(kPages), step.slot(begin), head) {
    for (uint32_t row = begin; row < end; ++row) {
      first_ = std::min(first_, step.first(row)), end_ = std::max(end_, step.end(row));
      const auto* q =
          reinterpret_cast<const float*>(part.ptr<std::byte>(kQ) + row * a.q_row) + size_t{head} * a.group * a.kv.k.dim;
      float* to = w_.q + size_t{row - begin} * a.group * a.kv.k.dim;
      for (uint32_t i = 0; i < a.group * a.kv.k.dim; ++i) to[i] = q[i] * a.scale;
    }
  }

  uint32_t end() const { return end_; }
  uint32_t queries() const { return rows_ * a_.group; }
  const Workspace& work() const { return w_; }

  // One split's softmax and sums, into state and sum of the workspace.
  void split(uint32_t index) {
    std::fill_n(w_.state, queries(), Softmax{});
    std::fill_n(w_.sum, size_t{queries()} * a_.padded, 0.0f);
    const uint32_t from = std::max(index * a_.split, first_ / kKeys * kKeys);
    const uint32_t to = std::min(index * a_.split + a_.split, end_);
    for (uint32_t at = from; at < to; at += kKeys) key_block(at, std::min(to - at, uint32_t{kKeys}));
  }

 private:
  void key_block(uint32_t at, uint32_t n) {
    uint32_t low = rows_, high = 0;  // rows that see anything of it
    for (uint32_t i = 0; i < rows_; ++i) {
      w_.visible[i] = step_.visible(begin_ + i, at);
      if (w_.visible[i] == 0) continue;
      low = std::min(low, i), high = i + 1;
    }
    if (low >= high) return;
    const void* key[kKeys];
    const uint32_t skip = first_ > at ? first_ - at : 0;
    for (uint32_t i = skip; i < n; ++i) key[i] = keys_.at(at + i), value_[i] = values_.at(at + i);
    const uint32_t g = a_.group, dim = a_.kv.k.dim, queries = (high - low) * g;
    const int64_t ahead = kKeys * keys_.stride();
    float *scores = w_.scores + size_t{low} * g * kKeys, *q = w_.q + size_t{low} * g * dim;
    few_ = queries <= kFewQueries;
    if (few_) {
      k_.scores_of_few(a_.kv.k.codec, key, skip, n, ahead, q, queries, dim, scores);
    } else {
      k_.load_keys(a_.kv.k.codec, key, skip, n, dim, ahead, w_.keys);
      k_.load_values(a_.kv.v.codec, value_, skip, n, a_.kv.v.dim, kKeys * values_.stride(), a_.padded, w_.values);
      k_.scores(q, queries, dim, w_.keys, scores);
    }
    if (a_.softcap != 0) k_.soft_cap(scores, (high - low) * g, a_.softcap);
    for (uint32_t i = low * g; i < high * g; ++i) {
      w_.shrink[i] = w_.visible[i / g] == 0 ? 1
                                            : k_.softmax(w_.scores + size_t{i} * kKeys, w_.visible[i / g],
                                                         &w_.state[i].maximum, &w_.state[i].sum);
    }
    for (uint32_t i = low; i < high;) {
      uint32_t next = i + 1;
      while (next < high && w_.visible[next] == w_.visible[i]) ++next;
      add_values(i * g, (next - i) * g, w_.visible[i]);
      i = next;
    }
  }

  // What a row does not see is not read either: its sums do not depend on what later rows left there.
  void add_values(uint32_t query, uint32_t n, uint64_t visible) {
    while (visible != 0) {
      const auto first = static_cast<uint32_t>(std::countr_zero(visible));
      const uint32_t end = first + static_cast<uint32_t>(std::countr_one(visible >> first));
      const float* p = w_.scores + size_t{query} * kKeys;
      float* sum = w_.sum + size_t{query} * a_.padded;
      if (few_) {
        k_.accumulate_few(a_.kv.v.codec, value_, a_.kv.v.dim, kKeys * values_.stride(), p, w_.shrink + query, n, first,
                          end, a_.padded, sum);
      } else {
        k_.accumulate(p, w_.shrink + query, n, first, end, w_.values, a_.padded, sum);
      }
      visible &= ~bits_below(end);
      std::fill_n(w_.shrink + query, n, 1.0f);
    }
  }

  const AttendArgs& a_;
  const Step& step_;
  const Kernels& k_;
  Workspace w_;
  uint32_t begin_, rows_, first_ = UINT32_MAX, end_ = 0;
  KvRows keys_, values_;
  const void* value_[kKeys];  // of the block at hand
  bool few_ = false;          // queries see it
};

// total becomes the softmax over what both saw.
void fold(const Kernels& k, Softmax& total, float* total_sum, const Softmax& part, const float* part_sum, uint32_t n) {
  if (part.maximum == -kInfinity) return;
  const float now = part.maximum > total.maximum ? part.maximum : total.maximum;
  const float a = k.exp(total.maximum - now), b = k.exp(part.maximum - now);
  k.fold(total_sum, a, part_sum, b, n);
  total = {now, total.sum * a + part.sum * b};
}

void finish(const AttendArgs& a, const Part& part, uint32_t row, uint32_t head, Softmax state, const float* sum) {
  float factor = 1;
  if (a.has_sink != 0) {
    const float sink = part.ptr<float>(kSink)[head];
    const float now = sink > state.maximum ? sink : state.maximum;
    factor = kernels(a.isa).exp(state.maximum - now);
    state = {now, state.sum * factor + kernels(a.isa).exp(sink - now)};
  }
  auto* out = reinterpret_cast<float*>(part.ptr<std::byte>(kOut) + row * a.out_row) + size_t{head} * a.kv.v.dim;
  factor /= state.sum;
  for (uint32_t d = 0; d < a.kv.v.dim; ++d) out[d] = sum[d] * factor;
  if (a.want_lse == 0) return;
  auto* lse = reinterpret_cast<float*>(part.ptr<std::byte>(kLse) + row * a.lse_row);
  lse[head] = state.maximum + std::log(state.sum);
}

void whole(const AttendArgs& a, const Part& part, Run& run, uint32_t begin, uint32_t head) {
  const Workspace& w = run.work();
  const uint32_t n = run.queries();
  std::fill_n(w.total_state, n, Softmax{});
  std::fill_n(w.total, size_t{n} * a.padded, 0.0f);
  for (uint32_t split = 0; split * a.split < run.end(); ++split) {
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

void one_split(const AttendArgs& a, const Part& part, Run& run, uint32_t begin, uint32_t head, uint32_t split) {
  const Partials partials(a, part.scratch());
  run.split(split);
  const Workspace& w = run.work();
  for (uint32_t i = 0; i < run.queries(); ++i) {
    const uint32_t row = begin + i / a.group, query_head = head * a.group + i % a.group;
    partials.state(row, query_head, split) = w.state[i];
    std::copy_n(w.sum + size_t{i} * a.padded, a.padded, partials.sum(row, query_head, split));
  }
}

void attend_chunk(const AttendArgs& a, const Part& part, const Step& step, uint32_t chunk) {
  const uint32_t split = chunk % a.splits, head = chunk / a.splits % a.kv_heads;
  const uint32_t first = chunk / a.splits / a.kv_heads * a.block_rows;
  const uint32_t last = std::min(first + a.block_rows, step.live());
  for (uint32_t row = first, next = row; row < last; row = next) {
    uint32_t end = 0;  // of what the rows of this sequence see
    for (; next < last && step.active(next) && step.slot(next) == step.slot(row); ++next) {
      end = std::max(end, step.end(next));
    }
    if (next == row) {
      ++next;
    } else if (split * a.split < end) {
      Run run(a, part, step, head, row, next);
      a.splits == 1 ? whole(a, part, run, row, head) : one_split(a, part, run, row, head, split);
    }
  }
}

void combine_chunk(const AttendArgs& a, const Part& part, const Step& step, uint32_t chunk) {
  const uint32_t row = chunk / a.kv_heads;
  if (row >= step.live() || !step.active(row)) return;
  const Partials partials(a, part.scratch());
  auto* sum = part.thread_scratch<float>();
  const uint32_t splits = (step.end(row) + a.split - 1) / a.split;
  for (uint32_t i = 0; i < a.group; ++i) {
    const uint32_t head = chunk % a.kv_heads * a.group + i;
    Softmax total;
    std::fill_n(sum, a.padded, 0.0f);
    for (uint32_t split = 0; split < splits; ++split) {
      fold(kernels(a.isa), total, sum, partials.state(row, head, split), partials.sum(row, head, split), a.padded);
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

}  // namespace tenon::flash
