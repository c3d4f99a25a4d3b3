// draft.repeat proposes that the last token comes again.
#include <algorithm>

#include "tenon/sdk/draft.h"

namespace sdk = tenon::sdk;

namespace {

class Repeat : public sdk::Draft<Repeat> {
 public:
  static constexpr const char* kName = "repeat";
  static constexpr const char* kDoc = "The last token, again and again";
  static constexpr auto kParams =
      sdk::params(sdk::integer({.name = "k", .doc = "Tokens to propose for a step", .value = 2, .min = 1, .max = 64}));

  Repeat(const sdk::Params& params, const sdk::Env&) : k_(static_cast<uint32_t>(params.integer("k"))) {}

  uint32_t max_tokens() const { return k_; }

  // `tokens` are the text so far; `out` has room for at most max_tokens() proposals.
  uint32_t propose(uint32_t /*slot*/, std::span<const int32_t> tokens, std::span<int32_t> out) const {
    if (tokens.empty()) return 0;
    const uint32_t n = std::min(k_, static_cast<uint32_t>(out.size()));
    std::fill_n(out.begin(), n, tokens.back());
    return n;
  }

 private:
  uint32_t k_;
};

}  // namespace

TENON_PLUGIN(Repeat);
