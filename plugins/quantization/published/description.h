// config.json says how a checkpoint stores its matrices in quantization_config, which every scheme is given as JSON
// (tenon_linear.description). A scheme reads the keys that it knows; a key that nobody has read may mean that the
// numbers are other ones than those computed here, and is refused by name.
#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "tenon/sdk/error.h"

namespace tenon::published {

namespace detail {

// This is one JSON text, flattened: {"a": {"b": [4, null]}} has "a.b.0" = 4 and "a.b.1" = null, and "a.b" and "a" are
// there as "[]" and "{}". Texts keep their quotes, so that "4" and 4 differ, and escapes of them are not resolved. The
// host has parsed the text before; a plugin has no other library than the SDK, so it cannot share the host's parser.
class Flattening {
 public:
  using Values = std::map<std::string, std::string, std::less<>>;
  Flattening(std::string_view text, Values& values) : text_(text), values_(values) {}
  // Throws sdk::Refused without a text for what is no JSON.
  void run() {
    value("");
    blanks();
    if (at_ != text_.size()) fail();
  }

 private:
  static constexpr uint32_t kMostDepth = 32;

  [[noreturn]] static void fail() { throw sdk::Refused(""); }
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
      values_[path] = '"' + text() + '"';
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
  // `json` is "" if the file says nothing. `origin` says where the text stands, as messages name it.
  // Throws sdk::Refused for what is no JSON.
  explicit Description(std::string_view json, std::string origin = "config.json: quantization_config")
      : origin_(std::move(origin)) {
    read_.insert("");
    try {
      if (!json.empty()) detail::Flattening(json, values_).run();
    } catch (const sdk::Refused&) {
      throw sdk::Refused(origin_ + " is no JSON");
    }
  }

  // Returns a key's value, or `otherwise` where it is missing or null. Throws Refused if it is of another type.
  std::string text(const std::string& key, const std::string& otherwise = "") const {
    const std::string* found = find(key);
    if (found == nullptr) return otherwise;
    if (found->front() != '"') wrong(key, "a text");
    return found->substr(1, found->size() - 2);
  }
  int64_t integer(const std::string& key, int64_t otherwise) const {
    const std::string* found = find(key);
    if (found == nullptr) return otherwise;
    int64_t value = 0;
    const char* end = found->data() + found->size();
    const auto [stop, error] = std::from_chars(found->data(), end, value);
    if (error != std::errc() || stop != end) wrong(key, "a whole number");
    return value;
  }
  double number(const std::string& key, double otherwise) const {
    const std::string* found = find(key);
    if (found == nullptr) return otherwise;
    double value = 0;
    const char* end = found->data() + found->size();
    const auto [stop, error] = std::from_chars(found->data(), end, value);
    if (error != std::errc() || stop != end) wrong(key, "a number");
    return value;
  }
  bool boolean(const std::string& key, bool otherwise) const {
    const std::string* found = find(key);
    if (found == nullptr) return otherwise;
    if (*found != "true" && *found != "false") wrong(key, "true or false");
    return *found == "true";
  }
  // Says whether a key is there with another value than null; the last two throw Refused if it is of another type.
  bool has(const std::string& key) const { return find(key) != nullptr; }
  bool object(const std::string& key) const {
    const std::string* found = find(key);
    if (found != nullptr && *found != "{}") wrong(key, "an object");
    return found != nullptr;
  }
  bool list(const std::string& key) const {
    const std::string* found = find(key);
    if (found != nullptr && *found != "[]") wrong(key, "a list");
    return found != nullptr;
  }

  // They throw Refused unless the key is missing or null, or one of these.
  void only(const std::string& key, std::initializer_list<std::string_view> right) const {
    if (!has(key)) return;
    const std::string found = text(key);
    if (std::find(right.begin(), right.end(), found) == right.end()) wrong(key, listed(right));
  }
  void only_boolean(const std::string& key, bool right) const {
    if (boolean(key, right) != right) wrong(key, right ? "true" : "false");
  }
  void only_missing(const std::string& key) const {
    if (has(key)) wrong(key, "no such key, or null");
  }
  // They throw Refused unless the key is there with one of these values, and return it.
  std::string need(const std::string& key, std::initializer_list<std::string_view> right) const {
    if (!has(key)) wrong(key, listed(right));
    only(key, right);
    return text(key);
  }
  int64_t need(const std::string& key, std::initializer_list<int64_t> right) const {
    std::string all;
    for (const int64_t r : right) all += (all.empty() ? "" : " or ") + std::to_string(r);
    if (!has(key)) wrong(key, all);
    const int64_t found = integer(key, 0);
    if (std::find(right.begin(), right.end(), found) == right.end()) wrong(key, all);
    return found;
  }
  // Returns the size of groups along a row: a positive number, or 0, for which the file has -1: the whole row.
  int64_t need_group(const std::string& key) const {
    const int64_t found = integer(key, 0);
    if (found != -1 && found <= 0) wrong(key, "a positive number, or -1");
    return std::max<int64_t>(found, 0);
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& right) const {
    const auto at = values_.find(key);
    const std::string found = at == values_.end()  ? "missing"
                              : at->second == "{}" ? "an object"
                              : at->second == "[]" ? "a list"
                                                   : at->second;
    throw sdk::Refused(origin_ + "." + key + " is " + found + "; expected " + right);
  }
  // Throws Refused for a key that was not read and is not harmless. A name among the
  // harmless ones stands for what is below it, too.
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
  const std::string* find(const std::string& key) const {
    read_.insert(key);
    const auto found = values_.find(key);
    return found == values_.end() || found->second == "null" ? nullptr : &found->second;
  }
  static std::string listed(std::initializer_list<std::string_view> right) {
    std::string all;
    for (const std::string_view r : right) all += (all.empty() ? "\"" : " or \"") + std::string(r) + '"';
    return all;
  }

  std::string origin_;
  detail::Flattening::Values values_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace tenon::published
