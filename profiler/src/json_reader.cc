// The caller asks for what it expects (begin_object(), next_member(), string(), skip()), so nothing is held but the
// text at hand and the stack of open brackets. Malformed text throws SyntaxError with its line and offset; what
// importers would take in silence becomes a finding.
#include "json_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "json_text.h"

namespace tenon::profiler {
namespace {

constexpr size_t kMaxNumber = 400;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_digit(int c) {
  return c >= '0' && c <= '9';
}
bool is_letter(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

void append_code_point(std::string& out, uint32_t c) {
  const auto byte = [&](uint32_t value) { out += static_cast<char>(value); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) return byte(0xC0U | c >> 6U), byte(0x80U | (c & 0x3FU));
  if (c < 0x10000) {
    byte(0xE0U | c >> 12U);
  } else {
    byte(0xF0U | c >> 18U);
    byte(0x80U | (c >> 12U & 0x3FU));
  }
  byte(0x80U | (c >> 6U & 0x3FU));
  byte(0x80U | (c & 0x3FU));
}

std::string describe(int c) {
  if (c > 0x20 && c < 0x7F) return std::string("found '") + static_cast<char>(c) + '\'';
  return "found byte " + std::to_string(c);
}

}  // namespace

JsonReader::JsonReader(ByteSource& source, FindingList& findings, const CheckLimits& limits)
    : source_(source), findings_(findings), limits_(limits) {}

void JsonReader::fail(std::string found, std::string right) {
  throw SyntaxError{at_, std::move(found), std::move(right)};
}

void JsonReader::fail_at(int c, std::string right) {
  if (c == kEnd) throw SyntaxError{at_, "the text ends here", std::move(right), true};
  fail(describe(c), std::move(right));
}

int JsonReader::peek_char() {
  if (next_ == chunk_.size()) {
    chunk_ = source_.next();
    next_ = 0;
    if (chunk_.empty()) return kEnd;
  }
  return static_cast<unsigned char>(chunk_[next_]);
}

int JsonReader::peek_second() {
  if (next_ + 1 == chunk_.size()) {
    std::string joined(chunk_.substr(next_));
    joined += source_.next();
    joined_ = std::move(joined);
    chunk_ = joined_;
    next_ = 0;
  }
  return next_ + 1 < chunk_.size() ? static_cast<unsigned char>(chunk_[next_ + 1]) : kEnd;
}

int JsonReader::take_char() {
  const int c = peek_char();
  if (c == kEnd) return c;
  if (at_.offset == limits_.max_bytes) {
    throw SyntaxError{at_, "more than " + std::to_string(limits_.max_bytes) + " bytes", "check a shorter capture",
                      false, true};
  }
  ++next_;
  ++at_.offset;
  if (c == '\n') ++at_.line;
  return c;
}

template <typename Plain>
void JsonReader::take_run(std::string& out, Plain plain) {
  const size_t most = static_cast<size_t>(std::min<uint64_t>(chunk_.size() - next_, limits_.max_bytes - at_.offset));
  const std::string_view rest = chunk_.substr(next_, most);
  const auto end = std::ranges::find_if_not(rest, plain);
  const auto n = static_cast<size_t>(end - rest.begin());
  out.append(rest.data(), n);
  next_ += n;
  at_.offset += n;
}

int JsonReader::after_blanks() {
  int c = peek_char();
  while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
    take_char();
    c = peek_char();
  }
  return c;
}

Place JsonReader::place() {
  after_blanks();
  return at_;
}

JsonKind JsonReader::peek() {
  const int c = after_blanks();
  switch (c) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kString;
    case 't':
    case 'f':
      return JsonKind::kBool;
    default:
      break;
  }
  if (is_digit(c)) return JsonKind::kNumber;
  if (c == '-') return is_letter(peek_second()) ? JsonKind::kNonFinite : JsonKind::kNumber;  // -1 or -Infinity
  if (c == 'n') return peek_second() == 'u' ? JsonKind::kNull : JsonKind::kNonFinite;        // null or nan
  if (c == 'N' || c == 'i' || c == 'I') return JsonKind::kNonFinite;
  fail_at(c, "a value belongs here");
}

void JsonReader::enter(char open) {
  const int c = after_blanks();
  if (c != open) fail_at(c, std::string("'") + open + "' belongs here");
  if (first_.size() == limits_.max_depth) {
    fail("nesting deeper than " + std::to_string(limits_.max_depth), "events are flat objects with args");
  }
  take_char();
  first_.push_back(true);
}

void JsonReader::begin_object() {
  enter('{');
}
void JsonReader::begin_array() {
  enter('[');
}

bool JsonReader::next_item(char close) {
  int c = after_blanks();
  const bool first = first_.back();
  first_.back() = false;
  if (c == close) {
    take_char();
    first_.pop_back();
    return false;
  }
  if (first) return true;
  if (c != ',') fail_at(c, std::string("',' or '") + close + "' belongs here");
  take_char();
  c = after_blanks();
  if (c == close) fail_at(c, "no ',' may stand before it");
  return true;
}

bool JsonReader::next_member(std::string& key) {
  if (!next_item('}')) return false;
  if (after_blanks() != '"') fail_at(peek_char(), "a member's name in quotes belongs here");
  string(key);
  if (after_blanks() != ':') fail_at(peek_char(), "':' belongs here");
  take_char();
  return true;
}

bool JsonReader::next_element() {
  return next_item(']');
}

uint32_t JsonReader::hex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const int c = peek_char();
    if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) fail_at(c, "four hex digits follow \\u");
    take_char();
    value = value * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

void JsonReader::escape(std::string& out) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const Place at = at_;
  const int c = peek_char();
  if (c == kEnd) fail_at(c, "an escape is not complete");
  if (const size_t i = kNames.find(static_cast<char>(c)); i != std::string_view::npos) {
    take_char();
    out += kMeanings[i];
    return;
  }
  if (c != 'u') fail_at(c, R"(an escape is one of \" \\ \/ \b \f \n \r \t \u)");
  take_char();
  uint32_t code = hex4();
  if (code >= 0xD800 && code < 0xDC00 && peek_char() == '\\' && peek_second() == 'u') {
    take_char();
    take_char();
    const uint32_t low = hex4();
    if (low >= 0xDC00 && low < 0xE000) code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
  }
  if (code >= 0xD800 && code < 0xE000) {
    findings_.loss("utf8", at, {}, "half of a surrogate pair", "escape characters beyond U+FFFF as a pair");
    code = 0xFFFD;
  }
  append_code_point(out, code);
}

void JsonReader::utf8(std::string& out, int first) {
  const Place at = at_;
  std::string bytes(1, static_cast<char>(first));
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  while (bytes.size() < length) {
    const int c = peek_char();
    if (c < 0x80 || c > 0xBF) break;
    bytes += static_cast<char>(take_char());
  }
  if (utf8_length(bytes) == bytes.size()) {
    out += bytes;
    return;
  }
  findings_.loss("utf8", at, {}, "bytes that are no UTF-8", "replace them by U+FFFD");
  out += kReplacement;
}

void JsonReader::string(std::string& out, size_t max) {
  out.clear();
  if (after_blanks() != '"') fail_at(peek_char(), "a string belongs here");
  take_char();
  for (;;) {
    take_run(out, [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; });
    if (out.size() > max) out.resize(max);
    const Place at = at_;
    const int c = take_char();
    if (c == kEnd) fail_at(c, "a string is not closed");
    if (c == '"') return;
    if (c == '\\') {
      escape(out);
    } else if (c >= 0x80) {
      utf8(out, c);
    } else {
      if (c < 0x20) {
        findings_.loss("control-character", at, {}, "control character " + std::to_string(c) + " inside a string",
                       "escape it as \\u00XX");
      }
      out += static_cast<char>(c);
    }
  }
}

void JsonReader::digits(std::string& text) {
  if (!is_digit(peek_char())) fail_at(peek_char(), "a digit belongs here");
  while (is_digit(peek_char())) {
    if (text.size() < kMaxNumber / 2) take_run(text, is_digit);
    if (text.size() >= kMaxNumber) fail("a number of more than 400 characters", "write int64 or double");
    if (is_digit(peek_char())) text += static_cast<char>(take_char());
  }
}

void JsonReader::number(std::string& text) {
  text.clear();
  after_blanks();
  if (peek_char() == '-') text += static_cast<char>(take_char());
  if (peek_char() == '0') {
    text += static_cast<char>(take_char());
    if (is_digit(peek_char())) fail_at(peek_char(), "a number has no leading zero");
  } else {
    digits(text);
  }
  if (peek_char() == '.') {
    text += static_cast<char>(take_char());
    digits(text);
  }
  if (peek_char() == 'e' || peek_char() == 'E') {
    text += static_cast<char>(take_char());
    if (peek_char() == '+' || peek_char() == '-') text += static_cast<char>(take_char());
    digits(text);
  }
}

JsonKind JsonReader::word(std::string* out) {
  const Place at = place();
  std::string text;
  if (peek_char() == '-') text += static_cast<char>(take_char());
  while (is_letter(peek_char()) && text.size() < 10) text += static_cast<char>(take_char());
  if (peek_char() == kEnd) fail_at(kEnd, "a value is not complete");
  if (out != nullptr) *out = text;
  if (text == "null") return JsonKind::kNull;
  if (text == "true" || text == "false") return JsonKind::kBool;
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](char c) { return static_cast<char>(c | 0x20); });
  if (lower.starts_with('-')) lower.erase(0, 1);
  if (lower != "nan" && lower != "inf" && lower != "infinity") fail("found \"" + text + '"', "a value belongs here");
  findings_.loss("non-finite", at, {}, text + ": this and every later argument of its event are discarded",
                 "write a finite number or a string");
  return JsonKind::kNonFinite;
}

void JsonReader::skip() {
  std::string text;
  switch (peek()) {
    case JsonKind::kObject:
      for (begin_object(); next_member(text);) skip();
      return;
    case JsonKind::kArray:
      for (begin_array(); next_element();) skip();
      return;
    case JsonKind::kString:
      return string(text);
    case JsonKind::kNumber:
      return checked_number(*this, findings_, text);
    default:
      static_cast<void>(word());
  }
}

void JsonReader::raw(std::string& out, size_t max) {
  std::string text;
  const JsonKind kind = peek();
  if (kind == JsonKind::kObject || kind == JsonKind::kArray) {
    const bool object = kind == JsonKind::kObject;
    out += object ? '{' : '[';
    object ? begin_object() : begin_array();
    for (bool first = true; object ? next_member(text) : next_element(); first = false) {
      if (out.size() > max) {
        skip();
        continue;
      }
      if (!first) out += ',';
      if (object) {
        append_string(out, text);
        out += ':';
      }
      raw(out, max);
    }
    out += object ? '}' : ']';
  } else if (kind == JsonKind::kString) {
    string(text);
    append_string(out, text);
  } else {
    kind == JsonKind::kNumber ? number(text) : static_cast<void>(word(&text));
    out += text;
  }
}

void JsonReader::expect_end() {
  if (after_blanks() != kEnd) fail_at(peek_char(), "nothing may follow the trace");
}

bool is_finite_number(const std::string& text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc()) return true;
  // Out of range is also what rounds to zero; such a number has a negative exponent or a zero before its point.
  const size_t exponent = text.find_first_of("eE");
  if (exponent != std::string::npos) return text[exponent + 1] == '-';
  return text.starts_with("0.") || text.starts_with("-0.");
}

bool exceeds_int64(const std::string& text) {
  if (text.find_first_of(".eE") != std::string::npos) return false;
  int64_t value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc();
}

void checked_number(JsonReader& in, FindingList& findings, std::string& text) {
  const Place at = in.place();
  in.number(text);
  if (!is_finite_number(text)) {
    findings.loss("non-finite", at, {}, text + " is beyond a double", "write a finite number or a string");
  } else if (exceeds_int64(text)) {
    findings.loss("integer-range", at, {}, text + " is beyond int64 and arrives as -1", "write it as a hex string");
  }
}

}  // namespace tenon::profiler
