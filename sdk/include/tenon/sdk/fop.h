// Names for what stands where in a tenon_fop, for the ops that the host and several plugins read or write. The list in
// tenon/abi/program.h is the rule. TENON_F_VERIFY is in tenon/sdk/told.h.
#pragma once

#include <cstdint>

#include "tenon/abi/program.h"
#include "tenon/sdk/error.h"

namespace tenon::sdk {

// This reads TENON_F_RMSNORM: y = x * rsqrt(mean(x^2) + eps) * weight.
struct RmsNormOp {
  tenon_tid weight;  // f32[columns]
  float eps;

  explicit RmsNormOp(const tenon_fop& op) : weight(op.t[0]), eps(op.f[0]) {}
};

// TENON_F_BIAS and TENON_F_ADD compute y = x + addend.
struct AddOp {
  tenon_tid addend;  // BIAS: f32[columns], ADD: f32[rows][columns]

  explicit AddOp(const tenon_fop& op) : addend(op.t[0]) {}
};

// These are the heads of an op over heads, whose x has columns for the heads of Q, of K and of V in order.
struct Heads {
  int32_t q, kv, k_dim, v_dim;

  // These are the heads' places in tenon_fop.i. Integers of the op's own go to 0 and 1.
  enum Integer : uint32_t { kQ = 2, kKv, kKDim, kVDim };
  constexpr Heads(int32_t q_heads, int32_t kv_heads, int32_t k, int32_t v)
      : q(q_heads), kv(kv_heads), k_dim(k), v_dim(v) {}
  // `integers` is tenon_fop.i, or a copy of it.
  explicit constexpr Heads(const int32_t (&integers)[8])
      : Heads(integers[kQ], integers[kKv], integers[kKDim], integers[kVDim]) {}
  constexpr void store(tenon_fop& op) const {
    op.i[kQ] = q;
    op.i[kKv] = kv;
    op.i[kKDim] = k_dim;
    op.i[kVDim] = v_dim;
  }
  constexpr int64_t q_columns() const { return int64_t{q} * k_dim; }
  constexpr int64_t q_and_k_columns() const { return int64_t{q + kv} * k_dim; }
  constexpr int64_t columns() const { return q_and_k_columns() + int64_t{kv} * v_dim; }
};

// This reads TENON_F_QK_NORM: the RMSNorm of each head of Q, and of K.
struct QkNormOp {
  tenon_tid q_weight, k_weight;  // f32[k_dim]
  float eps;

  explicit QkNormOp(const tenon_fop& op) : q_weight(op.t[0]), k_weight(op.t[1]), eps(op.f[0]) {}
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
  uint32_t entries;         // the host hears of so many
  uint32_t entry_words;     // words of an entry
  bool moves_on;            // the rows become those of the next step
  uint32_t first_survivor;  // the first word of an entry that holds a survivor; 0 for a step without trees

  static AdvanceOp of(const tenon_fop& op) {
    return {op.t[0], static_cast<uint32_t>(op.i[0]), static_cast<uint32_t>(op.i[1]), op.i[2] != 0,
            static_cast<uint32_t>(op.i[3])};
  }
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
