// With grammar.literal the text is the one that the request states, letter by letter.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/sdk/grammar.h"

namespace sdk = tenon::sdk;

namespace {

class Literal : public sdk::Grammar<Literal> {
 public:
  static constexpr const char* kName = "literal";
  static constexpr const char* kDoc = "A regular expression of letters alone, which stand for themselves";
  static constexpr auto kParams = sdk::params();

  struct Compiled {
    std::string text;
  };
  struct Matcher {
    std::string text;
    std::vector<size_t> at = {0};  // so much of it has come: at first, and after each token
    std::string_view rest() const { return std::string_view(text).substr(at.back()); }
  };

  Literal(const sdk::Params&, const sdk::Env&) {}

  void prepare(const sdk::Vocabulary& vocabulary) {
    for (uint32_t i = 0; i < vocabulary.size(); ++i) tokens_.emplace_back(vocabulary[i]);
    ends_.assign(vocabulary.ends().begin(), vocabulary.ends().end());
  }

  std::unique_ptr<Compiled> compile(const sdk::GrammarSource& source, uint64_t& bytes) const {
    if (source.form() != TENON_GRAMMAR_REGEX) throw sdk::Refused("it knows regular expressions alone");
    const std::string text(source.text());
    const size_t wrong = text.find_first_of("\\^$.|?*+()[]{}");
    if (wrong != text.npos) throw sdk::Refused("it knows no operators; found " + text.substr(wrong, 1));
    bytes = text.size();
    return std::make_unique<Compiled>(Compiled{text});
  }

  std::unique_ptr<Matcher> start(const Compiled& compiled) const {
    return std::make_unique<Matcher>(Matcher{compiled.text});
  }

  void accept(Matcher& matcher, int32_t token) const {
    const auto id = static_cast<size_t>(token);
    if (id >= tokens_.size() || !goes_on(matcher, id)) throw sdk::Refused("the text cannot go on with this token");
    matcher.at.push_back(matcher.at.back() + tokens_[id].size());
  }

  // This is optional: text under a grammar without it comes without drafts.
  void rewind(Matcher& matcher, uint32_t tokens) const { matcher.at.resize(matcher.at.size() - tokens); }

  void mask(const Matcher& matcher, std::span<uint32_t> bits) const {
    std::fill(bits.begin(), bits.end(), 0);
    const auto allow = [&](size_t id) { bits[id / 32] |= uint32_t{1} << id % 32; };
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (goes_on(matcher, id)) allow(id);
    }
    if (!matcher.rest().empty()) return;
    for (const int32_t end : ends_) allow(static_cast<size_t>(end));
  }

 private:
  bool is_end(size_t id) const { return std::binary_search(ends_.begin(), ends_.end(), static_cast<int32_t>(id)); }
  bool goes_on(const Matcher& matcher, size_t id) const {
    return !tokens_[id].empty() && !is_end(id) && matcher.rest().starts_with(tokens_[id]);
  }

  std::vector<std::string> tokens_;
  std::vector<int32_t> ends_;
};

}  // namespace

TENON_PLUGIN(Literal);
