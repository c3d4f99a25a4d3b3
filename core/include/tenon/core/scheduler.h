// Which rows run in the next step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tenon/abi/params.h"

namespace tenon {

// A sequence as the scheduler sees it.
struct SequenceState {
  uint32_t pending =
      0;  // tokens that are not in the cache yet: the prompt's rest, or the newest token and drafts behind it
  bool generating = false;  // its prompt is done: pending must run whole, and every row's logits are wanted
};

// Rows of one sequence in the next step: the first `rows` of its pending tokens.
struct StepShare {
  uint32_t sequence = 0;  // index into the states
  uint32_t rows = 0;
};

struct StepLimits {
  uint32_t rows = 0;      // of a step
  uint32_t out_rows = 0;  // whose logits a step gives
};

// Thread: one at a time. Stateless between calls but for its own fairness.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // How many sequences it can hold at once.
  virtual uint32_t sequences() const = 0;
  // Fills `shares`, in order of sequences, for states of which at least one has pending tokens. Allocates nothing once
  // `shares` has room.
  virtual void next(std::span<const SequenceState> states, const StepLimits& limits,
                    std::vector<StepShare>& shares) = 0;
};

// A scheduler as the registry lists it.
struct SchedulerKind {
  std::string_view name;
  std::string_view doc;
  const tenon_param_schema* schema;
  std::unique_ptr<Scheduler> (*create)(const tenon_params& params);
};

std::span<const SchedulerKind> builtin_schedulers();

}  // namespace tenon
