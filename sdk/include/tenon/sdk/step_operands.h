// The step's own ops have these operands on every device: rows whose logits are wanted, pooled hidden states, masks of
// grammars, the verification of drafts. tenon/abi/program.h says what each op does; told.h has a draft model's passes.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/sdk/mask.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/told.h"

namespace tenon::sdk {

enum GatherOperand : uint32_t { kGatherX, kGatherY, kGatherLive, kGatherOutRow, kGatherOperands };
inline std::vector<tenon_operand> gather_operands(tenon_tid x, tenon_tid y, Recorder& rec) {
  return operands_by(kGatherOperands, {{kGatherX, x, TENON_READ},
                                       {kGatherY, y, TENON_WRITE},
                                       {kGatherLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                       {kGatherOutRow, rec.step(TENON_STEP_OUT_ROW), TENON_READ}});
}

enum PoolOperand : uint32_t { kPoolX, kPooled, kPoolLive, kPoolSeqRow, kPoolSeqSlot, kPoolKvLen, kPoolOperands };
inline std::vector<tenon_operand> pool_operands(tenon_tid x, tenon_tid y, Recorder& rec) {
  return operands_by(kPoolOperands, {{kPoolX, x, TENON_READ},
                                     {kPooled, y, TENON_READ | TENON_WRITE},
                                     {kPoolLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                     {kPoolSeqRow, rec.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                     {kPoolSeqSlot, rec.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                     {kPoolKvLen, rec.step(TENON_STEP_KV_LEN), TENON_READ}});
}

enum MaskOperand : uint32_t { kMaskX, kMaskY, kMaskLive, kMaskWords, kMaskNumber, kMaskOperands };
inline std::vector<tenon_operand> mask_operands(const MaskOp& op, tenon_tid x, tenon_tid y, Recorder& rec) {
  return operands_by(kMaskOperands, {{kMaskX, x, TENON_READ},
                                     {kMaskY, y, TENON_WRITE},
                                     {kMaskLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                     {kMaskWords, op.masks, TENON_READ},
                                     {kMaskNumber, op.number, TENON_READ}});
}

enum VerifyOperand : uint32_t {
  kVerifyNext,
  kVerifyAccepted,
  kVerifyLive,
  kVerifyOutRow,
  kVerifySeqRow,
  kVerifyToken,
  kVerifyParent,
  kVerifySurvivor,
  kVerifyTold,
  kVerifyOperands
};
inline std::vector<tenon_operand> verify_operands(const VerifyOp& op, tenon_tid next, tenon_tid accepted,
                                                  Recorder& rec) {
  return operands_by(kVerifyOperands, {{kVerifyNext, next, TENON_READ | TENON_WRITE},
                                       {kVerifyAccepted, accepted, TENON_WRITE},
                                       {kVerifyLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                       {kVerifyOutRow, rec.step(TENON_STEP_OUT_ROW), TENON_READ},
                                       {kVerifySeqRow, rec.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                       {kVerifyToken, rec.step(TENON_STEP_TOKEN), TENON_READ},
                                       {kVerifyParent, rec.step(TENON_STEP_PARENT), TENON_READ},
                                       {kVerifySurvivor, rec.step(TENON_STEP_SURVIVOR), TENON_WRITE},
                                       {kVerifyTold, op.told(), TENON_WRITE}});
}

// What processors of the sampler chain have left stands after these, from kTellLeft on (add_left()).
enum TellOperand : uint32_t { kTellLogits, kTellTold, kTellLive, kTellLeft };
inline std::vector<tenon_operand> tell_operands(const VerifyOp& verify, Recorder& rec) {
  return operands_by(kTellLeft, {{kTellLogits, verify.logits(), TENON_READ},
                                 {kTellTold, verify.told(), TENON_READ | TENON_WRITE},
                                 {kTellLive, rec.step(TENON_STEP_LIVE), TENON_READ}});
}

}  // namespace tenon::sdk
