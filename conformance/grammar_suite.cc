// Any grammar owes this: its mask says what it accepts, a text may end where it is complete and nowhere else, matchers
// do not see each other, and what it refuses has a reason.
#include <algorithm>

#include "conformance/suites.h"
#include "tenon/abi/grammar.h"
#include "tenon/sdk/error.h"

namespace tenon::conformance {
namespace {

constexpr uint32_t kBits = 32;
constexpr uint32_t kFence = 0xABCD1234;

// Single letters, two pieces, a control token and an end: more than a word of a mask.
struct Words {
  std::vector<std::string> token;
  std::string bytes;
  std::vector<uint64_t> offset = {0};
  int32_t end = 0;

  Words() {
    token = {"", "</s>"};
    end = 1;
    for (char c = 'a'; c <= 'z'; ++c) token.emplace_back(1, c);
    for (const char* more : {"ab", "bc", "abc", "abcd", "0", "1", "2", "3", "4", "\n"}) token.emplace_back(more);
    for (const std::string& t : token) {
      bytes += t;
      offset.push_back(bytes.size());
    }
  }
  uint32_t size() const { return static_cast<uint32_t>(token.size()); }
  tenon_vocabulary abi() const {
    auto v = sdk::abi_struct<tenon_vocabulary>();
    v.tokens = size();
    v.ends = 1;
    v.bytes = bytes.data();
    v.offset = offset.data();
    v.end = &end;
    return v;
  }
};

tenon_grammar_source source_of(uint32_t form, const std::string& text) {
  auto source = sdk::abi_struct<tenon_grammar_source>();
  source.form = form;
  source.text = text.data();
  source.bytes = text.size();
  return source;
}

// This holds a component that knows the words, and a grammar of it whose only text is "abc".
class Opened {
 public:
  explicit Opened(const Subject& subject) : component_(subject.open()) {
    const tenon_vocabulary vocabulary = words_.abi();
    Reason why;
    why.check(table().prepare(self(), &vocabulary, &why.raw), "does not take a vocabulary");
  }
  ~Opened() {
    for (void* matcher : matchers_) table().stop(self(), matcher);
    if (compiled_ != nullptr) table().release(self(), compiled_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  const tenon_grammar& table() const { return component_->table<tenon_grammar>(); }
  void* self() const { return component_->self(); }
  const Words& words() const { return words_; }

  void compile() {
    const std::pair<uint32_t, std::string> forms[] = {{TENON_GRAMMAR_REGEX, "abc"},
                                                      {TENON_GRAMMAR_EBNF, "root ::= \"abc\""},
                                                      {TENON_GRAMMAR_JSON_SCHEMA, "{\"const\": \"abc\"}"}};
    for (const auto& [form, text] : forms) {
      const tenon_grammar_source source = source_of(form, text);
      uint64_t bytes = 0;
      Reason why;
      const tenon_status status = table().compile(self(), &source, &compiled_, &bytes, &why.raw);
      text_ = form == TENON_GRAMMAR_JSON_SCHEMA ? "\"abc\"" : "abc";
      if (status == TENON_OK) return;
      require(status == TENON_REFUSED, std::string("fails instead of refusing what it does not know: ") + why.text);
      require(*why.text != '\0', "refuses a grammar and does not say why");
    }
    throw NotTested("it takes none of the grammars of this check");
  }
  const std::string& text() const { return text_; }

  void* start() {
    void* matcher = nullptr;
    Reason why;
    why.check(table().start(self(), compiled_, &matcher, &why.raw), "cannot begin a text");
    matchers_.push_back(matcher);
    return matcher;
  }
  std::vector<bool> mask(void* matcher) const {
    const uint32_t words = (words_.size() + kBits - 1) / kBits;
    std::vector<uint32_t> bits(words + 1, kFence);
    Reason why;
    why.check(table().mask(self(), matcher, bits.data(), &why.raw), "has no mask");
    require(bits.back() == kFence, "writes past the words of a mask");
    std::vector<bool> allowed;
    for (uint32_t i = 0; i < words_.size(); ++i) allowed.push_back(((bits[i / kBits] >> i % kBits) & 1U) != 0);
    return allowed;
  }
  bool accepts(void* matcher, uint32_t token) const {
    Reason why;
    const tenon_status status = table().accept(self(), matcher, static_cast<int32_t>(token), &why.raw);
    require(status == TENON_OK || status == TENON_REFUSED, std::string("fails to accept a token: ") + why.text);
    return status == TENON_OK;
  }
  // Returns a matcher after a text, letter by letter.
  void* after(const std::string& text) {
    void* matcher = start();
    go_on(matcher, text);
    return matcher;
  }
  void go_on(void* matcher, const std::string& text) const {
    for (const char c : text) {
      const auto at = std::find(words_.token.begin(), words_.token.end(), std::string(1, c));
      require(accepts(matcher, static_cast<uint32_t>(at - words_.token.begin())),
              "does not go on with what it allowed");
    }
  }
  void rewind(void* matcher, uint32_t tokens) const {
    Reason why;
    why.check(table().rewind(self(), matcher, tokens, &why.raw), "takes no tokens back");
  }

 private:
  std::unique_ptr<Component> component_;
  Words words_;
  void* compiled_ = nullptr;
  std::string text_;
  std::vector<void*> matchers_;
};

// After every beginning of a text, the mask and the matcher agree on every token: whether it continues the text.
void allows_what_it_accepts(const Subject& subject) {
  Opened grammar(subject);
  grammar.compile();
  const Words& words = grammar.words();
  for (size_t length = 0; length <= grammar.text().size(); ++length) {
    const std::string text = grammar.text().substr(0, length), rest = grammar.text().substr(length);
    const std::vector<bool> allowed = grammar.mask(grammar.after(text));
    for (uint32_t i = 0; i < words.size(); ++i) {
      const std::string named = "token \"" + words.token[i] + "\" after \"" + text + "\"";
      if (static_cast<int32_t>(i) == words.end) {
        require(allowed[i] == rest.empty(),
                rest.empty() ? "does not let a complete text end" : "lets a text end that is not complete");
        continue;
      }
      const bool right = !words.token[i].empty() && rest.starts_with(words.token[i]);
      require(allowed[i] == right, (right ? "does not allow " : "allows ") + named);
      if (!words.token[i].empty())
        require(grammar.accepts(grammar.after(text), i) == right, (right ? "does not accept " : "accepts ") + named);
    }
  }
}

void keeps_matchers_apart(const Subject& subject) {
  Opened grammar(subject);
  grammar.compile();
  void* first = grammar.start();
  const std::vector<bool> beginning = grammar.mask(first);
  void* second = grammar.after(grammar.text().substr(0, 2));
  require(grammar.mask(first) == beginning, "a matcher's mask changes when another one accepts");
  require(grammar.mask(second) == grammar.mask(second), "a mask changes when it is asked for again");
}

// A matcher that takes tokens back has the mask it had before them, at every length. A refused token changes nothing.
void takes_tokens_back(const Subject& subject) {
  Opened grammar(subject);
  if (grammar.table().rewind == nullptr) throw NotTested("it takes no tokens back");
  grammar.compile();
  Reason none;
  if (grammar.table().rewind(grammar.self(), grammar.start(), 0, &none.raw) == TENON_REFUSED)
    throw NotTested("it takes no tokens of this grammar back");
  const Words& words = grammar.words();
  const std::string& text = grammar.text();
  for (size_t kept = 0; kept < text.size(); ++kept) {
    const std::vector<bool> before = grammar.mask(grammar.after(text.substr(0, kept)));
    for (size_t end = kept + 1; end <= text.size(); ++end) {
      void* matcher = grammar.after(text.substr(0, end));
      const std::vector<bool> allowed = grammar.mask(matcher);
      for (uint32_t i = 0; i < words.size(); ++i) {
        const bool text_token = static_cast<int32_t>(i) != words.end && !words.token[i].empty();
        if (text_token && !allowed[i]) require(!grammar.accepts(matcher, i), "accepts what its mask forbids");
      }
      require(grammar.mask(matcher) == allowed, "a token that it refuses changes its mask");
      grammar.rewind(matcher, static_cast<uint32_t>(end - kept));
      const std::string where = "\"" + text.substr(kept, end - kept) + "\" of \"" + text.substr(0, end) + "\"";
      require(grammar.mask(matcher) == before, "its mask differs after it took back " + where);
      grammar.go_on(matcher, text.substr(kept));
      require(grammar.mask(matcher) == grammar.mask(grammar.after(text)), "does not go on after it took back " + where);
    }
  }
}

void refuses_what_is_wrong(const Subject& subject) {
  const Opened grammar(subject);
  const std::pair<uint32_t, std::string> wrong[] = {{77, "abc"},
                                                    {TENON_GRAMMAR_JSON_SCHEMA, "{\"type\":"},
                                                    {TENON_GRAMMAR_JSON_SCHEMA, "{\"type\": \"nothing\"}"},
                                                    {TENON_GRAMMAR_REGEX, "(a"},
                                                    {TENON_GRAMMAR_EBNF, "root ::= other"},
                                                    {TENON_GRAMMAR_EBNF, std::string("\0\xFF\xFE", 3)}};
  for (const auto& [form, text] : wrong) {
    const tenon_grammar_source source = source_of(form, text);
    void* compiled = nullptr;
    uint64_t bytes = 0;
    Reason why;
    const tenon_status status = grammar.table().compile(grammar.self(), &source, &compiled, &bytes, &why.raw);
    if (status == TENON_OK) grammar.table().release(grammar.self(), compiled);
    require(status == TENON_REFUSED, "takes a grammar that is wrong: " + text);
    require(*why.text != '\0', "refuses a grammar and does not say why: " + text);
  }
}

}  // namespace

std::vector<Check> grammar_checks() {
  return {{"masks", &allows_what_it_accepts},
          {"apart", &keeps_matchers_apart},
          {"rewinds", &takes_tokens_back},
          {"refuses", &refuses_what_is_wrong}};
}

}  // namespace tenon::conformance
