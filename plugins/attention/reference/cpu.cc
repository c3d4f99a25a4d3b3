#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "../common/view_operands.h"
#include "plugin.h"
#include "tenon/sdk/cpu/kv_reader.h"

namespace tenon::reference {
namespace {

using sdk::Part;
using sdk::Refused;
using sdk::cpu::KvCells;

struct Args {
  sdk::KvLayout kv;
  int64_t q_row, out_row;  // bytes
  uint32_t q_heads, kv_heads, rows, seqs;
  uint32_t kv_len, window;  // kv_len: cells of a sequence in this program
  uint32_t weight_rows;
  int32_t rotated, pairing;  // of keys before rope; rotated 0: they come after it
  float scale, softcap;
  uint32_t reserved = 0;
};
using enum attention::ViewOperand;
constexpr uint32_t kWeights = kViewOperands;  // Only sum_weights writes it.

// The cells that a row sees, in order of their positions, ties in order of the cells.
struct Seen {
  int32_t position;
  uint32_t cell;
};

// One KV head as one row of the step sees it.
class View {
 public:
  View(const Args& a, const Part& part, uint32_t row, uint32_t kv_head, Seen* seen)
      : a_(a),
        part_(part),
        head_(kv_head),
        slot_(static_cast<uint32_t>(part.ptr<int32_t>(kSlot)[row])),
        position_(part.ptr<int32_t>(kPos)[row]),
        keys_(a.kv, a.kv.k, part.ptr<void>(kKeyPlane), part.ptr<void>(kKeyScales), part.ptr<int32_t>(kPages), slot_,
              kv_head),
        values_(a.kv, a.kv.v, part.ptr<void>(kValuePlane), part.ptr<void>(kValueScales), part.ptr<int32_t>(kPages),
                slot_, kv_head),
        seen_(seen) {
    find_old(row);
    find_new(row);
    std::sort(seen_, seen_ + n_, [](const Seen& x, const Seen& y) {
      return x.position != y.position ? x.position < y.position : x.cell < y.cell;
    });
  }

  uint32_t size() const { return n_; }
  uint32_t cell(uint32_t i) const { return seen_[i].cell; }
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
  // By the angles of table row `index`, if the cache keeps keys before rope.
  void turn(double* x, uint32_t index) const {
    const auto half = static_cast<uint32_t>(a_.rotated / 2);
    const float* table = half == 0 ? nullptr : part_.ptr<const float>(kRope) + size_t{index} * half * 2;
    for (uint32_t i = 0; i < half; ++i) {
      double& first = x[a_.pairing == 0 ? i : 2 * i];
      double& second = x[a_.pairing == 0 ? i + half : 2 * i + 1];
      const double c = table[2 * i], s = table[2 * i + 1], u = first, v = second;
      first = u * c - v * s, second = u * s + v * c;
    }
  }
  uint32_t place(uint32_t row) const {
    const auto* place = part_.ptr<const int32_t>(kPlace);
    return static_cast<uint32_t>(a_.kv.apart() ? place[row * a_.kv.heads + head_] : place[row]);
  }
  // The position of an old cell, or -1.
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
  void find_old(uint32_t row) {
    const auto* slots = part_.ptr<const int32_t>(kSlot);
    const uint32_t live = std::min(*part_.ptr<uint32_t>(kLive), a_.rows);
    const int32_t kv_len = part_.ptr<int32_t>(kKvLen)[slot_];
    uint64_t cells = a_.kv.capacity();
    if (a_.kv.rule == TENON_POS_LINEAR) cells = std::min<uint64_t>(cells, static_cast<uint64_t>(kv_len));
    if (a_.kv.rule == TENON_POS_RING) cells = std::min<uint64_t>(cells, uint64_t{a_.kv.sinks} + a_.kv.ring);
    if (a_.kv.rule == TENON_POS_TABLE) {
      const auto* used = part_.ptr<const int32_t>(kUsed);
      cells = static_cast<uint64_t>(a_.kv.apart() ? used[slot_ * a_.kv.heads + head_] : used[slot_]);
    }
    uint32_t first = row, last = row;  // rows of the sequence
    while (first > 0 && slots[first - 1] == slots[row]) --first;
    while (last + 1 < live && slots[last + 1] == slots[row]) ++last;
    for (uint32_t cell = 0; cell < cells; ++cell) {
      const int32_t p = old_position(cell, kv_len);
      if (p < 0 || p > position_ || !in_windows(p)) continue;
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
      if (in_windows(p)) seen_[n_++] = {p, cell};
    }
  }

  const Args& a_;
  const Part& part_;
  uint32_t head_, slot_;
  int32_t position_;
  KvCells keys_, values_;
  Seen* seen_;
  uint32_t n_ = 0;
};

// What a chunk works in.
struct Work {
  Work(const Args& a, void* memory) {
    score = static_cast<double*>(memory);
    q = score + a.kv_len, k = q + a.kv.k.dim, mean = k + a.kv.k.dim;
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
  float* row;     // a key or a value
};

// The softmax of a query head of a row over what the view sees, into w.score.
void weigh(const Args& a, const Part& part, const View& view, uint32_t row, uint32_t head, const Work& w) {
  const auto* q = reinterpret_cast<const float*>(part.ptr<std::byte>(kQ) + row * a.q_row) + size_t{head} * a.kv.k.dim;
  view.query(q, w.q);
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
  for (uint32_t i = 0; i < view.size(); ++i) sum += w.score[i] = std::exp(w.score[i] - top);
  for (uint32_t i = 0; i < view.size(); ++i) w.score[i] /= sum;
}

// A chunk is one head of one row.
void attend(const Args& a, const Part& part) {
  const uint32_t live = std::min(*part.ptr<uint32_t>(kLive), a.rows);
  const Work w(a, part.thread_scratch());
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const uint32_t row = chunk / a.q_heads, head = chunk % a.q_heads;
    if (row >= live) return;
    if (part.ptr<int32_t>(kSlot)[row] < 0) continue;
    const View view(a, part, row, head / (a.q_heads / a.kv_heads), w.seen);
    weigh(a, part, view, row, head, w);
    auto* out = reinterpret_cast<float*>(part.ptr<std::byte>(kOut) + row * a.out_row) + size_t{head} * a.kv.v.dim;
    std::fill_n(w.mean, a.kv.v.dim, 0.0);
    for (uint32_t i = 0; i < view.size(); ++i) {
      view.value(i, w.row);
      for (uint32_t d = 0; d < a.kv.v.dim; ++d) w.mean[d] += w.score[i] * w.row[d];
    }
    for (uint32_t d = 0; d < a.kv.v.dim; ++d) out[d] = static_cast<float>(w.mean[d]);
  }
}

// The softmax weights of each sequence's last rows, by cell. A chunk is a KV head of a sequence.
void sum_weights(const Args& a, const Part& part) {
  const uint32_t seqs = part.ptr<uint32_t>(kLive)[1];
  const Work w(a, part.thread_scratch());
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const uint32_t seq = chunk / a.kv_heads, kv_head = chunk % a.kv_heads, group = a.q_heads / a.kv_heads;
    if (seq >= seqs) return;
    const int32_t slot = part.ptr<int32_t>(kSeqSlot)[seq];
    if (slot < 0) continue;
    const auto end = static_cast<uint32_t>(part.ptr<int32_t>(kSeqRow)[seq + 1]);
    const auto begin =
        std::max(static_cast<uint32_t>(part.ptr<int32_t>(kSeqRow)[seq]), end > a.weight_rows ? end - a.weight_rows : 0);
    const auto cells = static_cast<size_t>(a.kv.capacity());
    float* sums = part.ptr<float>(kWeights) + (static_cast<size_t>(slot) * a.kv_heads + kv_head) * cells;
    std::fill_n(sums, cells, 0.0f);
    for (uint32_t row = begin; row < end; ++row) {
      const View view(a, part, row, kv_head, w.seen);
      for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        weigh(a, part, view, row, head, w);
        for (uint32_t i = 0; i < view.size(); ++i) sums[view.cell(i)] += static_cast<float>(w.score[i]);
      }
    }
  }
}

}  // namespace

tenon_claim Reference::claim(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds&) const {
  if (const std::string why = sdk::kv_unread(kv, sdk::kReadsEverything); !why.empty()) throw Refused(why);
  for (const tenon_kv_plane* p : {&kv.format->k, &kv.format->v}) {
    if (p->codec != TENON_F32) throw Refused(std::string("reads f32 caches only, not ") + tenon_format_name(p->codec));
  }
  sdk::check_heads(a);
  auto claim = sdk::abi_struct<tenon_claim>();
  const std::vector<tenon_fop> pro = sdk::ops_of(a.pro);
  if (kv.format->rotated == 0 && !pro.empty() && pro.back().id == TENON_F_ROPE) claim.pro = 1;
  return claim;
}

tenon_kv_format Reference::preferred_format() const {
  return sdk::plain_kv_format(TENON_F32);
}

void Reference::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  const tenon_kv_view& kv = *call.kv;
  Args args{};
  args.kv = attention::layout_of(a, kv);
  args.q_row = r.describe(call.q).stride[0], args.out_row = r.describe(call.out).stride[0];
  args.q_heads = a.q_heads, args.kv_heads = a.kv_heads, args.rows = r.bounds().rows, args.seqs = r.bounds().seqs;
  // Of a linear cache no more cells are in use than the program has tokens.
  const uint64_t longest = kv.pos_rule == TENON_POS_LINEAR ? r.bounds().kv_len : args.kv.capacity();
  args.kv_len = static_cast<uint32_t>(std::min(longest, args.kv.capacity()));
  args.window = a.window, args.scale = a.scale, args.softcap = a.softcap, args.weight_rows = kv.weight_rows;
  const attention::Turn turn = attention::claimed_turn(call);
  args.rotated = turn.rotated, args.pairing = turn.pairing;
  std::vector<tenon_operand> operands = attention::view_operands(call, turn, r);
  const double q_columns = double(a.q_heads) * a.k_dim, out_columns = double(a.q_heads) * a.v_dim;
  tenon_cost cost{};
  cost.read[1] = q_columns * sizeof(float), cost.written[1] = out_columns * sizeof(float);
  cost.read[2] = (q_columns + out_columns) * sizeof(float);  // nothing is shared between query heads
  cost.flops[2] = 2 * (q_columns + out_columns);
  r.emit<attend>({.name = "attention",
                  .operands = operands,
                  .chunks = {args.rows * a.q_heads},
                  .cost = cost,
                  .thread_scratch_bytes = Work::bytes(args)},
                 args);
  if (kv.weight_rows == 0) return;
  operands[kOut] = operands[kQ];
  operands.push_back({kv.weights, TENON_WRITE});
  r.emit<sum_weights>({.name = "weights",
                       .operands = operands,
                       .chunks = {args.seqs * a.kv_heads},
                       .thread_scratch_bytes = Work::bytes(args)},
                      args);
}

}  // namespace tenon::reference

TENON_PLUGIN(tenon::reference::Reference);
