// device.cpu offers the host's memory and cores as a device, and the step's own ops.
#pragma once

#include <cstdint>

#include "tenon/abi/plugin.h"
#include "tenon/core/registry.h"
#include "tenon/sdk/told.h"

namespace tenon {

void register_cpu_device(Registry& registry);

// Returns the TENON_ISA_* that this machine has.
uint64_t machine_isa();

// See tenon_device.record_step_op.
tenon_status record_cpu_op(const sdk::VerifyOp& verify, tenon_tid x, tenon_tid y, const tenon_recorder* rec,
                           tenon_reason* why);

// See tenon_device.record_draft_pass.
tenon_status record_cpu_draft_pass(const sdk::DraftPass& pass, const tenon_recorder* rec, tenon_reason* why);

}  // namespace tenon
