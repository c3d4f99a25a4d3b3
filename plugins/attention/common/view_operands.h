// An attention that reads every KV view records these operands and these arguments, on any device.
#pragma once

#include <string>
#include <vector>

#include "tenon/abi/attention.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/kv_layout.h"
#include "tenon/sdk/recorder.h"

namespace tenon::attention {

// The operands stand in this order. An op may have others after them.
enum ViewOperand {
  kQ,
  kOut,
  kKeyPlane,
  kValuePlane,
  kKeyScales,  // A cache without scales gives its planes again.
  kValueScales,
  kPages,
  kPlace,
  kUsed,   // A view without a table gives KV_LEN.
  kTable,  // A view without a table gives KV_LEN.
  kLive,
  kPos,
  kSlot,
  kParent,
  kKvLen,
  kSeqSlot,
  kSeqRow,
  kRope,  // A cache that keeps keys after rope gives Q.
  kViewOperands
};

// The claimed ROPE turns queries, and keys that the cache keeps before it. `rotated` is 0 where nothing was claimed.
struct Turn {
  int32_t rotated = 0, pairing = 0;
  tenon_tid table = 0;
};

inline Turn claimed_turn(const tenon_attn_call& call) {
  Turn turn;
  for (const tenon_fop& op : sdk::ops_of(call.pro)) {
    if (op.id != TENON_F_ROPE) throw sdk::Failed("an op that was not claimed: " + std::to_string(op.id));
    turn = {.rotated = op.i[0], .pairing = op.i[1], .table = op.t[0]};
  }
  return turn;
}

// The view's heads must be the layer's: a view of others throws Failed.
inline sdk::KvLayout layout_of(const tenon_attn& a, const tenon_kv_view& view) {
  const sdk::KvLayout layout = sdk::kv_layout(view);
  if (layout.heads != a.kv_heads || layout.k.dim != a.k_dim || layout.v.dim != a.v_dim) {
    throw sdk::Failed("the cache's heads are not the layer's");
  }
  return layout;
}

inline std::vector<tenon_operand> view_operands(const tenon_attn_call& call, const Turn& turn, sdk::Recorder& r) {
  const tenon_kv_view& kv = *call.kv;
  const bool table = kv.pos_rule == TENON_POS_TABLE;
  const auto state = [&](uint32_t role) { return tenon_operand{r.step(role), TENON_READ}; };
  const tenon_operand kv_len = state(TENON_STEP_KV_LEN);
  return {{call.q, TENON_READ},
          {call.out, TENON_WRITE},
          {kv.k, TENON_READ},
          {kv.v, TENON_READ},
          {kv.k_scale != 0 ? kv.k_scale : kv.k, TENON_READ},
          {kv.v_scale != 0 ? kv.v_scale : kv.v, TENON_READ},
          {kv.pages, TENON_READ},
          {kv.place, TENON_READ},
          table ? tenon_operand{kv.used, TENON_READ} : kv_len,
          table ? tenon_operand{kv.pos, TENON_READ} : kv_len,
          state(TENON_STEP_LIVE),
          state(TENON_STEP_POS),
          state(TENON_STEP_SLOT),
          state(TENON_STEP_PARENT),
          kv_len,
          state(TENON_STEP_SEQ_SLOT),
          state(TENON_STEP_SEQ_ROW),
          {turn.table != 0 ? turn.table : call.q, TENON_READ}};
}

}  // namespace tenon::attention
