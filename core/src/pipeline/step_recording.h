// Records step programs: the modules of one model or two through the components that were negotiated.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "draft_state.h"
#include "model_builder.h"
#include "model_instance.h"
#include "sampling.h"
#include "step_state.h"
#include "tenon/core/module.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/program.h"

namespace tenon {

// What all programs of a pipeline share.
struct ProgramContext {
  Context& device;
  ModelInstance& target;
  ModelInstance* draft;  // nullptr if there is none
  std::span<const ChainLink> samplers;
  StorageTable& storages;
  const StepState& state;
  const DraftState& draft_state;
  const tenon_bounds& largest;  // of each bound the largest of all programs
};

// What a sampler was given, by the ops before this one.
struct GivenCandidates {
  tenon_candidates candidates;
  size_t first_op;
};

// A program and what the host reads from it.
struct StepProgram {
  std::unique_ptr<Program> program;
  tenon_tid logits = 0;
  // Where a look at the ops' results finds them.
  size_t model_ops = 0;  // the first so many are the target's
  std::vector<ReadHeads> heads = {};
  std::vector<GivenCandidates> given = {};  // by sampler
  bool sample = false;
  bool moves_on = false;  // run again as it is, it takes the next tokens of every sequence
  bool round = false;     // it drafts by itself: the tokens behind the first of a sequence are made on the device
};

// shape: the index of the bounds in the negotiation. Throws Error(kPlugin), with the component named, when one fails to
// record or leaves what the next cannot work on. Where there is a draft model it runs over the same rows, so that its
// cache holds what the target's does.
StepProgram record_step(const ProgramContext& context, const tenon_bounds& bounds, size_t shape, bool sample);

// A round of speculation as one program. Every sequence has 1 + tokens rows, and only the first one's token is given. The
// draft model takes the rows one after another, and chooses each next token as the samplers would choose the target's;
// the target then takes all rows at once, and what it would have chosen itself survives. The last row runs through the
// draft model for its cache alone, in case that all survive.
StepProgram record_round(const ProgramContext& context, const tenon_bounds& bounds, size_t shape);

// The program of the fewest rows that takes the batch; nullptr if none does.
const StepProgram* program_for(const StepBatch& batch, std::span<const StepProgram> programs);

}  // namespace tenon
