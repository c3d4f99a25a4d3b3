// This cache has room for the whole context of every slot, allocated once.
#include "../common/slot_cache.h"

namespace tenon::static_cache {

class StaticCache : public sdk::KvCache<StaticCache>, public slot_cache::SlotCache {
 public:
  static constexpr const char* kName = "static";
  static constexpr const char* kDoc = "All of the context for every sequence, allocated once";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "format", .doc = "How an element is stored", .value = "fp16", .choices = "fp16|bf16|fp32"}));

  StaticCache(const sdk::Params& params, const sdk::Env& env)
      : SlotCache(kName,
                  sdk::kv_format(params.text("format") == "fp32"   ? TENON_F32
                                 : params.text("format") == "fp16" ? TENON_F16
                                                                   : TENON_BF16),
                  {}, env) {}
};

}  // namespace tenon::static_cache

TENON_PLUGIN(tenon::static_cache::StaticCache);
