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

// Throws Failed if the prologue has an op that claim_view() never claims.
inline std::vector<tenon_operand> view_operands(const tenon_attn_call& call, const Half& half, sdk::Recorder& r) {
  check_claimed(call);
  const tenon_tid rope_table = claimed_rope(call).table;
  const tenon_kv_view& kv = *call.kv;
  const tenon_operand kv_len = {r.step(TENON_STEP_KV_LEN), TENON_READ};
  std::vector<tenon_operand> operands(kViewOperands, kv_len);
  const auto read = [&](ViewOperand i, tenon_tid tensor) { operands[i] = {tensor, TENON_READ}; };
  read(kQ, call.q);
  operands[kOut] = result_operand(call, half);
  read(kKeyPlane, kv.k);
  read(kValuePlane, kv.v);
  read(kKeyScales, kv.k_scale != 0 ? kv.k_scale : kv.k);
  read(kValueScales, kv.v_scale != 0 ? kv.v_scale : kv.v);
  read(kPages, kv.pages);
  read(kPlace, kv.place);
  if (kv.pos_rule == TENON_POS_TABLE) {
    read(kUsed, kv.used);
    read(kTable, kv.pos);
  }
  read(kLive, r.step(TENON_STEP_LIVE));
  read(kPos, r.step(TENON_STEP_POS));
  read(kSlot, r.step(TENON_STEP_SLOT));
  read(kParent, r.step(TENON_STEP_PARENT));
  read(kSeqSlot, r.step(TENON_STEP_SEQ_SLOT));
  read(kSeqRow, r.step(TENON_STEP_SEQ_ROW));
  read(kRope, rope_table != 0 ? rope_table : call.q);
  if (kv.most_spans != 0) read(kChosen, kv.chosen);
  operands[kSums] = sums_operand(half, kv_len);
  return operands;
}

}  // namespace tenon::attention
