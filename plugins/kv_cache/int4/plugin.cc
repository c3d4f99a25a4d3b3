// This cache has keys and values in four bits, with a scale a token and KV head; they may be rotated before.
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
           .choices = "hadamard|none"}),
      slot_cache::kTail,
      sdk::text({.name = "keys",
                 .doc = "What has a scale of its own: a token's key, or a dimension of the keys of a group of tokens",
                 .value = "token",
                 .choices = "token|channel"}),
      sdk::integer({.name = "group",
                    .doc = "Tokens of a group, with keys = channel; a tail of 0 is then one of a group",
                    .value = 32,
                    .min = 32,
                    .max = 128,
                    .choices = "32|64|128",
                    .unit = "tokens"}));

  Int4Cache(const sdk::Params& params, const sdk::Env& env)
      : SlotCache(kName, sdk::kv_format(TENON_U8, params.text("format") == "fp16_scales" ? TENON_F16 : TENON_F32),
                  policy(params), env) {}

 private:
  static slot_cache::Policy policy(const sdk::Params& params) {
    slot_cache::Policy p{.tail = slot_cache::tail_of(params), .hadamard = params.text("rotation") == "hadamard"};
    if (params.text("keys") == "token") return p;
    p.key_group = static_cast<uint32_t>(params.integer("group"));
    if (p.tail == 0) p.tail = p.key_group;
    return p;
  }
};

}  // namespace tenon::int4_cache

TENON_PLUGIN(tenon::int4_cache::Int4Cache);
