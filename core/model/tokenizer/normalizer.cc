// This runs the steps of normalizers. Unicode's forms are utf8proc's; runs of combining marks are put in order
// beforehand, since utf8proc takes quadratic time for them (Unicode Standard Annex #15).
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

// Puts each run of combining marks in canonical order. utf8proc does the same, in quadratic time.
void order_marks(std::string& text) {
  struct Mark {
    int order;
    std::string bytes;
  };
  const auto by_order = [](const Mark& a, const Mark& b) { return a.order < b.order; };
  std::vector<Mark> run;
  const auto put_back = [&](size_t end) {
    if (!std::is_sorted(run.begin(), run.end(), by_order)) {
      std::stable_sort(run.begin(), run.end(), by_order);
      for (auto mark = run.rbegin(); mark != run.rend(); ++mark) {
        end -= mark->bytes.size();
        text.replace(end, mark->bytes.size(), mark->bytes);
      }
    }
    run.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view character =
        std::string_view(text).substr(at, first_unit(std::string_view(text).substr(at)).length);
    const int order = utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point(character)))->combining_class;
    if (order != 0) {
      run.push_back({order, std::string(character)});
    } else if (!run.empty()) {
      put_back(at);
    }
    at += character.size();
  }
  put_back(text.size());
}

std::string to_form(UnicodeForm form, std::string text) {
  if (is_ascii(text)) return text;
  order_marks(text);
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
    // This is the one character whose lower case is two.
    if (c == 0x130) {
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
    at += length;
  }
  return out;
}

struct NormalizerApplied {
  Normalized& now;
  RegexScratch& scratch;

  void operator()(UnicodeForm form) { now.text = to_form(form, std::move(now.text)); }
  void operator()(const Lowercase&) { now.text = lower(now.text); }
  void operator()(const Prepend& step) {
    if (!now.text.empty()) now.text.insert(0, step.text);
  }
  void operator()(const Replace& step) {
    std::vector<Stretch> stretches;
    step.pattern.stretches(now.text, scratch, stretches);
    std::string out;
    out.reserve(now.text.size());
    for (const Stretch& s : stretches) {
      out += s.match ? std::string_view(step.content) : std::string_view(now.text).substr(s.begin, s.end - s.begin);
      if (out.empty() && s.end > s.begin) now.from_start = false;
    }
    now.text = std::move(out);
  }
  void operator()(const Strip& step) {
    const std::string_view rest = strip(now.text, step.left, step.right);
    if (rest.data() != now.text.data()) now.from_start = false;
    now.text = std::string(rest);
  }
};

}  // namespace

Normalized normalize(const std::vector<NormalizerStep>& steps, std::string_view text, RegexScratch& scratch) {
  Normalized result{std::string(text), true};
  for (const NormalizerStep& step : steps) std::visit(NormalizerApplied{result, scratch}, step);
  return result;
}

}  // namespace tenon::text
