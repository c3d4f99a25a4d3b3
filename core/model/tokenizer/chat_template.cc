#include "chat_template.h"

#include <algorithm>
#include <cctype>

namespace tenon::text {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// True: two signs mean something else side by side than apart.
bool makes_operator(char first, char second) {
  constexpr std::string_view kFirst = "=!<>*/%{}-", kSecond = "=*/%}{-";
  return kFirst.find(first) != std::string_view::npos && kSecond.find(second) != std::string_view::npos;
}

std::string_view without_end(std::string_view text, std::string_view what) {
  const size_t last = text.find_last_not_of(what);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// lstrip_blocks: blanks between the start of a line and a tag that is no expression are not text.
std::string_view without_indent(std::string_view text, bool starts_line) {
  const std::string_view rest = without_end(text, " \t");
  return rest.empty() ? (starts_line ? rest : text) : rest.back() == '\n' ? rest : text;
}

// Returns where the tag ends whose inside begins at `at`; an end inside a text constant is text.
size_t end_of_tag(std::string_view source, size_t at, char kind) {
  const std::string end = {kind == '{' ? '}' : kind, '}'};
  char quote = 0;
  for (; at < source.size(); ++at) {
    const char c = source[at];
    if (quote == 0 && source.substr(at).starts_with(end)) break;
    if (kind == '#') continue;
    if (quote != 0 && c == '\\') {
      ++at;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    }
  }
  return std::min(at, source.size());
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source) {
  if (source.ends_with('\n')) source.remove_suffix(1);  // Jinja does so, too
  for (size_t at = 0; at < source.size();) {
    size_t tag = at;
    while ((tag = source.find('{', tag)) != std::string_view::npos) {
      if (tag + 1 < source.size() && std::string_view("{%#").find(source[tag + 1]) != std::string_view::npos) break;
      ++tag;
    }
    std::string_view text = source.substr(at, tag == std::string_view::npos ? tag : tag - at);
    if (tag == std::string_view::npos) {
      canonical_ += text;
      return;
    }
    const char kind = source[tag + 1];
    const size_t close = end_of_tag(source, tag + 2, kind);
    std::string_view inside = source.substr(tag + 2, close - tag - 2);
    if (inside.starts_with('-')) {
      inside.remove_prefix(1);
      text = without_end(text, kBlanks);
    } else if (kind != '{') {
      text = without_indent(text, at == 0 || source[at - 1] == '\n');
    }
    canonical_ += text;
    at = std::min(close + 2, source.size());
    if (inside.ends_with('-')) {
      inside.remove_suffix(1);
      at = std::min(source.find_first_not_of(kBlanks, at), source.size());
    } else if (kind != '{' && at < source.size() && source[at] == '\n') {
      ++at;  // trim_blocks
    }
    if (kind == '#') continue;
    canonical_ += {'{', kind};
    add_tag(inside);
    canonical_ += {kind == '{' ? '}' : kind, '}'};
  }
}

// The words of a tag, apart only where they must be, and its texts without their escapes.
void ChatTemplate::add_tag(std::string_view inside) {
  bool apart = false;
  for (size_t i = 0; i < inside.size(); ++i) {
    const char c = inside[i];
    if (kBlanks.find(c) != std::string_view::npos) {
      apart = true;
      continue;
    }
    if (apart && ((is_word(c) && is_word(canonical_.back())) || makes_operator(canonical_.back(), c)))
      canonical_ += ' ';
    apart = false;
    if (c != '\'' && c != '"') {
      canonical_ += c;
      continue;
    }
    canonical_ += kOpen;
    for (++i; i < inside.size() && inside[i] != c; ++i) {
      if (inside[i] == '\\' && i + 1 < inside.size()) {
        ++i;
        // Any other escape leaves a sign that no known template has, and no text that may vary.
        if (std::string_view("nt\\'\"").find(inside[i]) == std::string_view::npos) canonical_ += kOpen;
        canonical_ += inside[i] == 'n' ? '\n' : inside[i] == 't' ? '\t' : inside[i];
      } else {
        canonical_ += inside[i];
      }
    }
    canonical_ += kClose;
  }
}

std::string ChatTemplate::take(std::string_view before, std::string_view after) {
  const size_t start = canonical_.find(before);
  if (start == std::string::npos) return {};
  const size_t first = start + before.size(), last = canonical_.find(after, first);
  if (last == std::string::npos) return {};
  std::string taken = canonical_.substr(first, last - first);
  if (taken.find(kOpen) != std::string::npos || taken.find(kClose) != std::string::npos) return {};
  canonical_.erase(first, last - first);
  return taken;
}

uint64_t ChatTemplate::fingerprint() const {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : canonical_) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace tenon::text
