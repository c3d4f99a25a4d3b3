#include <algorithm>

#include "tree.h"

namespace tenon::config {
namespace {

constexpr std::string_view kPrefix = "--set ";

bool of_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

// A user of a shell types a string without quotes: anything that does not begin like another TOML value and has no
// control characters.
bool is_bare_word(const std::string& value) {
  return value.find_first_of("\"'[{") != 0 &&
         std::none_of(value.begin(), value.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// Returns whether the text has that one key and nothing after its value. "a.b=1\nc=2" has more.
bool is_one_key(const Table& table, const std::string& key) {
  const Table* level = &table;
  for (size_t begin = 0; level != nullptr && level->size() == 1;) {
    const size_t end = std::min(key.find('.', begin), key.size());
    const auto& [name, node] = *level->begin();
    if (name != key.substr(begin, end - begin)) return false;
    if (end == key.size()) return true;
    level = node.table();
    begin = end + 1;
  }
  return false;
}

}  // namespace

Table parse_override(const std::string& option) {
  const size_t equals = option.find('=');
  std::string key = option.substr(0, equals);
  key.erase(key.find_last_not_of(" \t") + 1);
  const SourcePosition start{std::string(kPrefix) + (key.size() <= 80 ? key : key.substr(0, 80)), 1, 1};
  if (equals == std::string::npos) {
    throw Error(ErrorCode::kConfig, start, "found no \"=\" in " + quote(option) + ", expected section.key=value");
  }
  const auto bad = static_cast<size_t>(std::find_if_not(key.begin(), key.end(), of_key) - key.begin());
  if (key.empty() || bad < key.size()) {
    throw Error(ErrorCode::kConfig, {start.file, 1, static_cast<uint32_t>(bad + 1)},
                "found the key " + quote(key) + ", expected section.key of letters, digits, \"_\" and \"-\"");
  }
  const std::string value = option.substr(equals + 1);
  const auto column = static_cast<uint32_t>(equals + 2);
  if (value.find_first_not_of(" \t") == std::string::npos) {
    throw Error(ErrorCode::kConfig, {start.file, 1, column},
                "found no value; for an empty string write " + key + "=\"\"");
  }
  try {
    Table table = parse_toml(start.file, option);
    if (is_one_key(table, key)) return table;
  } catch (const Error&) {
    if (!is_bare_word(value)) throw;
    return parse_toml(start.file, key + "=" + toml_string(value));
  }
  throw Error(ErrorCode::kConfig, {start.file, 1, column}, "found more than one key in " + quote(option));
}

}  // namespace tenon::config
