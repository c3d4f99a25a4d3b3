#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "plugin.h"
#include "tenon/sdk/cpu/kv_reader.h"

namespace tenon::reference {
namespace {

using sdk::Part;
using sdk::Refused;
using sdk::cpu::KvRows;

struct Args {
  sdk::cpu::KvLayout kv;
  int64_t q_row, out_row, lse_row;  // bytes
  uint32_t q_heads, kv_heads, rows, kv_len;
  uint32_t window, tree, has_sink, want_lse;
  float scale, softcap;
};
enum Operand { kQ, kOut, kK, kV, kPages, kLive, kPos, kSlot, kParent, kKvLen, kSink, kLse };

// Which positions of its sequence a row sees: `seen` up to and with its own.
void look(const Args& a, const Part& part, uint32_t row, bool* seen) {
  const auto* pos = part.ptr<int32_t>(kPos);
  const auto* parent = part.ptr<int32_t>(kParent);
  const int32_t last = pos[row];
  const int32_t committed = a.tree != 0 ? part.ptr<int32_t>(kKvLen)[part.ptr<int32_t>(kSlot)[row]] : last + 1;
  for (int32_t t = 0; t <= last; ++t) seen[t] = t < committed;
  if (a.tree != 0) {
    // A parent is an earlier row, which ends the walk.
    for (auto i = static_cast<int32_t>(row), before = i + 1; i >= 0 && i < before; before = i, i = parent[i]) {
      if (pos[i] <= last) seen[pos[i]] = true;
    }
  }
  if (a.window != 0) std::fill_n(seen, std::max<int64_t>(0, int64_t{last} + 1 - a.window), false);
}

void attend_head(const Args& a, const Part& part, uint32_t row, uint32_t head, const bool* seen, double* score) {
  const auto last = static_cast<uint32_t>(part.ptr<int32_t>(kPos)[row]);
  const auto slot = static_cast<uint32_t>(part.ptr<int32_t>(kSlot)[row]);
  const uint32_t kv_head = head / (a.q_heads / a.kv_heads);
  const KvRows keys(a.kv, a.kv.k, part.ptr<void>(kK), part.ptr<int32_t>(kPages), slot, kv_head);
  const KvRows values(a.kv, a.kv.v, part.ptr<void>(kV), part.ptr<int32_t>(kPages), slot, kv_head);
  const auto* q = reinterpret_cast<const float*>(part.ptr<std::byte>(kQ) + row * a.q_row) + size_t{head} * a.kv.k.dim;

  double top = a.has_sink != 0 ? double{part.ptr<float>(kSink)[head]} : -std::numeric_limits<double>::infinity();
  for (uint32_t t = 0; t <= last; ++t) {
    if (!seen[t]) continue;
    const auto* key = reinterpret_cast<const float*>(keys.at(t));
    double dot = 0;
    for (uint32_t d = 0; d < a.kv.k.dim; ++d) dot += double{q[d]} * key[d];
    dot *= a.scale;
    if (a.softcap != 0) dot = a.softcap * std::tanh(dot / a.softcap);
    score[t] = dot;
    top = std::max(top, dot);
  }
  double sum = a.has_sink != 0 ? std::exp(part.ptr<float>(kSink)[head] - top) : 0;
  for (uint32_t t = 0; t <= last; ++t) {
    if (seen[t]) sum += score[t] = std::exp(score[t] - top);
  }
  auto* out = reinterpret_cast<float*>(part.ptr<std::byte>(kOut) + row * a.out_row) + size_t{head} * a.kv.v.dim;
  for (uint32_t d = 0; d < a.kv.v.dim; ++d) {
    double mean = 0;
    for (uint32_t t = 0; t <= last; ++t) {
      if (seen[t]) mean += score[t] * reinterpret_cast<const float*>(values.at(t))[d];
    }
    out[d] = static_cast<float>(mean / sum);
  }
  if (a.want_lse != 0) {
    auto* lse = reinterpret_cast<float*>(part.ptr<std::byte>(kLse) + row * a.lse_row);
    lse[head] = static_cast<float>(top + std::log(sum));
  }
}

// A chunk is one head of one row.
void attend(const Args& a, const Part& part) {
  const uint32_t live = std::min(*part.ptr<uint32_t>(kLive), a.rows);
  auto* score = part.thread_scratch<double>();
  auto* seen = reinterpret_cast<bool*>(score + a.kv_len);
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const uint32_t row = chunk / a.q_heads;
    if (row >= live) return;
    const int32_t pos = part.ptr<int32_t>(kPos)[row];
    if (part.ptr<int32_t>(kSlot)[row] < 0) continue;
    if (pos < 0 || static_cast<uint32_t>(pos) >= a.kv_len) {
      throw sdk::Failed("position " + std::to_string(pos) + " in a program for " + std::to_string(a.kv_len) +
                        " tokens");
    }
    look(a, part, row, seen);
    attend_head(a, part, row, chunk % a.q_heads, seen, score);
  }
}

}  // namespace

tenon_claim Reference::claim(const tenon_attn& a, const tenon_kv_format& f, const tenon_bounds&) const {
  if (const char* why = sdk::cpu::not_plain(f)) throw Refused(why);
  if (f.k.codec != TENON_F32 || f.v.codec != TENON_F32) {
    throw Refused(std::string("reads f32 caches only, not ") +
                  tenon_format_name(f.k.codec != TENON_F32 ? f.k.codec : f.v.codec));
  }
  if (a.q_format != TENON_F32) throw Refused("queries that are not f32");
  if (a.kv_heads == 0 || a.q_heads == 0 || a.q_heads % a.kv_heads != 0) {
    throw Refused(std::to_string(a.q_heads) + " query heads cannot share " + std::to_string(a.kv_heads) + " KV heads");
  }
  if (a.k_dim == 0 || a.v_dim == 0) throw Refused("heads without dimensions");
  if (a.mask != TENON_MASK_CAUSAL && a.mask != TENON_MASK_PARENT) throw Refused("an unknown mask");
  auto claim = sdk::abi_struct<tenon_claim>();
  claim.rank = -1;
  return claim;
}

tenon_kv_format Reference::preferred_format() const {
  return sdk::cpu::plain_kv_format(TENON_F32);
}

void Reference::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  Args args{};
  args.kv = sdk::cpu::kv_layout(*call.kv);
  if (args.kv.heads != a.kv_heads || args.kv.k.dim != a.k_dim || args.kv.v.dim != a.v_dim) {
    throw sdk::Failed("the cache's heads are not the layer's");
  }
  args.q_row = r.describe(call.q).stride[0], args.out_row = r.describe(call.out).stride[0];
  args.want_lse = a.want_lse != 0 && call.lse != 0, args.has_sink = a.has_sink;
  if (args.want_lse != 0) args.lse_row = r.describe(call.lse).stride[0];
  args.q_heads = a.q_heads, args.kv_heads = a.kv_heads, args.rows = r.bounds().rows;
  args.kv_len = static_cast<uint32_t>(std::min<uint64_t>(r.bounds().kv_len, args.kv.capacity()));
  args.window = a.window, args.tree = a.mask == TENON_MASK_PARENT;
  args.scale = a.scale, args.softcap = a.softcap;
  const tenon_operand operands[] = {{call.q, TENON_READ},
                                    {call.out, TENON_WRITE},
                                    {call.kv->k, TENON_READ},
                                    {call.kv->v, TENON_READ},
                                    {call.kv->pages, TENON_READ},
                                    {r.step(TENON_STEP_LIVE), TENON_READ},
                                    {r.step(TENON_STEP_POS), TENON_READ},
                                    {r.step(TENON_STEP_SLOT), TENON_READ},
                                    {r.step(TENON_STEP_PARENT), TENON_READ},
                                    {r.step(TENON_STEP_KV_LEN), TENON_READ},
                                    {a.has_sink != 0 ? call.sink : call.q, TENON_READ},
                                    {args.want_lse != 0 ? call.lse : call.out, TENON_WRITE}};
  const double q_columns = double(a.q_heads) * a.k_dim, out_columns = double(a.q_heads) * a.v_dim;
  tenon_cost cost{};
  cost.read[1] = q_columns * sizeof(float), cost.written[1] = out_columns * sizeof(float);
  cost.read[2] = (q_columns + out_columns) * sizeof(float);  // nothing is shared between query heads
  cost.flops[2] = 2 * (q_columns + out_columns);
  r.emit<attend>({.name = "attention",
                  .operands = operands,
                  .chunks = {args.rows * a.q_heads},
                  .cost = cost,
                  .thread_scratch_bytes = uint64_t{args.kv_len} * (sizeof(double) + sizeof(bool))},
                 args);
}

}  // namespace tenon::reference

TENON_PLUGIN(tenon::reference::Reference);
