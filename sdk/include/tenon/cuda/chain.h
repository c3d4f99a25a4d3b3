// What stands where in the ops of a chain (tenon_fop), by name, and in the cost of an op. The table of meanings is in
// tenon/abi/program.h.
#pragma once

#include "tenon/abi/program.h"

namespace tenon::cuda {

// The terms of a tenon_cost: what an op costs at all, for each row, and for each token that a row attends to.
enum CostTerm : uint32_t { kFixedCost, kCostPerRow, kCostPerToken };

struct RmsNormOp {
  const tenon_fop& op;
  tenon_tid weight() const { return op.t[0]; }
  float eps() const { return op.f[0]; }
};
// The vector of a BIAS, or the rows of an ADD.
inline tenon_tid addend_of(const tenon_fop& op) {
  return op.t[0];
}
struct QkNormOp {
  const tenon_fop& op;
  tenon_tid q_weight() const { return op.t[0]; }
  tenon_tid k_weight() const { return op.t[1]; }
  float eps() const { return op.f[0]; }
};
struct RopeOp {
  const tenon_fop& op;
  tenon_tid table() const { return op.t[0]; }
  int32_t rotated() const { return op.i[0]; }
  int32_t pairing() const { return op.i[1]; }
};

}  // namespace tenon::cuda
