// This grammar takes one token less back than it is asked to. All else is right: its text is "abc".
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/sdk/grammar.h"

namespace tenon::test {
namespace {

class RewindsTooLittle : public sdk::Grammar<RewindsTooLittle> {
 public:
  static constexpr const char* kName = "rewinds_too_little";
  static constexpr const char* kDoc = "Takes one token less back than it is asked to";
  static constexpr auto kParams = sdk::params();

  using Compiled = std::string;
  struct Matcher {
    std::string text;
    std::vector<size_t> at = {0};  // so much of it has come: at first, and after each token
    std::string_view rest() const { return std::string_view(text).substr(at.back()); }
  };

  RewindsTooLittle(const sdk::Params&, const sdk::Env&) {}

  void prepare(const sdk::Vocabulary& vocabulary) {
    for (uint32_t i = 0; i < vocabulary.size(); ++i) tokens_.emplace_back(vocabulary[i]);
    end_ = static_cast<size_t>(vocabulary.ends().front());
  }
  std::unique_ptr<Compiled> compile(const sdk::GrammarSource& source, uint64_t& bytes) const {
    if (source.form() != TENON_GRAMMAR_REGEX || source.text() != "abc") throw sdk::Refused("it knows abc alone");
    bytes = 3;
    return std::make_unique<Compiled>(source.text());
  }
  std::unique_ptr<Matcher> start(const Compiled& compiled) const {
    return std::make_unique<Matcher>(Matcher{compiled});
  }
  void accept(Matcher& m, int32_t token) const {
    if (!comes(m, static_cast<size_t>(token))) throw sdk::Refused("the text cannot go on with this token");
    m.at.push_back(m.at.back() + tokens_[static_cast<size_t>(token)].size());
  }
  void rewind(Matcher& m, uint32_t tokens) const { m.at.resize(m.at.size() - (tokens > 1 ? tokens - 1 : tokens)); }
  void mask(const Matcher& m, std::span<uint32_t> bits) const {
    std::fill(bits.begin(), bits.end(), 0);
    for (size_t id = 0; id < tokens_.size(); ++id) {
      if (id == end_ ? m.rest().empty() : comes(m, id)) bits[id / 32] |= uint32_t{1} << id % 32;
    }
  }

 private:
  bool comes(const Matcher& m, size_t id) const {
    return id != end_ && !tokens_[id].empty() && m.rest().starts_with(tokens_[id]);
  }

  std::vector<std::string> tokens_;
  size_t end_ = 0;
};

}  // namespace
}  // namespace tenon::test

TENON_PLUGIN(tenon::test::RewindsTooLittle);
