// This is grammar.xgrammar: JSON Schemas, regular expressions and GBNF by XGrammar (Dong et al., arXiv:2411.15100). A
// grammar is compiled once for a vocabulary: for each state of its automaton, the tokens whose fate does not depend on
// what stands on the stack are looked at beforehand, so that a mask takes microseconds.
//
// Invariants:
//  - Nothing of a grammar is left out: what XGrammar would only warn of is refused, and so is what it would not even
//    notice (schema.h).
//  - Every call is bounded in time and memory (budget.h).
//  - A compiled grammar never changes. A matcher belongs to one sequence.
#include <xgrammar/xgrammar.h>

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "budget.h"
#include "rules.h"
#include "said.h"
#include "schema.h"
#include "tenon/sdk/grammar.h"

namespace sdk = tenon::sdk;

namespace {

using tenon::grammar_xgrammar::Budget;

constexpr int64_t kMiB = int64_t{1} << 20U;
constexpr double kMaskSeconds = 2;  // a step waits for the mask
constexpr int64_t kMaskMiB = 256;

// UTF-8 has no place for surrogates (ED A0 80 to ED BF BF), for longer forms than a character needs (E0 80,
// F0 80, C0), and for what is above U+10FFFF (F4 90, F5). XGrammar counts them among the characters that a
// class allows. So no token may hold such bytes, and after a token that ends with one of four first bytes
// none may begin with a wrong second byte.
class WellFormed {
 public:
  WellFormed() = default;
  explicit WellFormed(const sdk::Vocabulary& vocabulary) {
    for (std::vector<uint32_t>& wrong : wrong_) wrong.resize((vocabulary.size() + kBits - 1) / kBits);
    for (uint32_t i = 0; i < vocabulary.size(); ++i) {
      const std::string_view text = vocabulary[i];
      first_.push_back(text.empty() ? kNone : lead_of(text.back()));
      for (size_t lead = 0; lead < kLeads.size(); ++lead) {
        if (!text.empty() && is_wrong(lead, text.front())) wrong_[lead][i / kBits] |= uint32_t{1} << i % kBits;
      }
    }
  }

  static bool may_be_text(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      if (byte == 0xC0 || byte == 0xC1 || byte > 0xF4) return false;
      const uint8_t lead = i == 0 ? kNone : lead_of(text[i - 1]);
      if (lead != kNone && is_wrong(lead, text[i])) return false;
    }
    return true;
  }
  // Returns which unfinished character a text that ends with this token ends with,
  // as forbid() takes it for the next token.
  uint8_t ending(size_t token) const { return first_[token]; }
  void forbid(uint8_t ending, std::span<uint32_t> bits) const {
    if (ending == kNone) return;
    for (size_t i = 0; i < bits.size(); ++i) bits[i] &= ~wrong_[ending][i];
  }
  static constexpr uint8_t kNone = 4;

 private:
  struct Lead {
    unsigned char first, least, most;  // the second byte is one of least to most
  };
  static constexpr std::array<Lead, kNone> kLeads = {
      {{0xE0, 0xA0, 0xBF}, {0xED, 0x80, 0x9F}, {0xF0, 0x90, 0xBF}, {0xF4, 0x80, 0x8F}}};
  static constexpr uint32_t kBits = 32;

  static uint8_t lead_of(char c) {
    uint8_t lead = 0;
    while (lead < kNone && kLeads[lead].first != static_cast<unsigned char>(c)) ++lead;
    return lead;
  }
  static bool is_wrong(size_t lead, char second) {
    const auto byte = static_cast<unsigned char>(second);
    return byte < kLeads[lead].least || byte > kLeads[lead].most;
  }

  std::array<std::vector<uint32_t>, kNone> wrong_;  // a bit for each token that may not come after that lead
  std::vector<uint8_t> first_;                      // by token: it ends with this lead
};

class XGrammar : public sdk::Grammar<XGrammar> {
 public:
  static constexpr const char* kName = "xgrammar";
  static constexpr const char* kDoc = "JSON Schemas, regular expressions and GBNF, by the core of XGrammar";
  static constexpr auto kParams = sdk::params(
      sdk::boolean({.name = "any_whitespace",
                    .doc =
                        "JSON may have any white space between its parts; else it has \", \" and \": \" alone, so that "
                        "a model cannot go on with white space for ever",
                    .value = false}),
      sdk::integer({.name = "max_kib",
                    .doc = "A grammar's text has so many at most",
                    .value = 64,
                    .min = 1,
                    .max = 4096,
                    .unit = "KiB"}),
      sdk::real({.name = "max_seconds",
                 .doc = "A grammar that takes longer to compile is refused",
                 .value = 10,
                 .min = 0.001,
                 .max = 600,
                 .unit = "s"}),
      sdk::integer({.name = "max_mib",
                    .doc = "A grammar that takes more memory to compile is refused",
                    .value = 512,
                    .min = 1,
                    .max = 65536,
                    .unit = "MiB"}));

  struct Compiled {
    xgrammar::CompiledGrammar grammar;
    bool counts;  // it may have rules of at most so many tokens or characters, which XGrammar counts from mask to mask
  };
  struct Matcher {
    xgrammar::GrammarMatcher matcher;
    bool counts;
    std::vector<uint8_t> endings = {WellFormed::kNone};  // the text has these at its beginning and after each token
  };

  XGrammar(const sdk::Params& params, const sdk::Env&)
      : any_whitespace_(params.boolean("any_whitespace")),
        max_kib_(params.integer("max_kib")),
        max_seconds_(params.real("max_seconds")),
        max_mib_(params.integer("max_mib")) {}

  void prepare(const sdk::Vocabulary& vocabulary) {
    well_formed_ = WellFormed(vocabulary);
    std::vector<std::string> tokens;
    tokens.reserve(vocabulary.size());
    for (uint32_t i = 0; i < vocabulary.size(); ++i) {
      tokens.emplace_back(WellFormed::may_be_text(vocabulary[i]) ? vocabulary[i] : std::string_view());
    }
    const std::vector<int32_t> ends(vocabulary.ends().begin(), vocabulary.ends().end());
    vocabulary_.emplace(tokens, xgrammar::VocabType::RAW, static_cast<int>(tokens.size()), ends);
  }

  std::unique_ptr<Compiled> compile(const sdk::GrammarSource& source, uint64_t& bytes) const {
    if (source.text().size() > static_cast<uint64_t>(max_kib_) << 10U) {
      throw sdk::Refused("it has " + std::to_string(source.text().size()) + " bytes; at most " +
                         std::to_string(max_kib_) + " KiB are taken (grammar.max_kib)");
    }
    if (source.text().find('\0') != source.text().npos) throw sdk::Refused("it holds a byte of 0");
    tenon::grammar_xgrammar::forget_warnings();
    Budget budget(max_seconds_, max_mib_ * kMiB);
    try {
      // It has no cache and no threads of its own: the host has both.
      xgrammar::GrammarCompiler compiler(vocabulary_of(source), 1, false);
      auto compiled = std::make_unique<Compiled>(Compiled{compiler.CompileGrammar(grammar_of(source)), counts(source)});
      if (const std::string& said = tenon::grammar_xgrammar::first_warning(); !said.empty()) throw sdk::Refused(said);
      check_beginning(*compiled);
      bytes = compiled->grammar.MemorySizeBytes();
      return compiled;
    } catch (const std::bad_alloc&) {
      if (budget.problem().empty()) throw;
      throw sdk::Refused(budget.problem() + " to compile");
    } catch (const sdk::Refused&) {
      throw;
    } catch (const std::exception& e) {
      throw sdk::Refused(e.what());
    }
  }

  std::unique_ptr<Matcher> start(const Compiled& compiled) const {
    return std::make_unique<Matcher>(Matcher{xgrammar::GrammarMatcher(compiled.grammar), compiled.counts});
  }

  void accept(Matcher& m, int32_t token) const {
    within_budget([&] {
      if (!m.matcher.AcceptToken(token))
        throw sdk::Refused("the text cannot go on with token " + std::to_string(token));
    });
    m.endings.push_back(well_formed_.ending(static_cast<size_t>(token)));
  }

  void rewind(Matcher& m, uint32_t tokens) const {
    if (m.counts) throw sdk::Refused("what rules with max_tokens or max_chars have counted is not taken back");
    if (tokens >= m.endings.size())
      throw sdk::Failed("there are no " + std::to_string(tokens) + " tokens to take back");
    m.matcher.Rollback(static_cast<int>(tokens));
    m.endings.resize(m.endings.size() - tokens);
  }

  void mask(Matcher& m, std::span<uint32_t> bits) const {
    within_budget([&] { fill(m.matcher, bits); });
    well_formed_.forbid(m.endings.back(), bits);
  }

 private:
  template <class F>
  static void within_budget(F&& f) {
    Budget budget(kMaskSeconds, kMaskMiB * kMiB);
    try {
      f();
    } catch (const std::bad_alloc&) {
      if (budget.problem().empty()) throw;
      throw sdk::Failed("what may come next cannot be told: " + budget.problem());
    }
  }

  static void fill(xgrammar::GrammarMatcher& matcher, std::span<uint32_t> bits) {
    DLTensor tensor{};
    auto words = static_cast<int64_t>(bits.size());
    tensor.data = bits.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &words;
    matcher.FillNextTokenBitmask(&tensor);
  }

  static bool counts(const sdk::GrammarSource& source) {
    const auto holds = [&](std::string_view word) { return source.text().find(word) != source.text().npos; };
    return source.form() == TENON_GRAMMAR_EBNF && (holds("max_tokens") || holds("max_chars"));
  }

  xgrammar::Grammar grammar_of(const sdk::GrammarSource& source) const {
    const std::string text(source.text());
    switch (source.form()) {
      case TENON_GRAMMAR_JSON_SCHEMA:
        return tenon::grammar_xgrammar::grammar_of_schema(text, any_whitespace_, source.closed());
      case TENON_GRAMMAR_REGEX:
        return xgrammar::Grammar::FromRegex(text);
      case TENON_GRAMMAR_EBNF:
        return tenon::grammar_xgrammar::grammar_of_rules(text, any_whitespace_, source.closed());
      default:
        throw sdk::Refused("form " + std::to_string(source.form()) + " of a grammar is not known");
    }
  }

  // Rules may name tokens by their ids, as Token(5). XGrammar never takes a token of no bytes, which a control token
  // is, so for such rules each of those has a byte that no character has. Only what takes any bytes would take it,
  // too.
  const xgrammar::TokenizerInfo& vocabulary_of(const sdk::GrammarSource& source) const {
    const bool names_tokens = source.text().find("Token(") != source.text().npos;
    if (source.form() != TENON_GRAMMAR_EBNF || !names_tokens) return *vocabulary_;
    if (source.text().find("Dispatch(") != source.text().npos ||
        source.text().find("ExcludeToken(") != source.text().npos)
      throw sdk::Refused("Token() is not supported beside TagDispatch(), TokenTagDispatch() and ExcludeToken()");
    std::call_once(nameable_once_, [&] {
      std::vector<std::string> tokens = vocabulary_->GetDecodedVocab();
      for (std::string& token : tokens) token = token.empty() ? "\xFF" : token;
      nameable_.emplace(tokens, xgrammar::VocabType::RAW, static_cast<int>(tokens.size()),
                        vocabulary_->GetStopTokenIds());
    });
    return *nameable_;
  }

  // A grammar may have no text at all, as rules that only name each other have none.
  void check_beginning(const Compiled& compiled) const {
    constexpr size_t kBits = 32;
    xgrammar::GrammarMatcher matcher(compiled.grammar);
    std::vector<uint32_t> bits((static_cast<size_t>(vocabulary_->GetVocabSize()) + kBits - 1) / kBits);
    fill(matcher, bits);
    for (const uint32_t word : bits) {
      if (word != 0) return;
    }
    throw sdk::Refused("no text matches it, or none that the model's tokens can write");
  }

  bool any_whitespace_;
  int64_t max_kib_;
  double max_seconds_;
  int64_t max_mib_;
  WellFormed well_formed_;
  std::optional<xgrammar::TokenizerInfo> vocabulary_;
  mutable std::once_flag nameable_once_;
  mutable std::optional<xgrammar::TokenizerInfo> nameable_;  // the vocabulary for rules that name tokens
};

}  // namespace

TENON_PLUGIN(XGrammar);
