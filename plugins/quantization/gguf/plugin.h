// quantization.gguf: matrices multiplied as the file stores them, GGUF's blocks and plain floats. Nothing is converted,
// so the host may hand out the file's mapping.
#pragma once

#include <memory>
#include <span>

#include "tenon/sdk/cpu/linear.h"
#include "tenon/sdk/quantization.h"

namespace tenon::gguf {

class Gguf : public sdk::Quantization<Gguf> {
 public:
  static constexpr const char* kName = "gguf";
  static constexpr const char* kDoc = "weights as the file stores them: GGUF's block formats and plain floats";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = UINT32_MAX;
  using Site = sdk::cpu::LinearSite;

  Gguf(const sdk::Params& params, const sdk::Env& env);

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const;
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const;
  tenon_footprint footprint(Site& site) const;
  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void* queue) const;
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const;
  void record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, sdk::Recorder& rec) const;

 private:
  sdk::cpu::Isa isa_;
};

}  // namespace tenon::gguf
