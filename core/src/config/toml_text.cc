// The only place that knows the parser. Two limits keep its recursion, and that of the trees it makes, within the
// stack: on nested values, which it has itself, and on the parts of a dotted key, which it lacks.
#define TOML_MAX_NESTED_VALUES 16

#include <toml++/toml.h>

#include <algorithm>

#include "tree.h"

namespace tenon::config {
namespace {

constexpr size_t kMaxKeyParts = 16;

[[noreturn]] void fail(const std::string& name, uint32_t line, uint32_t column, const std::string& what) {
  throw Error(ErrorCode::kConfig, SourcePosition{name, line, column}, what);
}

// Walks over the text as the grammar has it (comments, the four kinds of string), counting the dots that no other
// character than those of keys separates. What comes after a syntax error may be misread: the parser stops before it.
class KeyDepthGuard {
 public:
  KeyDepthGuard(const std::string& name, const std::string& text) : name_(name), text_(text) {}

  void check() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '"' || c == '\'') {
        skip_string(c);
      } else {
        step(c);
      }
    }
  }

 private:
  void step(char c) {
    const bool of_keys =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (c == '.') {
      if (++dots_ >= kMaxKeyParts) too_deep();
    } else if (!of_keys && c != ' ' && c != '\t') {
      dots_ = 0;
    }
    ++at_;
  }

  void skip_string(char quote) {
    const bool multiline = text_.compare(at_, 3, std::string(3, quote)) == 0;
    const std::string end(multiline ? 3 : 1, quote);
    at_ += end.size();
    while (at_ < text_.size() && text_.compare(at_, end.size(), end) != 0) {
      if (text_[at_] == '\n' && !multiline) return;
      at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_ + end.size(), text_.size());
    // Up to two quotes may stand right before the closing three.
    while (multiline && at_ < text_.size() && text_[at_] == quote) ++at_;
  }

  [[noreturn]] void too_deep() const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(at_);
    const size_t newline = text_.rfind('\n', at_);  // not at at_ itself: a dot is there
    fail(name_, static_cast<uint32_t>(1 + std::count(text_.begin(), end, '\n')),
         static_cast<uint32_t>(newline == std::string::npos ? at_ + 1 : at_ - newline),
         "a key of more than " + std::to_string(kMaxKeyParts) + " parts");
  }

  const std::string& name_;
  const std::string& text_;
  size_t at_ = 0, dots_ = 0;
};

SourcePosition position(const std::string& name, const toml::source_region& region, const SourcePosition& otherwise) {
  if (region.begin.line == 0) return otherwise;
  return {name, region.begin.line, region.begin.column};
}

Node convert(const std::string& name, const toml::node& from, const SourcePosition& key_where);

Table convert_table(const std::string& name, const toml::table& from) {
  Table table;
  for (auto&& [key, value] : from) {
    const SourcePosition where = position(name, key.source(), {name, 0, 0});
    table.emplace(std::string(key.str()), convert(name, value, where));
  }
  return table;
}

Node convert(const std::string& name, const toml::node& from, const SourcePosition& key_where) {
  Node node{key_where, position(name, from.source(), key_where), Date{}};
  if (const auto* table = from.as_table()) {
    node.value = convert_table(name, *table);
  } else if (const auto* array = from.as_array()) {
    Array elements;
    for (const toml::node& element : *array) {
      elements.push_back(convert(name, element, position(name, element.source(), node.where)));
    }
    node.value = std::move(elements);
  } else if (const auto* text = from.as_string()) {
    node.value = text->get();
  } else if (const auto* integer = from.as_integer()) {
    node.value = integer->get();
  } else if (const auto* real = from.as_floating_point()) {
    node.value = real->get();
  } else if (const auto* flag = from.as_boolean()) {
    node.value = flag->get();
  }
  return node;
}

}  // namespace

Table parse_toml(const std::string& name, const std::string& text) {
  KeyDepthGuard(name, text).check();
  try {
    return convert_table(name, toml::parse(std::string_view(text)));
  } catch (const toml::parse_error& e) {
    fail(name, e.source().begin.line, e.source().begin.column, "TOML syntax: " + std::string(e.description()));
  }
}

}  // namespace tenon::config
