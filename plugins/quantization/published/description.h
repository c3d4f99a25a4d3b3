// What config.json says about how a checkpoint stores its matrices: quantization_config, which every scheme is given as JSON
// (tenon_linear.description). A scheme reads the keys that it knows; a key that nobody has read may mean that the numbers
// are other ones than those computed here, and is refused by name.
#pragma once

#include <cstdlib>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "tenon/sdk/error.h"

namespace tenon::published {

namespace detail {

// One JSON text, flattened: {"a": {"b": [4, null]}} has "a.b.0" = 4 and "a.b.1" = null, and "a.b" and "a" are there as "[]"
// and "{}". Texts stand without their quotes, and escapes of them are not resolved. The host has parsed the text before.
class Flattening {
 public:
  using Values = std::map<std::string, std::string, std::less<>>;
  Flattening(std::string_view text, Values& values) : text_(text), values_(values) {}
  void run() {
    value("");
    blanks();
    if (at_ != text_.size()) fail();
  }

 private:
  static constexpr uint32_t kMostDepth = 32;

  [[noreturn]] static void fail() { throw sdk::Refused("config.json: quantization_config is no JSON object"); }
  void blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  char next() {
    blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }
  std::string text() {
    if (!take('"')) fail();
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) fail();
    return std::string(text_.substr(begin, at_++ - begin));
  }
  void value(const std::string& path) {
    if (++depth_ > kMostDepth) fail();
    const char c = next();
    if (c == '{' || c == '[') {
      elements(path, c);
    } else if (c == '"') {
      values_[path] = text();
    } else {
      const size_t begin = at_;
      while (at_ < text_.size() && std::string_view(",]} \t\r\n").find(text_[at_]) == std::string_view::npos) ++at_;
      if (begin == at_) fail();
      values_[path] = text_.substr(begin, at_ - begin);
    }
    --depth_;
  }
  void elements(const std::string& path, char open) {
    const char close = open == '{' ? '}' : ']';
    values_[path] = std::string{open, close};
    ++at_;
    for (size_t i = 0; !take(close); ++i) {
      if (i > 0 && !take(',')) fail();
      const std::string name = open == '{' ? text() : std::to_string(i);
      if (open == '{' && !take(':')) fail();
      value(path.empty() ? name : path + "." + name);
    }
  }

  std::string_view text_;
  Values& values_;
  size_t at_ = 0;
  uint32_t depth_ = 0;
};

}  // namespace detail

class Description {
 public:
  // json: "" if the file says nothing. Throws sdk::Refused for what is no JSON.
  explicit Description(const char* json) {
    if (json != nullptr && *json != '\0') detail::Flattening(json, values_).run();
    read_.insert("");
  }

  // The value of a key; `otherwise` where it is missing or null.
  std::string text(const std::string& key, const std::string& otherwise = "") const {
    read_.insert(key);
    const auto found = values_.find(key);
    return found == values_.end() || found->second == "null" ? otherwise : found->second;
  }
  int64_t integer(const std::string& key, int64_t otherwise) const {
    const std::string found = text(key, std::to_string(otherwise));
    char* end = nullptr;
    const int64_t value = std::strtoll(found.c_str(), &end, 10);
    if (end == found.c_str() || *end != '\0') wrong(key, "a whole number");
    return value;
  }
  bool boolean(const std::string& key, bool otherwise) const {
    const std::string found = text(key, otherwise ? "true" : "false");
    if (found != "true" && found != "false") wrong(key, "true or false");
    return found == "true";
  }
  // Throws Refused unless the key is missing or null, or one of these.
  void only(const std::string& key, std::initializer_list<std::string_view> right) const {
    const std::string found = text(key);
    if (found.empty()) return;
    std::string all;
    for (const std::string_view r : right) {
      if (found == r) return;
      all += (all.empty() ? "" : " or ") + std::string(r);
    }
    wrong(key, all.empty() ? "no such key, or null" : all);
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& right) const {
    const auto found = values_.find(key);
    throw sdk::Refused("config.json: quantization_config." + key + " is " +
                       (found == values_.end() ? "missing" : found->second) + "; expected " + right);
  }
  // Throws Refused for a key that was not read and is not harmless. A name among the harmless ones stands for what is below
  // it, too.
  void need_all_read(std::span<const std::string_view> harmless) const {
    for (const auto& [key, value] : values_) {
      if (read_.contains(key) || value == "null" || value == "{}" || value == "[]") continue;
      const auto stands_for = [&key = key](std::string_view name) {
        return key.starts_with(name) && (key.size() == name.size() || key[name.size()] == '.');
      };
      bool known = false;
      for (const std::string_view name : harmless) known = known || stands_for(name);
      if (!known) wrong(key, "no such key: it is not known what it changes");
    }
  }

 private:
  detail::Flattening::Values values_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace tenon::published
