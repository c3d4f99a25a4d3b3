// A grammar is a class T that derives from Grammar<T>; tenon/abi/grammar.h says what its functions owe. T has
//   using Compiled = ...; using Matcher = ...;
//   void prepare(const Vocabulary&);                                        once, before anything is compiled
//   std::unique_ptr<Compiled> compile(const GrammarSource&, uint64_t& bytes);
//     Several threads at once. It throws Refused for a text that is wrong or asks for too much. bytes: the memory that the
//     result takes.
//   std::unique_ptr<Matcher> start(const Compiled&);                        at the beginning of a text
//   void accept(Matcher&, int32_t token);
//     It throws Refused for a token that cannot come, and has changed nothing then.
//   void mask(Matcher&, std::span<uint32_t> bits);                          one bit a token; 1 = it may come next
// and may have
//   void rewind(Matcher&, uint32_t tokens);
//     It takes the newest accepted tokens back. It throws Refused, for 0 tokens too, if this matcher cannot.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "tenon/abi/grammar.h"
#include "tenon/sdk/component.h"

namespace tenon::sdk {

// This has the tokens of a model; see tenon_vocabulary. It is valid during the call only.
class Vocabulary {
 public:
  explicit Vocabulary(const tenon_vocabulary* raw) : raw_(read_abi(raw)) {}

  uint32_t size() const { return raw_.tokens; }
  std::string_view operator[](uint32_t token) const {
    return {raw_.bytes + raw_.offset[token], raw_.offset[token + 1] - raw_.offset[token]};
  }
  std::span<const int32_t> ends() const { return {raw_.end, raw_.ends}; }

 private:
  tenon_vocabulary raw_;
};

// This is to be compiled; see tenon_grammar_source. It is valid during the call only.
class GrammarSource {
 public:
  explicit GrammarSource(const tenon_grammar_source* raw) : raw_(read_abi(raw)) {}

  uint32_t form() const { return raw_.form; }  // TENON_GRAMMAR_*
  bool closed() const { return (raw_.flags & TENON_GRAMMAR_CLOSED) != 0; }
  std::string_view text() const { return {raw_.text, raw_.bytes}; }

 private:
  tenon_grammar_source raw_;
};

template <class T>
class Grammar : public ComponentDefaults {
 public:
  static constexpr const char* kKind = "grammar";
  static constexpr const char* kInterface = "grammar/1";
  static constexpr const char* kDevice = "host";  // it serves a pipeline on any device

  static const tenon_grammar* table() {
    static constexpr tenon_grammar kTable = make();
    return &kTable;
  }

 private:
  static constexpr tenon_grammar make() {
    auto t = abi_struct<tenon_grammar>();
    t.prepare = &call_prepare;
    t.compile = &call_compile;
    t.release = &call_release;
    t.start = &call_start;
    t.stop = &call_stop;
    t.accept = &call_accept;
    t.mask = &call_mask;
    if constexpr (requires(T& grammar, typename T::Matcher& m) { grammar.rewind(m, 0U); }) t.rewind = &call_rewind<T>;
    return t;
  }
  static T& self(void* p) { return *static_cast<T*>(p); }

  static tenon_status call_prepare(void* p, const tenon_vocabulary* raw, tenon_reason* why) noexcept {
    return guard(why, [&] {
      const Vocabulary vocabulary(raw);
      constexpr uint32_t kBits = 32;
      static_cast<Grammar&>(self(p)).words_ = (vocabulary.size() + kBits - 1) / kBits;
      self(p).prepare(vocabulary);
    });
  }
  static tenon_status call_compile(void* p, const tenon_grammar_source* source, void** out, uint64_t* bytes,
                                   tenon_reason* why) noexcept {
    return guard(why, [&] { *out = self(p).compile(GrammarSource(source), *bytes).release(); });
  }
  static void call_release(void*, void* compiled) noexcept { delete static_cast<typename T::Compiled*>(compiled); }
  static tenon_status call_start(void* p, const void* compiled, void** matcher, tenon_reason* why) noexcept {
    return guard(why, [&] { *matcher = self(p).start(*static_cast<const typename T::Compiled*>(compiled)).release(); });
  }
  static void call_stop(void*, void* matcher) noexcept { delete static_cast<typename T::Matcher*>(matcher); }
  static tenon_status call_accept(void* p, void* matcher, int32_t token, tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).accept(*static_cast<typename T::Matcher*>(matcher), token); });
  }
  static tenon_status call_mask(void* p, void* matcher, uint32_t* bits, tenon_reason* why) noexcept {
    return guard(why, [&] {
      self(p).mask(*static_cast<typename T::Matcher*>(matcher),
                   std::span(bits, static_cast<const Grammar&>(self(p)).words_));
    });
  }

  template <class U>
  static tenon_status call_rewind(void* p, void* matcher, uint32_t tokens, tenon_reason* why) noexcept {
    return guard(why, [&] { static_cast<U*>(p)->rewind(*static_cast<typename U::Matcher*>(matcher), tokens); });
  }

  uint32_t words_ = 0;
};

}  // namespace tenon::sdk
