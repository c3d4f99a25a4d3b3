// Names for what stands where in a tenon_fop, for the ops that the host and several plugins read or write. The list in
// tenon/abi/program.h is the rule. TENON_F_VERIFY is in tenon/sdk/told.h, heads are in tenon/sdk/op.h.
#pragma once

#include <cstdint>

#include "tenon/abi/program.h"
#include "tenon/sdk/error.h"

namespace tenon::sdk {

// TENON_F_RMSNORM: y = x * rsqrt(mean(x^2) + eps) * weight.
struct RmsNormOp {
  tenon_tid weight;  // f32[columns]
  float eps;

  explicit RmsNormOp(const tenon_fop& op) : weight(op.t[0]), eps(op.f[0]) {}
};

// TENON_F_BIAS and TENON_F_ADD: y = x + addend.
struct AddOp {
  tenon_tid addend;  // BIAS: f32[columns], ADD: f32[rows][columns]

  explicit AddOp(const tenon_fop& op) : addend(op.t[0]) {}
};

// TENON_F_ROPE turns pairs of the first `rotated` dimensions of a head by angles of the row's position.
struct RopeOp {
  tenon_tid table;  // f32[positions][rotated / 2][2]: cosine and sine
  int32_t rotated;  // dimensions
  int32_t pairing;  // 0: dimension i with i + rotated / 2; 1: 2 i with 2 i + 1

  explicit RopeOp(const tenon_fop& op) : table(op.t[0]), rotated(op.i[0]), pairing(op.i[1]) {}
};

// TENON_F_ADVANCE ends a sampling step on a device with queues: rows move on, and the host hears what was chosen.
struct AdvanceOp {
  tenon_tid count;          // u32[1]
  uint32_t entries;         // of what the host hears
  uint32_t entry_words;     // words of an entry
  bool moves_on;            // the rows become those of the next step
  uint32_t first_survivor;  // the first word of an entry that holds a survivor; 0 for a step without trees

  tenon_fop fop() const {
    auto op = abi_struct<tenon_fop>();
    op.id = TENON_F_ADVANCE;
    op.t[0] = count;
    op.i[0] = static_cast<int32_t>(entries);
    op.i[1] = static_cast<int32_t>(entry_words);
    op.i[2] = moves_on ? 1 : 0;
    op.i[3] = static_cast<int32_t>(first_survivor);
    return op;
  }
};

}  // namespace tenon::sdk
