#include "tree.h"

#include <charconv>
#include <cstdio>

namespace tenon::config {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04X", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out;
}

struct Found {
  std::string operator()(bool v) const { return v ? "the bool true" : "the bool false"; }
  std::string operator()(int64_t v) const { return "the int " + std::to_string(v); }
  std::string operator()(double v) const { return "the real " + toml_real(v); }
  std::string operator()(const std::string& v) const { return "the string " + quote(v); }
  std::string operator()(const Date&) const { return "a date"; }
  std::string operator()(const Array&) const { return "an array"; }
  std::string operator()(const Table&) const { return "a table"; }
};

}  // namespace

std::string describe_found(const Node& node) {
  return std::visit(Found{}, node.value);
}

std::string quote(const std::string& text) {
  constexpr size_t kMost = 80;
  if (text.size() <= kMost) return '"' + escaped(text) + '"';
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return '"' + escaped(text.substr(0, end)) + "...\"";
}

std::string toml_string(const std::string& text) {
  return '"' + escaped(text) + '"';
}

std::string toml_real(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  std::string out(text, end);
  return out.find_first_of(".en") == std::string::npos ? out + ".0" : out;
}

}  // namespace tenon::config
