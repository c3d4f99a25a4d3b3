// This cache keeps heavy hitters and the newest tokens, in fixed memory. See Zhang et al., arXiv:2306.14048.
#include "../evicting/evicting_cache.h"

namespace tenon::h2o {

class H2o : public sdk::KvCache<H2o>, public evicting::EvictingCache {
 public:
  static constexpr const char* kName = "h2o";
  static constexpr uint32_t kOwnRules = TENON_OWN_TOKENS;
  static constexpr const char* kDoc = "What attention leans on and the newest tokens, for each KV head by itself";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "heavy",
                    .doc = "Tokens that are kept for the softmax weights that they have got",
                    .value = 512,
                    .min = 0,
                    .max = 1 << 20,
                    .unit = "tokens"}),
      sdk::integer({.name = "recent",
                    .doc = "Newest tokens, which are never dropped",
                    .value = 512,
                    .min = 1,
                    .max = 1 << 20,
                    .unit = "tokens"}),
      sdk::text({.name = "format", .doc = "How an element is stored", .value = "fp16", .choices = "fp16|bf16|fp32"}));

  H2o(const sdk::Params& params, const sdk::Env& env)
      : EvictingCache(evicting::plain_format(params.text("format")),
                      {kName, rule(params.integer("heavy"), params.integer("recent"))}, env) {}

 private:
  static evicting::Rule rule(int64_t heavy, int64_t recent) {
    const auto kept = static_cast<uint32_t>(heavy + recent);
    return {.most = kept, .cut = kept, .recent = static_cast<uint32_t>(recent), .observe = 0, .around = 0};
  }
};

}  // namespace tenon::h2o

TENON_PLUGIN(tenon::h2o::H2o);
