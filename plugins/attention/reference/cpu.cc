// This is attention as its formula says, in float64, a head of a row at a time:
// the naive twin of every other attention.
//
// For each row the cells that it sees are found first, from the view's rule (tenon/abi/kv_cache.h): old cells that no
// row of the step overwrites, and the cells of the row and of its ancestors in the step. They are sorted by position,
// so that sums run in the order of the text whatever the cache does with its cells. Then come the scores, their softmax
// with the greatest score taken away, and the mean of the values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "../common/cpu_ops.h"
#include "../common/rotated_heads_cpu.h"
#include "plugin.h"
#include "tenon/sdk/cpu/kv_reader.h"

namespace tenon::reference {
namespace {

using sdk::Part;
using sdk::Refused;
using sdk::cpu::KvCells;

struct Args : attention::ViewArgs {
  uint32_t kv_len;  // a sequence has so many cells in this program
  uint32_t unused;  // Arguments have no padding.
};
using enum attention::ChainOperand;
using enum attention::ViewOperand;

// A row sees this cell.
struct Seen {
  int32_t position;
  uint32_t cell;
};

// This is a KV head as a row of the step sees it: its cells in order of their positions, ties in order of the cells.
class View {
 public:
  View(const Args& a, const Part& part, uint32_t row, uint32_t kv_head, Seen* seen)
      : a_(a),
        part_(part),
        row_(row),
        head_(kv_head),
        slot_(static_cast<uint32_t>(part.ptr<int32_t>(kSlot)[row])),
        position_(part.ptr<int32_t>(kPos)[row]),
        keys_(attention::key_memory(a, part), slot_, kv_head),
        values_(attention::value_memory(a, part), slot_, kv_head),
        seen_(seen) {
    find_old(row);
    find_new(row);
    std::sort(seen_, seen_ + n_, [](const Seen& x, const Seen& y) {
      return x.position != y.position ? x.position < y.position : x.cell < y.cell;
    });
  }

  uint32_t size() const { return n_; }
  uint32_t cell(uint32_t i) const { return seen_[i].cell; }
  uint32_t row() const { return row_; }
  uint32_t slot() const { return slot_; }
  void value(uint32_t i, float* to) const { values_.load(seen_[i].cell, to); }
  void key(uint32_t i, double* to, float* raw) const {
    keys_.load(seen_[i].cell, raw);
    std::copy_n(raw, a_.kv.k.dim, to);
    const auto p = static_cast<uint32_t>(seen_[i].position);
    turn(to, p < a_.kv.sinks ? p : p - shift());
  }
  void query(const float* q, double* to) const {
    std::copy_n(q, a_.kv.k.dim, to);
    turn(to, static_cast<uint32_t>(position_) - shift());
  }

 private:
  uint32_t shift() const { return a_.kv.shift_at(static_cast<uint32_t>(position_)); }
  // Turns x by the angles of table row `index`, if the cache keeps keys before rope.
  void turn(double* x, uint32_t index) const {
    const sdk::RopePairs pairs = a_.rope_pairs();
    const float* table = pairs.half() == 0 ? nullptr : part_.ptr<const float>(kRope) + size_t{index} * pairs.half() * 2;
    for (uint32_t i = 0; i < pairs.half(); ++i) {
      double &first = x[pairs.first(i)], &second = x[pairs.second(i)];
      const double c = table[2 * i], s = table[2 * i + 1], u = first, v = second;
      first = u * c - v * s;
      second = u * s + v * c;
    }
  }
  uint32_t place(uint32_t row) const {
    const auto* place = part_.ptr<const int32_t>(kPlace);
    return static_cast<uint32_t>(a_.kv.apart() ? place[row * a_.kv.heads + head_] : place[row]);
  }
  // Returns the position of an old cell, or -1.
  int32_t old_position(uint32_t cell, int32_t kv_len) const {
    const sdk::KvLayout& kv = a_.kv;
    if (kv.rule == TENON_POS_TABLE) {
      const auto page = static_cast<size_t>(keys_.page(cell));
      const size_t line = kv.apart() ? page * kv.heads + head_ : page;
      const int32_t p = part_.ptr<const int32_t>(kTable)[line * kv.page_cells + cell % kv.page_cells];
      return p < kv_len ? p : -1;
    }
    if (kv.rule == TENON_POS_LINEAR || cell < kv.sinks) {
      return cell < static_cast<uint32_t>(kv_len) ? static_cast<int32_t>(cell) : -1;
    }
    const auto newest = static_cast<int64_t>(kv_len) - 1 - cell;
    if (newest < 0 || cell - kv.sinks >= kv.ring) return -1;
    return static_cast<int32_t>(cell + newest / kv.ring * kv.ring);
  }
  bool in_windows(int64_t p) const {
    return (a_.window == 0 || p > int64_t{position_} - a_.window) && a_.kv.in_window(p, position_);
  }
  bool is_before_tail(int32_t p) const { return static_cast<uint32_t>(p) < a_.past(static_cast<uint32_t>(position_)); }
  // Says whether an old cell is in a span that was chosen for the row, if spans are.
  bool is_chosen(uint32_t cell) const {
    if (a_.most_spans == 0) return true;
    const auto* list = part_.ptr<const int32_t>(kChosen) + (size_t{row_} * a_.kv.heads + head_) * (1 + a_.most_spans);
    return list[0] < 0 ||
           std::find(list + 1, list + 1 + list[0], static_cast<int32_t>(cell / a_.span_cells)) != list + 1 + list[0];
  }
  void find_old(uint32_t row) {
    const auto* slots = part_.ptr<const int32_t>(kSlot);
    const uint32_t live = attention::live_rows(a_, part_);
    const int32_t kv_len = part_.ptr<int32_t>(kKvLen)[slot_];
    uint64_t cells = a_.kv.capacity();
    if (a_.kv.rule == TENON_POS_LINEAR) cells = std::min<uint64_t>(cells, static_cast<uint64_t>(kv_len));
    if (a_.kv.rule == TENON_POS_RING) cells = std::min<uint64_t>(cells, uint64_t{a_.kv.sinks} + a_.kv.ring);
    if (a_.kv.rule == TENON_POS_TABLE) {
      const auto* used = part_.ptr<const int32_t>(kUsed);
      cells = static_cast<uint64_t>(a_.kv.apart() ? used[slot_ * a_.kv.heads + head_] : used[slot_]);
    }
    uint32_t first = row, last = row;  // the sequence has these rows
    while (first > 0 && slots[first - 1] == slots[row]) --first;
    while (last + 1 < live && slots[last + 1] == slots[row]) ++last;
    for (uint32_t cell = 0; cell < cells; ++cell) {
      const int32_t p = old_position(cell, kv_len);
      if (p < 0 || !is_before_tail(p) || !in_windows(p) || !is_chosen(cell)) continue;
      bool overwritten = false;
      for (uint32_t r = first; r <= last && !overwritten; ++r) overwritten = place(r) == cell;
      if (!overwritten) seen_[n_++] = {p, cell};
    }
  }
  void find_new(uint32_t row) {
    const auto* parent = part_.ptr<const int32_t>(kParent);
    // A parent is an earlier row, which ends the walk.
    for (auto i = static_cast<int32_t>(row), before = i + 1; i >= 0 && i < before; before = i, i = parent[i]) {
      const int32_t p = part_.ptr<int32_t>(kPos)[i];
      const uint32_t cell = place(static_cast<uint32_t>(i));
      if (cell >= a_.kv_len) {
        throw sdk::Failed("position " + std::to_string(p) + " in cell " + std::to_string(cell) + " of a program for " +
                          std::to_string(a_.kv_len) + " tokens");
      }
      if (is_before_tail(p) && in_windows(p)) seen_[n_++] = {p, cell};
    }
  }

  const Args& a_;
  const Part& part_;
  uint32_t row_, head_, slot_;
  int32_t position_;
  KvCells keys_, values_;
  Seen* seen_;
  uint32_t n_ = 0;
};

// A chunk works in this memory.
struct Work {
  Work(const Args& a, void* memory) {
    score = static_cast<double*>(memory);
    q = score + a.kv_len;
    k = q + a.kv.k.dim;
    mean = k + a.kv.k.dim;
    seen = reinterpret_cast<Seen*>(mean + a.kv.v.dim);
    row = reinterpret_cast<float*>(seen + 2 * size_t{a.kv_len});
  }
  static uint64_t bytes(const Args& a) {
    return (uint64_t{a.kv_len} + 2 * a.kv.k.dim + a.kv.v.dim) * sizeof(double) + 2 * uint64_t{a.kv_len} * sizeof(Seen) +
           std::max(a.kv.k.dim, a.kv.v.dim) * sizeof(float);
  }
  double* score;  // (cells)
  double *q, *k;  // (k_dim)
  double* mean;   // (v_dim)
  Seen* seen;     // (cells), old ones and new ones
  float* row;     // it is a key or a value
};

// A softmax divides by this: the sum of exp(score - top). A row that sees nothing has no greatest score.
struct Divisor {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
};
// Writes the softmax of a query head of the view's row over what it sees into w.score.
Divisor weigh(const Args& a, const Part& part, const View& view, uint32_t head, const Work& w) {
  if (view.size() == 0) return {};
  view.query(attention::query_of(a, part, view.row(), head), w.q);
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (uint32_t i = 0; i < view.size(); ++i) {
    view.key(i, w.k, w.row);
    double dot = 0;
    for (uint32_t d = 0; d < a.kv.k.dim; ++d) dot += w.q[d] * w.k[d];
    dot *= a.scale;
    if (a.softcap != 0) dot = a.softcap * std::tanh(dot / a.softcap);
    w.score[i] = dot;
    top = std::max(top, dot);
  }
  const auto sink = static_cast<double>(attention::sink_of(a, part, head));
  top = std::max(top, sink);
  sum = std::exp(sink - top);
  for (uint32_t i = 0; i < view.size(); ++i) sum += w.score[i] = std::exp(w.score[i] - top);
  for (uint32_t i = 0; i < view.size(); ++i) w.score[i] /= sum;
  return {top, sum};
}

struct QueryHead {
  uint32_t row, head;
};
// The mean of what a query head sees becomes its result, or joins the one that is there (recent.h).
void finish(const Args& a, const Part& part, const QueryHead& at, const Divisor& divisor, const double* mean) {
  float* out = attention::out_of(a, part, at.row, at.head);
  double own = 1, before = 0;
  if (a.joining != attention::kAlone) {
    float& left = part.ptr<float>(kSums)[size_t{at.row} * a.q_heads + at.head];
    if (a.joining == attention::kLeaves) {
      left = static_cast<float>(divisor.top / std::numbers::ln2 + std::log2(divisor.sum));
    } else {
      const double log = left * std::numbers::ln2, top = std::max(divisor.top, log);
      own = divisor.sum * std::exp(divisor.top - top);
      before = std::exp(log - top);
    }
  }
  for (uint32_t d = 0; d < a.kv.v.dim; ++d) {
    out[d] = static_cast<float>(before == 0 ? mean[d] : (own * mean[d] + before * out[d]) / (own + before));
  }
}

// A chunk is one head of one row.
void attend(const Args& a, const Part& part) {
  const uint32_t live = attention::live_rows(a, part);
  const Work w(a, part.thread_scratch());
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const uint32_t row = chunk / a.q_heads, head = chunk % a.q_heads;
    if (row >= live) return;
    if (part.ptr<int32_t>(kSlot)[row] < 0) continue;
    const View view(a, part, row, head / a.group, w.seen);
    const Divisor divisor = weigh(a, part, view, head, w);
    std::fill_n(w.mean, a.kv.v.dim, 0.0);
    for (uint32_t i = 0; i < view.size(); ++i) {
      view.value(i, w.row);
      for (uint32_t d = 0; d < a.kv.v.dim; ++d) w.mean[d] += w.score[i] * w.row[d];
    }
    finish(a, part, {row, head}, divisor, w.mean);
  }
}

// Sums the softmax weights of each sequence's last rows, by cell. A chunk is a KV head of a sequence.
void sum_weights(const Args& a, const Part& part) {
  const Work w(a, part.thread_scratch());
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const attention::WeightChunk at = attention::weight_chunk(a, part, chunk);
    for (uint32_t row = at.begin; row < at.end; ++row) {
      const View view(a, part, row, at.kv_head, w.seen);
      for (uint32_t head = at.kv_head * a.group; head < (at.kv_head + 1) * a.group; ++head) {
        weigh(a, part, view, head, w);
        for (uint32_t i = 0; i < view.size(); ++i) at.sums[view.cell(i)] += static_cast<float>(w.score[i]);
      }
    }
  }
}

}  // namespace

tenon_claim Reference::claim(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds&) const {
  const tenon_claim claim = attention::claim_view(a, kv);
  for (const tenon_kv_view* view : {&kv, kv.recent_view}) {
    if (view == nullptr) continue;
    for (const tenon_kv_plane* p : {&view->format->k, &view->format->v}) {
      if (p->codec == TENON_F32) continue;
      throw Refused(std::string("reads f32 caches only, not ") + tenon_format_name(p->codec));
    }
  }
  return claim;
}

tenon_kv_format Reference::preferred_format() const {
  return sdk::plain_kv_format(TENON_F32);
}

namespace {

void record_half(const tenon_attn& a, const tenon_attn_call& call, const attention::Half& half, sdk::Recorder& r) {
  Args args{};
  static_cast<attention::ViewArgs&>(args) = attention::view_args(a, call, half, r);
  // No more cells of a linear cache are in use than the program has tokens.
  const uint64_t longest = args.kv.rule == TENON_POS_LINEAR ? r.bounds().kv_len : args.kv.capacity();
  args.kv_len = static_cast<uint32_t>(std::min(longest, args.kv.capacity()));
  const std::vector<tenon_operand> operands = attention::cpu_operands(call, half, r);
  // Query heads share nothing of what they read.
  const double elements = attention::q_columns(a) + attention::out_columns(a);
  r.emit<attend>({.name = "attention",
                  .operands = operands,
                  .chunks = {args.rows * a.q_heads},
                  .cost = attention::view_cost(a, *call.kv, half, r.bounds(), elements * sizeof(float)),
                  .thread_scratch_bytes = Work::bytes(args)},
                 args);
  attention::record_weights<sum_weights>(call, args, Work::bytes(args), operands, r);
}

}  // namespace

void Reference::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  attention::record_rotated_cpu(a, call, r, [&](const tenon_attn_call& rotated) {
    attention::record_halves(a, rotated, r,
                             [&](const tenon_attn& own, const tenon_attn_call& c, const attention::Half& half) {
                               record_half(own, c, half, r);
                             });
  });
}

}  // namespace tenon::reference

TENON_PLUGIN(tenon::reference::Reference);
