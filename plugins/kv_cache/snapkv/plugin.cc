// In fixed memory this cache keeps the cells of a prompt that its newest rows lean on, their surroundings, and the text
// after it. See Li et al., arXiv:2404.14469.
#include "../evicting/evicting_cache.h"
#include "tenon/sdk/error.h"

namespace tenon::snapkv {

class SnapKv : public sdk::KvCache<SnapKv>, public evicting::EvictingCache {
 public:
  static constexpr const char* kName = "snapkv";
  static constexpr uint32_t kOwnRules = TENON_OWN_TOKENS;
  static constexpr const char* kDoc =
      "What a prompt's last rows lean on, with its surroundings, and the text after it, for each KV head by itself";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "prompt",
                    .doc = "Tokens that are kept where a prompt ends",
                    .value = 1024,
                    .min = 2,
                    .max = 1 << 20,
                    .unit = "tokens"}),
      sdk::integer({.name = "room",
                    .doc = "Tokens of text that come before tokens are dropped again, and of a prompt until it ends",
                    .value = 512,
                    .min = 0,
                    .max = 1 << 20,
                    .unit = "tokens"}),
      sdk::integer({.name = "observe",
                    .doc = "Newest rows whose softmax weights decide, and newest tokens that are never dropped",
                    .value = 32,
                    .min = 1,
                    .max = 1 << 16,
                    .unit = "tokens"}),
      sdk::integer(
          {.name = "pool",
           .doc = "Neighbours, the token among them, of which the greatest weight decides whether it stays; odd",
           .value = 7,
           .min = 1,
           .max = 255,
           .unit = "tokens"}),
      sdk::text({.name = "format", .doc = "How an element is stored", .value = "fp16", .choices = "fp16|bf16|fp32"}));

  SnapKv(const sdk::Params& params, const sdk::Env& env)
      : EvictingCache(evicting::plain_format(params.text("format")), {kName, rule(params)}, env) {}

 private:
  static evicting::Rule rule(const sdk::Params& params) {
    const auto number = [&](const char* name) { return static_cast<uint32_t>(params.integer(name)); };
    const uint32_t prompt = number("prompt"), observe = number("observe"), pool = number("pool");
    if (observe >= prompt) {
      throw sdk::Failed("observe = " + std::to_string(observe) + " leaves none of prompt = " + std::to_string(prompt) +
                        " tokens to choose; it must be less");
    }
    if (pool % 2 == 0) {
      throw sdk::Failed("pool = " + std::to_string(pool) + " has no middle; it must be odd, such as " +
                        std::to_string(pool + 1));
    }
    return {.most = prompt + number("room"), .cut = prompt, .recent = observe, .observe = observe, .around = pool / 2};
  }
};

}  // namespace tenon::snapkv

TENON_PLUGIN(tenon::snapkv::SnapKv);
