#include <cmath>
#include <cstring>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

int32_t expert_at(const float* experts, int32_t rank) {
  int32_t expert = 0;
  std::memcpy(&expert, experts + rank, sizeof(expert));
  return expert;
}

void run(const sdk::cpu::Row& row) {
  const float *experts = row.operand(ExpertSum::kExperts), *score = row.operand(ExpertSum::kScores);
  const int32_t chosen = row.args.i[ExpertSum::kChosen], first = expert_at(experts, 0);
  const bool renormalised = row.args.i[ExpertSum::kRenormalised] != 0;
  float sum = 0;
  for (int32_t i = 0; i < (renormalised ? chosen : row.args.i[ExpertSum::kCount]); ++i) {
    const int32_t e = renormalised ? expert_at(experts, i) : i;
    if (e >= 0 && first >= 0) sum += std::exp(score[e] - score[first]);
  }
  const int64_t columns = row.args.columns / chosen;
  std::memcpy(row.y, row.operand(ExpertSum::kAddend), static_cast<size_t>(columns) * sizeof(float));
  for (int32_t rank = 0; rank < chosen; ++rank) {
    const int32_t e = expert_at(experts, rank);
    if (e < 0) break;
    const float weight = std::exp(score[e] - score[first]) / sum;
    const float* made = row.x + rank * columns;
    for (int64_t i = 0; i < columns; ++i) row.y[i] += weight * made[i];
  }
}

}  // namespace

void ExpertSum::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "expert_sum", .has_rows = true}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::ExpertSum);
