// grammar.letters, for tests: the text has letters that the request states ("abc"), and may end after the third. Some
// letters stand for what goes wrong: "!" for a mask that fails, "0" for one that allows nothing once there is a letter.
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
    if (!is_of(m, text)) throw sdk::Refused("\"" + text + "\" is not of the letters");
    m.length += text.size();
  }
  void mask(const Matcher& m, std::span<uint32_t> bits) const {
    if (m.letters == "!") throw sdk::Failed("there is no mask today");
    std::fill(bits.begin(), bits.end(), 0);
    const auto allow = [&](size_t id) { bits[id / 32] |= uint32_t{1} << id % 32; };
    if (m.letters[0] == '0' && m.length > 0) return;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (is_of(m, tokens_[id])) allow(id);
    }
    if (m.length < 3) return;
    for (const int32_t end : ends_) allow(static_cast<size_t>(end));
  }

 private:
  static bool is_of(const Matcher& m, const std::string& text) {
    return !text.empty() && text.find_first_not_of(m.letters) == text.npos;
  }

  std::vector<std::string> tokens_;
  std::vector<int32_t> ends_;
};

}  // namespace
}  // namespace tenon::test

TENON_PLUGIN(tenon::test::Letters);
