// This is the step state of a draft model's passes within a round (see record_round): every pass takes one row of each
// sequence, at the place in the round that it is for, and its tokens are chosen as those of that place.
#pragma once

#include <span>
#include <vector>

#include "step_state.h"

namespace tenon {

class DraftState {
 public:
  // [setup] Makes the storages. `round` has the bounds of the program that verifies. `state` is that of the pipeline's
  // own steps.
  void declare(StorageTable& storages, const tenon_bounds& round, const StepState& state);

  // Returns the storages of a pass through the model and of the samplers after it, by TENON_STEP_* role.
  std::span<const uint32_t> pass() const { return pass_; }
  std::span<const uint32_t> choice() const { return choice_; }
  const tenon_bounds& pass_bounds() const { return pass_bounds_; }
  const tenon_bounds& choice_bounds() const { return choice_bounds_; }

 private:
  std::vector<uint32_t> pass_, choice_;
  tenon_bounds pass_bounds_{}, choice_bounds_{};
};

}  // namespace tenon
