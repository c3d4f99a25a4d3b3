// A text that is not UTF-8 is mended with U+FFFD, a number that JSON cannot have becomes a string, and times are
// written as decimal microseconds with three digits, exactly.
#include "json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace tenon::profiler {
namespace {

template <typename... Args>
void append_number(std::string& out, Args... args) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), args...).ptr;
  out.append(text.data(), end);
}

}  // namespace

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies above U+10FFFF show in the second byte.
  const unsigned char second = byte(1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
  return length;
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += text.front();
    } else if (c < 0x20 || c == 0x7F) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out += "\\u00";
      out += kDigits[c >> 4U];
      out += kDigits[c & 15U];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  out += '"';
}

void append_micros(std::string& out, int64_t ns) {
  append_number(out, ns / 1000);
  out += '.';
  const auto rest = static_cast<int>(ns % 1000);
  out += static_cast<char>('0' + rest / 100);
  out += static_cast<char>('0' + rest / 10 % 10);
  out += static_cast<char>('0' + rest % 10);
}

void append_integer(std::string& out, int64_t value) {
  append_number(out, value);
}

void append_hex(std::string& out, uint64_t value) {
  out += "\"0x";
  append_number(out, value, 16);
  out += '"';
}

void append_unsigned(std::string& out, uint64_t value) {
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return append_hex(out, value);
  append_number(out, value);
}

void append_figure(std::string& out, double value) {
  append_micros(out, std::llround(value * 1000));
}

void append_double(std::string& out, double value) {
  if (std::isfinite(value)) return append_number(out, value);
  out += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
}

void append_args(std::string& out, std::span<const trace::Arg> args) {
  bool first = true;
  for (const trace::Arg& arg : args) {
    if (!first) out += ',';
    first = false;
    append_string(out, arg.name);
    out += ':';
    if (const auto* integer = std::get_if<int64_t>(&arg.value)) append_integer(out, *integer);
    if (const auto* natural = std::get_if<uint64_t>(&arg.value)) append_unsigned(out, *natural);
    if (const auto* real = std::get_if<double>(&arg.value)) append_double(out, *real);
    if (const auto* text = std::get_if<std::string>(&arg.value)) append_string(out, *text);
  }
}

}  // namespace tenon::profiler
