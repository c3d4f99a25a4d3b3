// An attention that reads every KV view records these operands, on any device.
#pragma once

#include <vector>

#include "set_up.h"
#include "tenon/abi/attention.h"
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
  kRope,    // A cache that keeps keys after rope gives Q.
  kChosen,  // A view without spans gives KV_LEN.
  kSums,    // A view that is no half of one with a tail gives KV_LEN.
  kViewOperands
};

// Returns the operand of a half's result, and that of its sums; `none` if there are none.
inline tenon_operand result_operand(const tenon_attn_call& call, const Half& half) {
  return {call.out, half.joining == kJoins ? uint32_t{TENON_READ | TENON_WRITE} : uint32_t{TENON_WRITE}};
}
inline tenon_operand sums_operand(const Half& half, const tenon_operand& none) {
  if (half.joining == kAlone) return none;
  return {half.sums, half.joining == kJoins ? uint32_t{TENON_READ} : uint32_t{TENON_WRITE}};
}

inline std::vector<tenon_operand> view_operands(const tenon_attn_call& call, const Half& half, sdk::Recorder& r) {
  const tenon_tid rope_table = claimed_rope(call).table;
  const tenon_kv_view& kv = *call.kv;
  const bool table = kv.pos_rule == TENON_POS_TABLE;
  const auto state = [&](uint32_t role) { return tenon_operand{r.step(role), TENON_READ}; };
  const tenon_operand kv_len = state(TENON_STEP_KV_LEN);
  return {{call.q, TENON_READ},
          result_operand(call, half),
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
          {rope_table != 0 ? rope_table : call.q, TENON_READ},
          kv.most_spans != 0 ? tenon_operand{kv.chosen, TENON_READ} : kv_len,
          sums_operand(half, kv_len)};
}

}  // namespace tenon::attention
