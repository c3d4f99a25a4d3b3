// This cache has keys and values in eight bits, with one scale for each token and KV head.
#include "../common/slot_cache.h"

namespace tenon::int8_cache {

class Int8Cache : public sdk::KvCache<Int8Cache>, public slot_cache::SlotCache {
 public:
  static constexpr const char* kName = "int8";
  static constexpr const char* kDoc = "As static, in int8 with a scale for each token and KV head";
  static constexpr auto kParams = sdk::params(sdk::text({.name = "format",
                                                         .doc = "How a scale is stored",
                                                         .value = "fp16_scales",
                                                         .choices = "fp16_scales|fp32_scales"}),
                                              slot_cache::kTail);

  Int8Cache(const sdk::Params& params, const sdk::Env& env)
      : SlotCache(kName, sdk::kv_format(TENON_I8, params.text("format") == "fp16_scales" ? TENON_F16 : TENON_F32),
                  {.tail = slot_cache::tail_of(params)}, env) {}
};

}  // namespace tenon::int8_cache

TENON_PLUGIN(tenon::int8_cache::Int8Cache);
