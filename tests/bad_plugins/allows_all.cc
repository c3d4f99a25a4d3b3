// This grammar's masks allow every token, whatever it accepts.
#include <algorithm>
#include <string>

#include "tenon/sdk/grammar.h"

namespace tenon::test {
namespace {

class AllowsAll : public sdk::Grammar<AllowsAll> {
 public:
  static constexpr const char* kName = "allows_all";
  static constexpr const char* kDoc = "Allows what it does not accept";
  static constexpr auto kParams = sdk::params();

  using Compiled = std::string;
  using Matcher = std::string;

  AllowsAll(const sdk::Params&, const sdk::Env&) {}

  void prepare(const sdk::Vocabulary&) {}
  std::unique_ptr<Compiled> compile(const sdk::GrammarSource& source, uint64_t&) const {
    return std::make_unique<Compiled>(source.text());
  }
  std::unique_ptr<Matcher> start(const Compiled& compiled) const { return std::make_unique<Matcher>(compiled); }
  void accept(Matcher&, int32_t) const { throw sdk::Refused("no token is right"); }
  void mask(const Matcher&, std::span<uint32_t> bits) const { std::fill(bits.begin(), bits.end(), UINT32_MAX); }
};

}  // namespace
}  // namespace tenon::test

TENON_PLUGIN(tenon::test::AllowsAll);
