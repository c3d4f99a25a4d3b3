// grammar.letters, for tests: the text has letters that the request states ("abc"), and may end after the third. The
// first ones may say more: ">abc" that they come in turn, a letter a token; "#abc" that nothing comes after six; "-abc"
// that tokens are not taken back; "~abc" that it never ends; "0", that nothing comes after it; and "!" that the mask
// fails.
#include <algorithm>
#include <string>
#include <vector>

#include "tenon/sdk/grammar.h"

namespace tenon::test {
namespace {

class Letters : public sdk::Grammar<Letters> {
 public:
  static constexpr const char* kName = "letters";
  static constexpr const char* kDoc = "Any text of some letters";
  static constexpr auto kParams = sdk::params();

  using Compiled = std::string;
  struct Matcher {
    std::string letters;
    size_t length = 0;
    std::vector<size_t> before = {};  // each accepted token, the length
  };

  Letters(const sdk::Params&, const sdk::Env&) {}

  void prepare(const sdk::Vocabulary& vocabulary) {
    for (uint32_t i = 0; i < vocabulary.size(); ++i) tokens_.emplace_back(vocabulary[i]);
    ends_.assign(vocabulary.ends().begin(), vocabulary.ends().end());
  }
  std::unique_ptr<Compiled> compile(const sdk::GrammarSource& source, uint64_t& bytes) const {
    if (source.text().empty()) throw sdk::Refused("there are no letters");
    bytes = source.text().size();
    return std::make_unique<Compiled>(source.text());
  }
  std::unique_ptr<Matcher> start(const Compiled& compiled) const {
    return std::make_unique<Matcher>(Matcher{compiled});
  }

  void accept(Matcher& m, int32_t token) const {
    const std::string& text = tokens_[static_cast<size_t>(token)];
    if (nothing_comes(m) || !is_of(m, text)) throw sdk::Refused("\"" + text + "\" is not of the letters");
    m.before.push_back(m.length);
    m.length += text.size();
  }
  void rewind(Matcher& m, uint32_t tokens) const {
    if (says(m, '-')) throw sdk::Refused("tokens are not taken back");
    if (tokens == 0) return;
    m.length = m.before.at(m.before.size() - tokens);
    m.before.resize(m.before.size() - tokens);
  }
  void mask(const Matcher& m, std::span<uint32_t> bits) const {
    if (m.letters == "!") throw sdk::Failed("there is no mask today");
    std::fill(bits.begin(), bits.end(), 0);
    const auto allow = [&](size_t id) { bits[id / 32] |= uint32_t{1} << id % 32; };
    if (nothing_comes(m)) return;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (is_of(m, tokens_[id])) allow(id);
    }
    if (m.length < 3 || says(m, '~')) return;
    for (const int32_t end : ends_) allow(static_cast<size_t>(end));
  }

 private:
  static constexpr const char* kSigns = ">#-~";
  static bool says(const Matcher& m, char sign) { return m.letters.find(sign) < m.letters.find_first_not_of(kSigns); }
  static bool nothing_comes(const Matcher& m) {
    return (m.letters[0] == '0' && m.length > 0) || (says(m, '#') && m.length >= 6);
  }
  static bool is_of(const Matcher& m, const std::string& text) {
    const std::string letters = m.letters.substr(m.letters.find_first_not_of(kSigns));
    if (says(m, '>')) return text == letters.substr(m.length % letters.size(), 1);
    return !text.empty() && text.find_first_not_of(letters) == text.npos;
  }

  std::vector<std::string> tokens_;
  std::vector<int32_t> ends_;
};

}  // namespace
}  // namespace tenon::test

TENON_PLUGIN(tenon::test::Letters);
