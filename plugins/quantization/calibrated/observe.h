// Schemes that calibrate by the moments of x observe them so, on the CPU; moments.cuh has the twin for GPUs.
#pragma once

#include "moments.h"
#include "products.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/recorder.h"

namespace tenon::calibrated {

class ObservesMoments {
 public:
  explicit ObservesMoments(sdk::cpu::Isa isa) : isa_(isa) {}

  uint64_t observed_bytes(const tenon_linear& s) const { return moments_bytes(static_cast<uint64_t>(s.in_dim)); }
  // Records an op that adds to the moments of a site or, if it is routed, to those of each row's expert.
  void observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const;

 protected:
  sdk::cpu::Isa isa_;
};

}  // namespace tenon::calibrated
