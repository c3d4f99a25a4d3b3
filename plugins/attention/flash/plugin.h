// This is attention with an online softmax, on the CPU (cpu.cc) and on GPUs (cuda.cu).
#pragma once

#include <cstdint>
#include <string_view>

#include "../common/recent.h"
#include "tenon/sdk/attention.h"

namespace tenon::flash {

class Flash : public sdk::Attention<Flash> {
 public:
  static constexpr const char* kName = "flash";
  static constexpr const char* kDoc = "Online softmax, keys and values read once for all query heads that share them";
  static constexpr auto kParams =
      sdk::params(sdk::integer({.name = "split",
                                .doc = "Positions that one work item of a decode step reads",
                                .value = 256,
                                .min = 64,
                                .max = 4096,
                                .choices = "64|128|256|512|1024|2048|4096",
                                .unit = "tokens"}));
  static constexpr bool kLeavesLinks = std::string_view(kDevice) == "cuda";
  static constexpr uint32_t kRowInvariantMax = std::string_view(kDevice) == "cpu" ? UINT32_MAX : 16;

  Flash(const sdk::Params& params, const sdk::Env& env);

  tenon_claim claim(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b) const;
  tenon_kv_format preferred_format() const;
  void record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const;

 private:
  using Half = attention::Half;
  void record_half(const tenon_attn& a, const tenon_attn_call& call, const Half& half, sdk::Recorder& r) const;

  uint32_t split_;
  uint32_t isa_ = 0;               // CPU: kernels() takes this index
  uint32_t arch_ = 0, units_ = 0;  // GPU: 90 for sm_90, multiprocessors
  uint64_t shared_ = 0;            // GPU: a multiprocessor has so many bytes of shared memory
};

}  // namespace tenon::flash
