// This draft ends its list as an array ends, and not by its count.
#include <algorithm>

#include "tenon/sdk/draft.h"

namespace tenon::bad {

struct ProposesMinusOne : sdk::Draft<ProposesMinusOne> {
  static constexpr const char* kName = "minus_one";
  static constexpr const char* kDoc = "The last token, and then -1.";
  static constexpr auto kParams = sdk::params();

  ProposesMinusOne(const sdk::Params&, const sdk::Env&) {}

  uint32_t max_tokens() const { return 4; }
  uint32_t propose(uint32_t, std::span<const int32_t> tokens, std::span<int32_t> out) const {
    if (tokens.empty() || out.empty()) return 0;
    std::fill(out.begin(), out.end(), -1);
    out.front() = tokens.back();
    return static_cast<uint32_t>(out.size());
  }
};

}  // namespace tenon::bad

using tenon::bad::ProposesMinusOne;
TENON_PLUGIN(ProposesMinusOne);
