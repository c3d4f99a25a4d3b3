// This makes flat metadata of config.json: nested keys are joined by dots. An array of one kind of values is kept as
// such; null is kept as a note that the key is there.
#include "json_text.h"

#include <algorithm>
#include <boost/json/parser.hpp>
#include <optional>

#include "json_keys.h"
#include "layout.h"
#include "tenon/core/error.h"

namespace tenon::weights {
namespace {

// Returns all elements if they are of the kind, or nullopt.
template <class Element, class Accept>
std::optional<std::vector<Element>> all_of_kind(const boost::json::array& array, Accept accept) {
  std::vector<Element> result;
  result.reserve(array.size());
  for (const boost::json::value& value : array) {
    std::optional<Element> element = accept(value);
    if (!element) return std::nullopt;
    result.push_back(std::move(*element));
  }
  return result;
}

std::optional<int64_t> as_integer(const boost::json::value& value) {
  if (value.is_bool()) return value.get_bool();
  if (value.is_int64()) return value.get_int64();
  return std::nullopt;
}

std::optional<double> as_real(const boost::json::value& value) {
  return value.is_number() ? std::optional(value.to_number<double>()) : std::nullopt;
}

std::optional<std::string> as_text(const boost::json::value& value) {
  return value.is_string() ? std::optional(std::string(value.get_string())) : std::nullopt;
}

void add(const std::string& key, const boost::json::value& value, MetadataMap& metadata);

void add_null(const std::string& key, MetadataMap& metadata) {
  MetadataValue& nulls = metadata.try_emplace(kNullKeys, std::vector<std::string>()).first->second;
  std::get<std::vector<std::string>>(nulls).push_back(key);
}

// A dot joins the parts of a path, so a dot within a key is written in another way.
std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) {
    if (c == '.' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

void add_array(const std::string& key, const boost::json::array& array, MetadataMap& metadata) {
  if (auto integers = all_of_kind<int64_t>(array, as_integer)) {
    metadata.emplace(key, std::move(*integers));
  } else if (auto reals = all_of_kind<double>(array, as_real)) {
    metadata.emplace(key, std::move(*reals));
  } else if (auto texts = all_of_kind<std::string>(array, as_text)) {
    metadata.emplace(key, std::move(*texts));
  } else {
    for (size_t i = 0; i < array.size(); ++i) add(key + "." + std::to_string(i), array[i], metadata);
  }
}

void add(const std::string& key, const boost::json::value& value, MetadataMap& metadata) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return add_null(key, metadata);
    case boost::json::kind::bool_:
      metadata.emplace(key, value.get_bool());
      return;
    case boost::json::kind::int64:
      metadata.emplace(key, value.get_int64());
      return;
    case boost::json::kind::uint64:
      metadata.emplace(key, value.get_uint64());
      return;
    case boost::json::kind::double_:
      metadata.emplace(key, value.get_double());
      return;
    case boost::json::kind::string:
      metadata.emplace(key, std::string(value.get_string()));
      return;
    case boost::json::kind::array:
      return add_array(key, value.get_array(), metadata);
    case boost::json::kind::object:
      if (value.get_object().empty()) metadata.emplace(key, std::vector<std::string>());
      return flatten_json(value.get_object(), key + ".", metadata);
  }
}

}  // namespace

boost::json::value parse_json(std::string_view text, const std::string& file) {
  boost::json::parser parser;
  boost::json::error_code error;
  size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && used < text.size()) error = boost::json::error::extra_data;
  if (!error) {
    need_keys_once(text, file);
    return parser.release();
  }
  used = std::min(used, text.size());
  const std::string_view before = text.substr(0, used);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto line = static_cast<uint32_t>(1 + std::count(before.begin(), before.end(), '\n'));
  throw Error(ErrorCode::kModel, {file, line, static_cast<uint32_t>(used - line_start + 1)},
              "no valid JSON: " + error.message());
}

void flatten_json(const boost::json::object& object, const std::string& prefix, MetadataMap& metadata) {
  for (const auto& [key, value] : object) add(prefix + escaped(key), value, metadata);
}

boost::json::object read_json_object(const std::filesystem::path& path, uint64_t most) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.size() > most) {
    throw Error(ErrorCode::kModel, {path.string()},
                std::to_string(bytes.size()) + " bytes of JSON; at most " + std::to_string(most) + " are read");
  }
  boost::json::value value = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
  if (!value.is_object()) throw Error(ErrorCode::kModel, {path.string()}, "holds no JSON object");
  return std::move(value.get_object());
}

}  // namespace tenon::weights
