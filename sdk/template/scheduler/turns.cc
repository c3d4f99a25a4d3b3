// scheduler.turns runs two sequences in turn, one a step.
#include <algorithm>

#include "tenon/sdk/scheduler.h"

namespace sdk = tenon::sdk;

namespace {

class Turns : public sdk::Scheduler<Turns> {
 public:
  static constexpr const char* kName = "turns";
  static constexpr const char* kDoc = "Two sequences in turn, one a step";
  static constexpr auto kParams = sdk::params();

  Turns(const sdk::Params&, const sdk::Env&) {}

  // Returns how many sequences run at once: each has a slot of the cache.
  uint32_t sequences() const { return 2; }

  // Chooses the rows of the next step: here those of one sequence, the first that is not the last step's. A sequence
  // that waits is admitted by getting rows, for which a slot must be free.
  void next(const sdk::Workload& w, sdk::Schedule& schedule) {
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < w.size(); ++i) {
      const tenon_sequence s = w[i];
      if (s.id == last_ || (s.phase == TENON_SEQUENCE_WAITS && w.free_slots() == 0)) continue;
      chosen = i;
      break;
    }
    last_ = w[chosen].id;
    schedule.run(chosen, std::min(w[chosen].pending, w.rows()));
  }

  // The cache is full: the least important sequence gives up its place.
  uint32_t no_space(const sdk::Workload& w, uint32_t sequence) const { return sdk::least_important(w, sequence); }

 private:
  uint64_t last_ = UINT64_MAX;
};

}  // namespace

TENON_PLUGIN(Turns);
