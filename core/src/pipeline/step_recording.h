// Records one step program: the model's modules through the parts that were negotiated.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "declared.h"
#include "step_state.h"
#include "tenon/core/module.h"
#include "tenon/core/program.h"

namespace tenon {

// What all programs of a pipeline share.
struct ProgramContext {
  Components& parts;
  Declared& declared;
  StorageTable& storages;
  const StepState& state;
  std::span<const uint32_t> kv_stores;  // storages of the cache
};

// A program and what the host reads from it.
struct StepProgram {
  std::unique_ptr<Program> program;
  tenon_tid logits = 0;
  bool sample = false;
  bool moves_on = false;  // run again as it is, it takes the next token of every sequence
};

// shape: the index of the bounds in the negotiation. Throws Error(kPlugin) when a component fails to record.
StepProgram record_step(const ProgramContext& context, const Model& model, const tenon_bounds& bounds, size_t shape,
                        bool sample);

}  // namespace tenon
