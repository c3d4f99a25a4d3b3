// This is the base of a quantization scheme on the CPU that keeps each matrix in one store, row by row or packed: the
// class adds claim, bind and load. kKernelsOf gives the plugin's kernels for an instruction set.
#pragma once

#include "tenon/sdk/cpu/linear.h"
#include "tenon/sdk/cpu/row_lookup.h"
#include "tenon/sdk/quantization.h"

namespace tenon::sdk::cpu {

template <class T, KernelsOf kKernelsOf>
class LinearScheme : public Quantization<T> {
 public:
  static constexpr uint32_t kRowInvariantMax = UINT32_MAX;
  using Site = LinearSite;

  explicit LinearScheme(const Env& env) : processor_(processor_of(env.device())) {}

  // A load takes memory for one row as f32.
  tenon_footprint footprint(Site& site) const { return footprint_of(site, uint64_t{site.k} * sizeof(float)); }
  void record(Site& site, const tenon_linear_call& call, Recorder& rec) const {
    record_linear<kKernelsOf>(site, processor_, call, rec);
  }
  void record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, Recorder& rec) const {
    record_row_lookup<kKernelsOf>(site, processor_.isa, {.store = store[0], .index = index, .y = y}, rec);
  }

 protected:
  Isa isa() const { return processor_.isa; }

 private:
  Processor processor_;
};

}  // namespace tenon::sdk::cpu
