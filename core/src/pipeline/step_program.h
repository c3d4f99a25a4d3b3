// This is a recorded step, and the context that all steps of a pipeline are recorded with.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "draft_state.h"
#include "model_builder.h"
#include "model_instance.h"
#include "sampling.h"
#include "step_masks.h"
#include "step_state.h"
#include "tenon/core/program.h"

namespace tenon {

// All programs of a pipeline share this.
struct ProgramContext {
  Context& device;
  ModelInstance& target;
  ModelInstance* draft;  // nullptr if there is none
  std::span<const ChainEntry> samplers;
  StorageTable& storages;
  const StepState& state;
  const DraftState& draft_state;
  const StepMasks& masks;
  const tenon_bounds& largest;     // each bound is the largest of all programs
  std::optional<uint32_t> pooled;  // the storage of pooled hidden states, if anybody may want embeddings
};

// A sampler was given these candidates, by the ops before this one.
struct GivenCandidates {
  tenon_candidates candidates;
  size_t first_op;
};

// This is a program and what the host reads from it.
struct StepProgram {
  std::unique_ptr<Program> program;
  tenon_tid logits = 0;
  // A look at the ops' results finds them by these.
  size_t model_ops = 0;  // the first so many are the target's
  std::vector<ReadHeads> heads = {};
  std::vector<GivenCandidates> given = {};  // by sampler
  bool sample = false;
  bool pool = false;      // it pools the final hidden states of its sequences
  bool masked = false;    // out rows may have masks
  size_t mask_op = 0;     // the op that applies them
  bool moves_on = false;  // run again as it is, it takes the next tokens of every sequence
  bool round = false;     // it drafts by itself: the tokens after the first of a sequence are made on the device
};

}  // namespace tenon
