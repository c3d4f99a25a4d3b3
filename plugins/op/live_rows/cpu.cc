#include <algorithm>
#include <cstring>

#include "plugin.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"

namespace tenon::op {
namespace {

enum Operand : uint32_t { kY, kLive, kOperands };

struct Args {
  int64_t y_stride;  // in floats
  uint32_t rows, times;
};

void run(const Args& a, const sdk::Part& part) {
  const uint32_t live = std::min(part.ptr<uint32_t>(kLive)[sdk::kLiveRows], a.rows), count = live * a.times;
  auto* y = part.ptr<float>(kY);
  // Where no row is live, the first one says so.
  for (uint32_t row = 0; row < std::max(live, 1U); ++row) std::memcpy(y + row * a.y_stride, &count, sizeof(count));
}

}  // namespace

void LiveRows::record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
  const std::vector<tenon_operand> operands = sdk::operands_by(
      kOperands, {{kY, y, TENON_WRITE}, {kLive, op.live != 0 ? op.live : r.step(TENON_STEP_LIVE), TENON_READ}});
  const Args args{r.floats_of_row(y), static_cast<uint32_t>(r.describe(x).dim[0]), static_cast<uint32_t>(op.i[kTimes])};
  tenon_cost cost{};
  cost.written[sdk::kCostPerRow] = sizeof(float);
  r.emit<&run>({.name = "live_rows", .operands = operands, .chunks = {1}, .cost = cost}, args);
}

}  // namespace tenon::op

TENON_PLUGIN(tenon::op::LiveRows);
