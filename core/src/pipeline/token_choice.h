// A sampling step goes on from its logits: the chain of samplers chooses tokens, the device compares them with the
// drafts and tells the host, samplers remember the rows that survive, and the step moves on.
#pragma once

#include <vector>

#include "model_builder.h"
#include "step_program.h"

namespace tenon {

// Records the mask op: returns the logits under the masks of their rows.
tenon_tid record_mask(const ProgramContext& context, ModelBuilder& builder, tenon_tid logits);

// Records the chain of samplers over the logits of the rows at hand; the chosen tokens are TENON_STEP_NEXT. The result
// is what each of them was given. Throws Error: kConfig for a sampler that cannot work on what the one before it
// leaves, kPlugin for one that leaves what the next part cannot work on.
std::vector<GivenCandidates> record_token_choice(const ProgramContext& context, ModelBuilder& builder, tenon_tid logits,
                                                 uint32_t vocab);

// Says whether a sampler keeps a state that it brings up to date with what survives.
bool remembers(const ChainEntry& entry);

// Lets a sampler that remembers take in the rows that survive. `given` is what it was given. Throws Error(kPlugin).
void record_accept(const ChainEntry& entry, ModelBuilder& builder, const tenon_candidates& given);

// Records which rows survive, what the host is told of each, and what the samplers remember of the survivors. Throws
// Error(kPlugin) for a device that tells nothing.
void record_verification(const ProgramContext& context, ModelBuilder& builder, const StepProgram& step);

// Records the op that ends a sampling step on a device with queues: the rows move on, and the host hears of the choice.
void record_advance(const ProgramContext& context, ModelBuilder& builder, bool moves_on);

}  // namespace tenon
