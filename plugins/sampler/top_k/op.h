// The op reads and writes these on every device.
#pragma once

#include "tenon/sdk/cpu/candidates.h"

namespace tenon::top_k {

enum Operand : uint32_t { kParams = sdk::cpu::kOwnOperand, kKeptLogit, kKeptId, kKeptCount };

// Rewrites c: SPARSE, room for all.
inline sdk::cpu::CandidateOp sorted_op(tenon_candidates& c, tenon_tid params, sdk::Recorder& r) {
  const tenon_candidates in = c;
  const uint32_t rows = r.bounds().out_rows;
  c.logits = sdk::cpu::temp_logits(in, r);
  c.form = TENON_SPARSE;
  c.cap = in.form == TENON_DENSE ? in.vocab : in.cap;
  c.id = r.temp(sdk::tensor(TENON_I32, {rows, c.cap}));
  c.count = r.temp(sdk::tensor(TENON_I32, {rows}));
  return sdk::cpu::CandidateOp(
      in, r, {{params, TENON_READ}, {c.logits, TENON_WRITE}, {c.id, TENON_WRITE}, {c.count, TENON_WRITE}});
}

}  // namespace tenon::top_k
