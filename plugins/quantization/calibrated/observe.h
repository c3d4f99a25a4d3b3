// The op of observe() on the CPU: it adds to the moments of a site.
#pragma once

#include "products.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/recorder.h"

namespace tenon::calibrated {

// The site is not routed.
void observe_moments(const tenon_linear& s, const tenon_observe_call& call, sdk::cpu::Isa isa, sdk::Recorder& rec);

}  // namespace tenon::calibrated
