#include <algorithm>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  for (int32_t i = 0; i < row.args.i[Repeat::kTimes]; ++i) {
    std::copy_n(row.x, row.args.columns, row.y + i * row.args.columns);
  }
}

}  // namespace

void Repeat::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "repeat"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::Repeat);
