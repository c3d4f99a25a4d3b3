// Every attention that reads a KV view prepares this: its claim, the arguments of its ops, and what they cost; the same
// on any device. view_operands.h has the operands.
//
//   return attention::claim_view(a, kv);                            in claim(), before what is the attention's own
//   static_cast<attention::ViewArgs&>(args) = attention::view_args(a, call, half, r);   in record()
//
// An example: 32 query heads that share 8 KV heads of 128 dimensions, 200 rows in a program, fp16 keys and values. A
// row of q and of out are 4096 floats; group is 4. An op whose query heads share what is read costs 8 * 2 * 128 * 2
// bytes for each token that a row attends to, one whose query heads do not share it four times as much.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "recent.h"
#include "tenon/sdk/attention.h"
#include "tenon/sdk/attention_sinks.h"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/kv_layout.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/rope_pairs.h"

namespace tenon::attention {

// Returns the first position that a window of so many shows a row at that position; without a window (0) it sees all.
constexpr uint32_t after_window(uint32_t position, uint32_t window) {
  return window != 0 && position >= window ? position + 1 - window : 0;
}

// Attention ops share these arguments. Each derives its own from these.
struct ViewArgs {
  sdk::KvLayout kv;
  int64_t q_row, out_row;    // a row of q, or of an f32 out, begins so many floats after the one before
  uint32_t q_heads, group;   // group: so many query heads share a KV head
  uint32_t rows, seqs;       // the program's bounds
  uint32_t window;           // the layer's window has so many positions; 0: it has none
  uint32_t trees;            // the bounds' trees; 0: the rows of a sequence are a chain
  uint32_t weight_rows;      // the cache wants the softmax weights of so many rows of a sequence
  uint32_t sinks;            // 1: an operand has the logits of learned sinks
  uint32_t span_cells;       // a span that the cache chooses has so many cells
  uint32_t most_spans;       // so many spans are chosen for a row and KV head; 0: rows see all
  int32_t rotated, pairing;  // this rope turns keys that are kept before it; rotated 0: they are kept after it
  float scale, softcap;
  uint32_t only_out_rows;    // 1: of the result only the rows of TENON_STEP_OUT_ROW are read
  uint32_t hidden, joining;  // recent.h says what they are for one half of a view with a tail.

  // Keys that are kept before rope, and queries, turn so.
  constexpr sdk::RopePairs rope_pairs() const { return {static_cast<uint32_t>(rotated), pairing}; }
  // A row at position n sees positions [first(n), past(n)) of those that the view's own window leaves.
  constexpr uint32_t first(uint32_t n) const { return after_window(n, window); }
  constexpr uint32_t past(uint32_t n) const { return n + 1 > hidden ? n + 1 - hidden : 0; }
};

// The claimed ROPE turns queries, and keys that the cache keeps before it. `rotated` is 0 where nothing was claimed.
struct ClaimedRope {
  tenon_tid table = 0;
  int32_t rotated = 0, pairing = 0;
};
inline ClaimedRope claimed_rope(const tenon_attn_call& call) {
  for (const tenon_fop& op : sdk::ops_of(call.pro)) {
    if (op.id != TENON_F_ROPE) continue;
    const sdk::RopeOp rope(op);
    return {.table = rope.table, .rotated = rope.rotated, .pairing = rope.pairing};
  }
  return {};
}

// Throws Refused for a view that has no reader, and for heads that no attention can have. The result claims the ROPE
// before the attention if the cache keeps keys before it, and learned sinks. It claims nothing else.
inline tenon_claim claim_view(const tenon_attn& a, const tenon_kv_view& kv) {
  if (const std::string why = sdk::kv_unread(kv, sdk::kReadsEverything); !why.empty()) throw sdk::Refused(why);
  sdk::check_heads(a);
  auto claim = sdk::abi_struct<tenon_claim>();
  std::vector<tenon_fop> pro = sdk::ops_of(a.pro);
  if (sdk::has_sinks(a.pro)) {
    ++claim.pro;
    pro.pop_back();
  }
  if (kv.format->rotated == 0 && !pro.empty() && pro.back().id == TENON_F_ROPE) ++claim.pro;
  return claim;
}
// Throws Failed if the prologue has an op that neither claim_view() claims nor is one of `more`, which the attention
// claims besides.
inline void check_claimed(const tenon_attn_call& call, std::initializer_list<tenon_id> more = {}) {
  for (const tenon_fop& op : sdk::ops_of(call.pro)) {
    if (op.id == TENON_F_ROPE || op.id == sdk::kAttentionSinks) continue;
    if (std::find(more.begin(), more.end(), op.id) != more.end()) continue;
    throw sdk::Failed("an op that was not claimed: " + std::to_string(op.id));
  }
}

// The view's heads must be the layer's: a view of others throws Failed.
inline sdk::KvLayout layout_of(const tenon_attn& a, const tenon_kv_view& view) {
  const sdk::KvLayout layout = sdk::kv_layout(view);
  if (layout.heads != a.kv_heads || layout.k.dim != a.k_dim || layout.v.dim != a.v_dim) {
    throw sdk::Failed("the cache's heads are not the layer's");
  }
  return layout;
}

inline ViewArgs view_args(const tenon_attn& a, const tenon_attn_call& call, const Half& half, sdk::Recorder& r) {
  const ClaimedRope rope = claimed_rope(call);
  ViewArgs args{};
  args.kv = layout_of(a, *call.kv);
  args.q_row = r.floats_of_row(call.q);
  args.out_row = r.floats_of_row(call.out);
  args.q_heads = a.q_heads;
  args.group = a.q_heads / a.kv_heads;
  args.rows = r.bounds().rows;
  args.seqs = r.bounds().seqs;
  args.window = a.window;
  args.trees = r.bounds().trees;
  args.weight_rows = call.kv->weight_rows;
  args.sinks = sdk::has_sinks(call.pro) ? 1 : 0;
  args.span_cells = call.kv->span_cells;
  args.most_spans = call.kv->most_spans;
  args.rotated = rope.rotated;
  args.pairing = rope.pairing;
  args.scale = a.scale;
  args.softcap = a.softcap;
  args.only_out_rows = call.only_out_rows;
  args.hidden = half.hidden;
  args.joining = half.joining;
  return args;
}

// These return how many numbers a row of q has, and a row of out.
inline double q_columns(const tenon_attn& a) {
  return double(a.q_heads) * a.k_dim;
}
inline double out_columns(const tenon_attn& a) {
  return double(a.q_heads) * a.v_dim;
}

// Returns how many tokens a row of any step of these bounds reads at most, because spans are chosen for it or it reads
// a tail. 0: it reads all that it attends to.
inline double tokens_chosen(const tenon_attn& a, const Half& half, const tenon_kv_view& view, const tenon_bounds& b) {
  if (half.joining == kLeaves) return std::min(a.window, b.kv_len);
  const uint64_t most = uint64_t{view.most_spans} * view.span_cells;
  return b.rows_per_seq <= view.chosen_rows && most < b.kv_len ? static_cast<double>(most) : 0;
}

// An attention op reads cache_bytes bytes of the cache for each token that a row attends to. A row attends to so many
// tokens at most; 0: to all that its context has.
struct ReadTokens {
  double cache_bytes, most;
};
// `out_bytes` are those of an element of the result.
inline tenon_cost attention_cost(const tenon_attn& a, const ReadTokens& tokens, double out_bytes = sizeof(float)) {
  tenon_cost cost{};
  const double flops = 2 * (q_columns(a) + out_columns(a));
  cost.read[sdk::kCostPerRow] = q_columns(a) * sizeof(float) + tokens.most * tokens.cache_bytes;
  cost.written[sdk::kCostPerRow] = out_columns(a) * out_bytes;
  cost.flops[sdk::kCostPerRow] = tokens.most * flops;
  if (tokens.most == 0) cost.read[sdk::kCostPerToken] = tokens.cache_bytes;
  if (tokens.most == 0) cost.flops[sdk::kCostPerToken] = flops;
  return cost;
}
// Returns a share of a cost.
inline tenon_cost share_of(tenon_cost cost, double share) {
  for (auto* kind : {&cost.read, &cost.written, &cost.flops}) {
    for (double& of : *kind) of *= share;
  }
  return cost;
}
// Returns the share of its cost that an attention has where only some rows of its result are read.
inline tenon_cost cost_of_out_rows(const tenon_cost& cost, const ViewArgs& args, const tenon_bounds& b) {
  return args.only_out_rows == 0 ? cost : share_of(cost, double(b.out_rows) / b.rows);
}
// Returns the cost of an op over a view. Where spans are chosen, it is that of a context of more tokens than they have.
inline tenon_cost view_cost(const tenon_attn& a, const tenon_kv_view& view, const Half& half, const tenon_bounds& b,
                            double cache_bytes) {
  return attention_cost(a, {.cache_bytes = cache_bytes, .most = tokens_chosen(a, half, view, b)});
}

}  // namespace tenon::attention
