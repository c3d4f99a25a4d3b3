// This has the samplers of a pipeline: their instances, their records by slot,
// and how a request's own values reach them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "context.h"
#include "tenon/core/program.h"

namespace tenon {

struct ChainEntry {
  Instance instance;
  std::string name;
  ParamValues params;
  uint32_t param_storage = 0, state_storage = 0;
  uint64_t state_bytes = 0;  // a slot has so many
  const tenon_sampler& table() const { return instance.table<tenon_sampler>(); }
};

// Returns the chain that a configuration names; the last one is the selector. Throws
// Error if it selects nothing or too early.
std::vector<ChainEntry> create_samplers(const PipelineConfig& config, Context& context);
// Makes the storages of the samplers' records and states.
void declare_samplers(std::vector<ChainEntry>& samplers, uint32_t slots, uint32_t vocab, StorageTable& storages);
// Returns how many bytes the records of a slot take on their way to the device.
uint64_t staged_bytes(const std::vector<ChainEntry>& samplers);
// A request begins in this slot. `staged` has staged_bytes() of the slot's own.
struct StartedSlot {
  uint32_t slot;
  std::byte* staged;
};
// Enqueues the records of a request for its slot, and that the slot's states are emptied. Throws Error(kRequest) for an
// override ("temperature.value" = text) that no sampler has or takes.
void start_samplers(std::vector<ChainEntry>& samplers, StartedSlot at, std::span<const Pipeline::Override> overrides,
                    const StorageTable& storages, const Context& context);

}  // namespace tenon
