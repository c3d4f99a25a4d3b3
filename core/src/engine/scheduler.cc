#include "tenon/core/scheduler.h"

#include <algorithm>
#include <array>

#include "tenon/sdk/params.h"

namespace tenon {
namespace {

// One sequence at a time, in the order in which they came.
class Single : public Scheduler {
 public:
  uint32_t sequences() const override { return 1; }
  void next(std::span<const SequenceState> states, const StepLimits& limits, std::vector<StepShare>& shares) override {
    shares.clear();
    for (uint32_t i = 0; i < states.size(); ++i) {
      if (states[i].pending == 0) continue;
      shares.push_back({i, std::min(states[i].pending, limits.rows)});
      return;
    }
  }
};

// A fixed number of sequences that start together: prompts are filled in turn, then every sequence gets its token in
// each step until it ends.
class Lockstep : public Scheduler {
 public:
  static constexpr auto kParams = sdk::params(sdk::integer({.name = "sequences",
                                                            .doc = "Sequences that run in step.",
                                                            .value = 8,
                                                            .min = 1,
                                                            .max = 4096,
                                                            .unit = "sequences"}));
  explicit Lockstep(uint32_t sequences) : sequences_(sequences) {}
  uint32_t sequences() const override { return sequences_; }
  void next(std::span<const SequenceState> states, const StepLimits& limits, std::vector<StepShare>& shares) override {
    shares.clear();
    const bool prompts = std::any_of(states.begin(), states.end(),
                                     [](const SequenceState& s) { return s.pending > 0 && !s.generating; });
    uint32_t rows = limits.rows, out_rows = limits.out_rows;
    for (uint32_t i = 0; i < states.size(); ++i) {
      const SequenceState& s = states[i];
      if (s.pending == 0 || s.generating == prompts) continue;
      const uint32_t n = prompts ? std::min(s.pending, rows) : s.pending;
      const uint32_t outs = prompts ? 1 : n;
      if (n == 0 || n > rows || outs > out_rows) continue;
      shares.push_back({i, n});
      rows -= n;
      out_rows -= outs;
    }
  }

 private:
  uint32_t sequences_;
};

constexpr tenon_param_schema kNoParams = {{sizeof(tenon_param_schema), 1, 0}, 0, 0, nullptr};
constexpr auto kLockstepSpecs = Lockstep::kParams;
constexpr std::array<const tenon_param_spec*, 1> kLockstepPointers = {kLockstepSpecs.data()};
constexpr tenon_param_schema kLockstepParams = {{sizeof(tenon_param_schema), 1, 0}, 1, 0, kLockstepPointers.data()};

constexpr SchedulerKind kSchedulers[] = {
    {"single", "One sequence at a time, in the order in which they came.", &kNoParams,
     [](const tenon_params&) -> std::unique_ptr<Scheduler> { return std::make_unique<Single>(); }},
    {"lockstep", "A fixed number of sequences that start together and run in step.", &kLockstepParams,
     [](const tenon_params& p) -> std::unique_ptr<Scheduler> {
       return std::make_unique<Lockstep>(static_cast<uint32_t>(p.value[0].integer));
     }},
};

}  // namespace

std::span<const SchedulerKind> builtin_schedulers() {
  return kSchedulers;
}

}  // namespace tenon
