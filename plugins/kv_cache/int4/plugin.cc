// Keys and values in four bits, with one scale for each token and KV head; rotated before, if that is asked for.
#include "../common/slot_cache.h"

namespace tenon::int4_cache {

class Int4Cache : public sdk::KvCache<Int4Cache>, public slot_cache::SlotCache {
 public:
  static constexpr const char* kName = "int4";
  static constexpr const char* kDoc = "As static, in int4 with a scale for each token and KV head";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "format",
                 .doc = "How a scale is stored",
                 .value = "fp16_scales",
                 .choices = "fp16_scales|fp32_scales"}),
      sdk::text(
          {.name = "rotation",
           .doc = "Whether a head is rotated before it is stored, so that no element is far larger than the others",
           .value = "hadamard",
           .choices = "hadamard|none"}));

  Int4Cache(const sdk::Params& params, const sdk::Env& env)
      : SlotCache(kName, sdk::kv_format(TENON_U8, params.text("format") == "fp16_scales" ? TENON_F16 : TENON_F32),
                  {.hadamard = params.text("rotation") == "hadamard"}, env) {}
};

}  // namespace tenon::int4_cache

TENON_PLUGIN(tenon::int4_cache::Int4Cache);
