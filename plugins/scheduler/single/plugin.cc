// One sequence runs at a time, in the order in which they came.
#include <algorithm>

#include "tenon/sdk/scheduler.h"

namespace tenon::single {

class Single : public sdk::Scheduler<Single> {
 public:
  static constexpr const char* kName = "single";
  static constexpr const char* kDoc = "One sequence at a time, in the order in which they came";
  static constexpr auto kParams = sdk::params();

  Single(const sdk::Params&, const sdk::Env&) {}

  uint32_t sequences() const { return 1; }
  // The one that runs is the first of the workload, or else the one that waits longest.
  void next(const sdk::Workload& w, sdk::Schedule& schedule) const {
    schedule.run(0, std::min(w[0].pending, w.rows()));
  }
  uint32_t no_space(const sdk::Workload& w, uint32_t sequence) const { return sdk::least_important(w, sequence); }
};

}  // namespace tenon::single

TENON_PLUGIN(tenon::single::Single);
