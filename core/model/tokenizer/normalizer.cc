#include "normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "tenon/core/error.h"
#include "utf8.h"

namespace tenon::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string to_form(UnicodeForm form, std::string text) {
  if (is_ascii(text)) return text;
  int options = UTF8PROC_STABLE;
  options |= form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (length < 0)
    throw Error(ErrorCode::kRequest, std::string("cannot normalize the text: ") + utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(length)};
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = first_unit(text.substr(at)).length;
    const char32_t c = code_point(text.substr(at, length));
    // The one character whose lower case is two.
    if (c == 0x130) {
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
    at += length;
  }
  return out;
}

std::string replace(const Replace& step, std::string_view text, RegexScratch& scratch) {
  std::vector<Stretch> stretches;
  step.pattern.stretches(text, scratch, stretches);
  std::string out;
  out.reserve(text.size());
  for (const Stretch& s : stretches) out += s.match ? step.content : text.substr(s.begin, s.end - s.begin);
  return out;
}

struct Apply {
  std::string text;
  RegexScratch& scratch;

  std::string operator()(UnicodeForm form) { return to_form(form, std::move(text)); }
  std::string operator()(const Lowercase&) { return lower(text); }
  std::string operator()(const Prepend& step) { return text.empty() ? text : step.text + text; }
  std::string operator()(const Replace& step) { return replace(step, text, scratch); }
  std::string operator()(const Strip& step) { return std::string(strip(text, step.left, step.right)); }
};

}  // namespace

std::string normalize(const std::vector<NormalizerStep>& steps, std::string_view text, RegexScratch& scratch) {
  std::string result(text);
  for (const NormalizerStep& step : steps) result = std::visit(Apply{std::move(result), scratch}, step);
  return result;
}

}  // namespace tenon::text
