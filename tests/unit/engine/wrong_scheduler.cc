// scheduler.wrong breaks the rule that its parameter names, from the step on that it is told.
#include <algorithm>

#include "tenon/sdk/scheduler.h"

namespace tenon::test {

class Wrong : public sdk::Scheduler<Wrong> {
 public:
  static constexpr const char* kName = "wrong";
  static constexpr const char* kDoc = "Breaks a rule";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "rule",
                 .doc = "Which one",
                 .value = "nobody",
                 .choices = "nobody|rows|pending|twice|slots|range|waits|throws|waits_for_ever|victim"}),
      sdk::integer({.name = "after", .doc = "Answers that are right before it", .value = 0, .min = 0, .max = 1000}));

  Wrong(const sdk::Params& params, const sdk::Env&)
      : rule_(params.text("rule")), after_(static_cast<uint32_t>(params.integer("after"))) {}

  uint32_t sequences() const { return 2; }

  void next(const sdk::Workload& w, sdk::Schedule& schedule) {
    const bool wrong = answers_++ >= after_;
    const tenon_sequence last = w[w.size() - 1];
    if (wrong && rule_ == "throws") throw sdk::Failed("it does not want to");
    if (wrong && rule_ == "nobody") return;
    if (wrong && rule_ == "range") return schedule.run(w.size(), 1);
    if (wrong && rule_ == "pending") return schedule.run(0, w[0].pending + 1);
    if (wrong && rule_ == "waits" && last.phase == TENON_SEQUENCE_WAITS) schedule.preempt(w.size() - 1);
    uint32_t rows = w.rows(), slots = w.free_slots();
    for (uint32_t i = 0; i < w.size() && rows > 0; ++i) {
      const tenon_sequence s = w[i];
      if (s.phase == TENON_SEQUENCE_WAITS && slots == 0 && !(wrong && rule_ == "slots")) break;
      if (s.phase == TENON_SEQUENCE_WAITS && slots > 0) --slots;
      const uint32_t n = wrong && rule_ == "rows"    ? s.pending
                         : wrong && rule_ == "slots" ? 1
                                                     : std::min(s.pending, rows);
      schedule.run(i, n);
      if (wrong && rule_ == "twice") return schedule.run(i, 1);
      rows -= std::min(rows, n);
      if (wrong && rule_ == "rows") rows = 1;
    }
  }
  uint32_t no_space(const sdk::Workload& w, uint32_t sequence) const {
    if (rule_ == "victim") return w.size();
    if (rule_ == "waits_for_ever") return TENON_NO_SEQUENCE;
    return sdk::least_important(w, sequence);
  }

 private:
  std::string rule_;
  uint32_t after_, answers_ = 0;
};

}  // namespace tenon::test

TENON_PLUGIN(tenon::test::Wrong);
