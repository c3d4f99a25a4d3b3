// This is a step as a model records it, without a program: which module makes each tensor, and which modules take it.
#pragma once

#include <vector>

#include "tenon/core/module.h"

namespace tenon {

struct RecordedModule {
  enum Kind { kOther, kLinear, kJoined, kAttention };
  Kind kind = kOther;
  uint32_t number = 0;  // its LinearId, JoinedId or LayerId
  bool plain = false;   // a product that runs over all rows of the step, with one matrix for all of them
  bool picked = false;  // it runs over the rows whose logits are wanted

  bool product() const { return kind == kLinear || kind == kJoined; }
};

struct RecordedTensor {
  RecordedModule maker;
  std::vector<RecordedModule> takers = {};  // the tensor is their x
  bool read_otherwise = false;              // something else reads it, too
};

// Returns the tensors of a step in the order in which they are made. That the logits are read counts. For picks_early
// see StepBuilder.
std::vector<RecordedTensor> recorded_step(const Model& model, bool picks_early = false);

}  // namespace tenon
