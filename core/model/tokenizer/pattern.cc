// Regular expressions run on PCRE2, compiled to machine code where that can be had. A pattern never changes; what a
// match needs is in the caller's RegexScratch. Matching is limited, so that no text can hold a thread up.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern.h"

#include <pcre2.h>

#include <new>
#include <utility>

#include "onig_pattern.h"
#include "tenon/core/error.h"
#include "utf8.h"

namespace tenon::text {
namespace {

constexpr uint32_t kMatchLimit = 50'000'000;
constexpr size_t kPatternLimit = 64 * 1024;

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

template <class T>
std::unique_ptr<T, Free> own(T* p) {
  if (p == nullptr) throw std::bad_alloc();
  return std::unique_ptr<T, Free>(p);
}

std::string error_text(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct RegexScratch::State {
  std::unique_ptr<pcre2_match_data, Free> match = own(pcre2_match_data_create(1, nullptr));
  std::unique_ptr<pcre2_match_context, Free> context = own(pcre2_match_context_create(nullptr));
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
}
RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  std::string pattern;
  std::unique_ptr<pcre2_code, Free> code;
};

Regex::Regex(std::string_view pattern) : Regex(pcre2(onig_to_pcre2(pattern))) {}

Regex Regex::literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 &&
        std::string_view("\\^$.[]|()?*+{}#&-~").find(c) != std::string_view::npos) {
      pattern += '\\';
    }
    pattern += c;
  }
  return pcre2(pattern);
}

Regex Regex::pcre2(std::string_view pattern) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::kModel, "regular expression \"" + std::string(pattern.substr(0, 200)) + "\": " + why);
  };
  if (pattern.size() > kPatternLimit) fail("longer than " + std::to_string(kPatternLimit) + " bytes");
  const auto context = own(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code == nullptr) fail("at byte " + std::to_string(offset) + ": " + error_text(error));
  // If machine code cannot be made, matching interprets.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  auto owned = std::unique_ptr<pcre2_code, Free>(code);
  return Regex(std::make_shared<const Code>(Code{std::string(pattern), std::move(owned)}));
}

void Regex::stretches(std::string_view text, RegexScratch& scratch, std::vector<Stretch>& out) const {
  const RegexScratch::State& state = *scratch.state_;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.match.get());
  size_t done = 0;
  bool matched = false;  // true: a match ends at `done`
  for (size_t from = 0; from <= text.size();) {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         options | PCRE2_NO_UTF_CHECK, state.match.get(), state.context.get());
    };
    int rc = match(0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      throw Error(ErrorCode::kRequest, "the tokenizer's pattern \"" + code_->pattern.substr(0, 200) +
                                           "\" cannot be matched against this text: " + error_text(rc));
    }
    const auto [begin, end] = std::pair(found[0], found[1]);
    if (begin == end && matched && end == done) {
      if (from == text.size()) break;
      from += first_unit(text.substr(from)).length;
      continue;
    }
    if (begin > done) out.push_back({done, begin, false});
    out.push_back({begin, end, true});
    from = done = end;
    matched = true;
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
}

}  // namespace tenon::text
