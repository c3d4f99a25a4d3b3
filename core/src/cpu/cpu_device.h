// device.cpu: the host's memory and cores behind the device table, and the small ops of the fusion vocabulary.
#pragma once

#include <cstdint>

#include "tenon/abi/plugin.h"
#include "tenon/core/registry.h"

namespace tenon {

void register_cpu_device(Registry& registry);

// TENON_ISA_* that this machine has.
uint64_t machine_isa();

// The visible form of a vocabulary id; see tenon_device.record_fop.
tenon_status record_cpu_op(const tenon_fop& op, tenon_tid x, tenon_tid y, const tenon_recorder* rec, tenon_reason* why);

}  // namespace tenon
