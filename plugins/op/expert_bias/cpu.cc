#include <cstring>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  int32_t expert = 0;
  std::memcpy(&expert, row.operand(ExpertBias::kExpert), sizeof(expert));
  const bool is_one = expert >= 0 && expert < row.args.i[ExpertBias::kExperts];
  // All rows share the table, so its operand is read without the stride of rows.
  const auto* table = row.part.ptr<const float>(sdk::cpu::Row::kTensors + uint32_t{ExpertBias::kBias});
  const float* bias = table + (is_one ? expert * row.args.columns : 0);
  for (int64_t i = 0; i < row.args.columns; ++i) row.y[i] = row.x[i] + (is_one ? bias[i] : 0);
}

}  // namespace

void ExpertBias::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "expert_bias", .has_rows = true}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ExpertBias);
