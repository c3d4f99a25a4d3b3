// Records step programs: the modules of one model or two through the components that were negotiated.
#pragma once

#include <span>

#include "step_program.h"
#include "tenon/core/module.h"
#include "tenon/core/pipeline.h"

namespace tenon {

enum class StepKind {
  kScore,   // nobody chooses tokens
  kSample,  // tokens are chosen
  kMasked,  // like kSample, and out rows may have masks
  kPool     // like kMasked where the pipeline has masks, and the final hidden states are pooled
};
// `shape` is the index of the bounds in the negotiation. Throws Error(kPlugin), with the component named, when one
// fails to record or leaves what the next cannot work on. Where there is a draft model it runs over the same rows, so
// that its cache holds what the target's does.
StepProgram record_step(const ProgramContext& context, const tenon_bounds& bounds, size_t shape, StepKind kind);

// Records a round of speculation as one program. Every sequence has 1 + tokens rows, and only the first one's token is
// given. The draft model takes the rows one after another, and chooses each next token as the samplers would choose the
// target's; the target then takes all rows at once, and what it would have chosen itself survives. The last row runs
// through the draft model for its cache alone, in case that all survive.
StepProgram record_round(const ProgramContext& context, const tenon_bounds& bounds, size_t shape);

// Records the op that takes tokens from the step before, for a step that is launched while that one runs. Returns nullptr
// if the device has no such op.
std::unique_ptr<Program> record_taking(const ProgramContext& context, const tenon_bounds& bounds);

// Returns the program of the fewest rows that takes the batch; nullptr if none does.
const StepProgram* program_for(const StepBatch& batch, std::span<const StepProgram> programs);

}  // namespace tenon
