// A fixed number of sequences starts together: prompts are filled in turn, then every sequence gets its token in each
// step until it ends.
#include <algorithm>

#include "tenon/sdk/scheduler.h"

namespace tenon::lockstep {

class Lockstep : public sdk::Scheduler<Lockstep> {
 public:
  static constexpr const char* kName = "lockstep";
  static constexpr const char* kDoc = "A fixed number of sequences that start together and run in step";
  static constexpr auto kParams = sdk::params(sdk::integer({.name = "sequences",
                                                            .doc = "Sequences that run in step",
                                                            .value = 8,
                                                            .min = 1,
                                                            .max = 4096,
                                                            .unit = "sequences"}));

  Lockstep(const sdk::Params& params, const sdk::Env&)
      : sequences_(static_cast<uint32_t>(params.integer("sequences"))) {}

  uint32_t sequences() const { return sequences_; }

  void next(const sdk::Workload& w, sdk::Schedule& schedule) const {
    uint32_t rows = w.rows();
    if (fill_prompts(w, rows, schedule)) return;
    for (uint32_t i = 0; i < w.size(); ++i) {
      const tenon_sequence s = w[i];
      if (s.phase != TENON_SEQUENCE_GENERATES || s.pending > rows) continue;
      schedule.run(i, s.pending);
      rows -= s.pending;
    }
  }

  // Prompts come first, so one that took its place from another would only lose it again: it sits out until those that
  // generate have ended.
  uint32_t no_space(const sdk::Workload& w, uint32_t sequence) const {
    if (w[sequence].phase != TENON_SEQUENCE_GENERATES) {
      for (uint32_t i = 0; i < w.size(); ++i) {
        if (w[i].phase == TENON_SEQUENCE_GENERATES) return TENON_NO_SEQUENCE;
      }
    }
    return sdk::least_important(w, sequence);
  }

 private:
  // Gives rows to prompts, of sequences that run and then of those that may start. Says whether there are any.
  static bool fill_prompts(const sdk::Workload& w, uint32_t rows, sdk::Schedule& schedule) {
    bool any = false;
    uint32_t slots = w.free_slots();
    for (uint32_t i = 0; i < w.size() && rows > 0; ++i) {
      const tenon_sequence s = w[i];
      if (s.phase == TENON_SEQUENCE_GENERATES || (s.phase == TENON_SEQUENCE_WAITS && slots == 0)) continue;
      if (s.phase == TENON_SEQUENCE_WAITS) --slots;
      const uint32_t n = std::min(s.pending, rows);
      schedule.run(i, n);
      rows -= n;
      any = true;
    }
    return any;
  }

  uint32_t sequences_;
};

}  // namespace tenon::lockstep

TENON_PLUGIN(tenon::lockstep::Lockstep);
