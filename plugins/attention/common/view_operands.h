// Attentions that read a KV view record these operands, on any device: those of a plain chain of keys and values, and
// what any other view needs besides.
#pragma once

#include <vector>

#include "set_up.h"
#include "tenon/abi/attention.h"
#include "tenon/sdk/recorder.h"

namespace tenon::attention {

// An op over a plain chain has these, and may have others after them. Q stands in the place of those that are not there.
enum ChainOperand {
  kQ,
  kOut,
  kKeyPlane,
  kValuePlane,
  kKeyScales,  // A cache without scales has none.
  kValueScales,
  kPages,
  kLive,
  kPos,
  kSlot,
  kKvLen,
  kSeqSlot,
  kSeqRow,
  kRope,    // f32[positions][rotated / 2][2]; a cache that keeps keys after rope needs none.
  kSums,    // A view that is no half of one with a tail has none.
  kOutRow,  // ascending; there where only_out_rows is 1
  kChainOperands
};
// An op over any view has these, too.
enum ViewOperand {
  kPlace = kChainOperands,
  kUsed,    // A view without a table has none.
  kTable,   // A view without a table has none.
  kParent,  // The rows' parents in a tree of drafts.
  kChosen,  // A view without spans has none.
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

// Returns the operands of ChainOperand.
inline std::vector<tenon_operand> chain_operands(const tenon_attn_call& call, const Half& half, sdk::Recorder& r) {
  const tenon_kv_view& kv = *call.kv;
  const tenon_operand q = {call.q, TENON_READ}, out = result_operand(call, half), sums = sums_operand(half, q);
  return sdk::operands_by(kChainOperands,
                          {{kQ, q.tensor, q.access},
                           {kOut, out.tensor, out.access},
                           {kKeyPlane, kv.k, TENON_READ},
                           {kValuePlane, kv.v, TENON_READ},
                           {kPages, kv.pages, TENON_READ},
                           {kLive, r.step(TENON_STEP_LIVE), TENON_READ},
                           {kPos, r.step(TENON_STEP_POS), TENON_READ},
                           {kSlot, r.step(TENON_STEP_SLOT), TENON_READ},
                           {kKvLen, r.step(TENON_STEP_KV_LEN), TENON_READ},
                           {kSeqSlot, r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                           {kSeqRow, r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                           {kSums, sums.tensor, sums.access}},
                          q,
                          {{kKeyScales, kv.k_scale, TENON_READ},
                           {kValueScales, kv.v_scale, TENON_READ},
                           {kRope, claimed_rope(call).table, TENON_READ},
                           {kOutRow, call.only_out_rows != 0 ? r.step(TENON_STEP_OUT_ROW) : 0, TENON_READ}});
}

// Returns those of ChainOperand and of ViewOperand. Throws Failed if the prologue has an op that claim_view() never
// claims.
inline std::vector<tenon_operand> view_operands(const tenon_attn_call& call, const Half& half, sdk::Recorder& r) {
  check_claimed(call);
  const tenon_kv_view& kv = *call.kv;
  std::vector<tenon_operand> operands = chain_operands(call, half, r);
  operands.resize(kViewOperands, operands[kQ]);
  const auto read = [&](ViewOperand i, tenon_tid tensor) { operands[i] = {tensor, TENON_READ}; };
  read(kPlace, kv.place);
  if (kv.pos_rule == TENON_POS_TABLE) {
    read(kUsed, kv.used);
    read(kTable, kv.pos);
  }
  read(kParent, r.step(TENON_STEP_PARENT));
  if (kv.most_spans != 0) read(kChosen, kv.chosen);
  return operands;
}

}  // namespace tenon::attention
