// This draft for tests proposes a tree of two branches after the newest token. It knows the text that will be: one
// branch follows it for some tokens, the other never does, and which is which changes.
#include <charconv>
#include <string>
#include <vector>

#include "tenon/sdk/draft.h"

namespace tenon::test {

class TwoBranches : public sdk::Draft<TwoBranches> {
 public:
  static constexpr const char* kName = "two_branches";
  static constexpr const char* kDoc = "A tree of two branches, for tests";
  static constexpr auto kParams =
      sdk::params(sdk::text({.name = "text", .doc = "The tokens that will be, with blanks between", .value = ""}));
  static constexpr uint32_t kDepth = 3;

  TwoBranches(const sdk::Params& params, const sdk::Env&) {
    const std::string text = params.text("text");
    for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
      at = std::from_chars(at, end, text_.emplace_back()).ptr;
    }
  }

  uint32_t max_tokens() const { return 2 * kDepth; }

  // The branches stand in turns, so that the rows of a branch do not follow each other.
  uint32_t propose(uint32_t, std::span<const int32_t> tokens, std::span<int32_t> out, std::span<int32_t> parent) {
    const size_t at = tokens.size();
    const uint32_t right = at % 2, goes_wrong = at % 5;
    uint32_t n = 0;
    int32_t last[2] = {-1, -1};
    for (uint32_t depth = 0; depth < kDepth; ++depth) {
      for (uint32_t branch = 0; branch < 2 && n < out.size(); ++branch) {
        const int32_t token = at + depth < text_.size() ? text_[at + depth] : 3;
        out[n] = branch == right && depth != goes_wrong ? token : token + 1;
        parent[n] = last[branch];
        last[branch] = static_cast<int32_t>(n++);
      }
    }
    return n;
  }

 private:
  std::vector<int32_t> text_;
};

}  // namespace tenon::test

TENON_PLUGIN(tenon::test::TwoBranches);
