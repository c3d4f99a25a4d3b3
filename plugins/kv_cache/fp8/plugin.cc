// This cache has keys and values as floats of eight bits (E4M3), with one scale for each token and KV head.
#include "../common/slot_cache.h"

namespace tenon::fp8_cache {

class Fp8Cache : public sdk::KvCache<Fp8Cache>, public slot_cache::SlotCache {
 public:
  static constexpr const char* kName = "fp8";
  static constexpr const char* kDoc = "As static, in floats of 8 bits (E4M3) with a scale for each token and KV head";
  static constexpr auto kParams = sdk::params(sdk::text({.name = "format",
                                                         .doc = "How a scale is stored",
                                                         .value = "fp16_scales",
                                                         .choices = "fp16_scales|fp32_scales"}),
                                              slot_cache::kTail);

  Fp8Cache(const sdk::Params& params, const sdk::Env& env)
      : SlotCache(kName, sdk::kv_format(TENON_F8E4M3, params.text("format") == "fp16_scales" ? TENON_F16 : TENON_F32),
                  {.tail = slot_cache::tail_of(params)}, env) {}
};

}  // namespace tenon::fp8_cache

TENON_PLUGIN(tenon::fp8_cache::Fp8Cache);
