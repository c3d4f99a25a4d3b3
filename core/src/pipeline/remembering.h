// Samplers that keep a state count tokens. They are shown here the tokens that no step runs, since keys and values of
// these were in the cache already.
#pragma once

#include <memory>

#include "step_recording.h"

namespace tenon {

// Records the samplers' record_accept ops alone, for rows of one sequence that all survive and that have no logits.
// Returns nullptr if no sampler has a state. Throws Error(kPlugin), with the sampler named, when one fails to record.
std::unique_ptr<Program> record_remembering(const ProgramContext& context, tenon_bounds bounds);

}  // namespace tenon
