#include <algorithm>
#include <cstring>

#include "plugin.h"
#include "tenon/sdk/cpu/small_op.h"

namespace tenon::op {
namespace {

void run(const sdk::cpu::Row& row) {
  const uint32_t live = row.part.ptr<const uint32_t>(sdk::cpu::Row::kLive)[sdk::kLiveRows];
  const uint32_t count = std::min(live, row.args.rows) * static_cast<uint32_t>(row.args.i[LiveRows::kTimes]);
  std::memcpy(row.y, &count, sizeof(count));
}

}  // namespace

void LiveRows::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  sdk::cpu::record_rows<&run>({.name = "live_rows"}, op, x, y, r);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::LiveRows);
