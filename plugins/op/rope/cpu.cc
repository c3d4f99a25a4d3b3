#include <algorithm>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const sdk::RopePairs pairs = Rope::pairs_of(row.args.i);
  const sdk::Heads heads(row.args.i);
  const float* table = row.operand(Rope::kTable) + int64_t{row.step(Rope::kPos)[row.row]} * pairs.rotated;
  if (row.x != row.y) std::copy(row.x, row.x + row.args.columns, row.y);
  for (int32_t h = 0; h < heads.q + heads.kv; ++h) {
    float* head = row.y + h * heads.k_dim;
    for (uint32_t i = 0; i < pairs.half(); ++i) {
      float& first = head[pairs.first(i)];
      float& second = head[pairs.second(i)];
      const float c = table[2 * i], s = table[2 * i + 1], u = first, v = second;
      first = u * c - v * s;
      second = u * s + v * c;
    }
  }
}

}  // namespace

void Rope::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "rope", .steps = {TENON_STEP_POS}}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Rope);
