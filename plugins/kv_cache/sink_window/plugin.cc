// This cache keeps the first tokens of a sequence and its newest ones, in fixed memory: attention sinks and a ring. See
// Xiao et al., "Efficient Streaming Language Models with Attention Sinks", arXiv:2309.17453.
#include "../common/slot_cache.h"

namespace tenon::sink_window {

class SinkWindow : public sdk::KvCache<SinkWindow>, public slot_cache::SlotCache {
 public:
  static constexpr const char* kName = "sink_window";
  static constexpr uint32_t kOwnRules = TENON_OWN_TOKENS;
  static constexpr const char* kDoc = "The first tokens and the newest ones, in fixed memory: text goes on for ever";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "sinks",
                    .doc = "First tokens of a sequence that are never dropped",
                    .value = 4,
                    .min = 0,
                    .max = 1024,
                    .unit = "tokens"}),
      sdk::integer({.name = "window",
                    .doc = "Newest tokens that are kept and seen",
                    .value = 1020,
                    .min = 1,
                    .max = 1 << 20,
                    .unit = "tokens"}),
      sdk::text(
          {.name = "positions",
           .doc = "Rotary positions: those inside of what is kept, or those of the text, which end at the capacity",
           .value = "renumbered",
           .choices = "renumbered|original"}),
      sdk::text({.name = "format", .doc = "How an element is stored", .value = "fp16", .choices = "fp16|bf16|fp32"}));

  SinkWindow(const sdk::Params& params, const sdk::Env& env)
      : SlotCache(kName,
                  sdk::kv_format(params.text("format") == "fp32"   ? TENON_F32
                                 : params.text("format") == "fp16" ? TENON_F16
                                                                   : TENON_BF16,
                                 TENON_FORMAT_NONE, params.text("positions") == "original"),
                  {.sinks = static_cast<uint32_t>(params.integer("sinks")),
                   .window = static_cast<uint32_t>(params.integer("window")),
                   .renumbered = params.text("positions") == "renumbered"},
                  env) {}
};

}  // namespace tenon::sink_window

TENON_PLUGIN(tenon::sink_window::SinkWindow);
