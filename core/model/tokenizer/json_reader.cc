// A place in a JSON file knows the path to it, so that each value that is not as it must be is named with its place,
// what was found and what was expected. Members that are asked for are written down: expect_nothing_else() then finds
// every key that nobody has read, which could change how a text is split.
#include "json_reader.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>

#include "../weights/json_keys.h"
#include "../weights/metadata_ledger.h"
#include "tenon/core/error.h"
#include "tenon/core/files.h"

namespace tenon::text {
namespace {

std::string describe(const boost::json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = boost::json::serialize(value);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, uint64_t limit) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (!error && size > limit) {
    throw Error(ErrorCode::kModel, SourcePosition{path.string()},
                std::to_string(size) + " bytes; at most " + std::to_string(limit) + " are read");
  }
  std::string text;
  if (!error) text = read_start(path, size, error);
  if (error) throw Error(ErrorCode::kIo, SourcePosition{path.string()}, "cannot be read: " + error.message());
  if (text.size() < size) throw Error(ErrorCode::kIo, SourcePosition{path.string()}, "cannot be read to its end");
  return text;
}

boost::json::value parse_json(std::string_view text, const std::string& file) {
  boost::json::stream_parser parser;
  boost::system::error_code error;
  const size_t parsed = parser.write_some(text, error);
  if (!error && parsed < text.size()) error = boost::json::error::extra_data;
  if (!error) parser.finish(error);
  if (error) {
    const std::string_view before = text.substr(0, parsed);
    const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    SourcePosition where{file, static_cast<uint32_t>(1 + std::count(before.begin(), before.end(), '\n')),
                         static_cast<uint32_t>(1 + parsed - line_start)};
    throw Error(ErrorCode::kModel, std::move(where), "not valid JSON: " + error.message());
  }
  weights::need_keys_once(text, file);
  return parser.release();
}

JsonPlace JsonPlace::operator[](std::string_view key) const {
  std::string path = path_.empty() ? std::string(key) : path_ + '.' + std::string(key);
  if (asked_ != nullptr) asked_->insert(path);
  return {object().if_contains(key), *this, std::move(path)};
}

void JsonPlace::expect_nothing_else(std::span<const std::string_view> harmless) const {
  if (is_array()) {
    for (const JsonPlace& element : elements()) {
      if (element.is_object() || element.is_array()) element.expect_nothing_else(harmless);
    }
  }
  if (!is_object()) return;
  for (const auto& [key, value] : value_->get_object()) {
    const std::string path = path_.empty() ? std::string(key) : path_ + '.' + std::string(key);
    if (value.is_null() || weights::matches_any(path, harmless)) continue;
    const JsonPlace member(&value, *this, path);
    if (asked_ == nullptr || !asked_->contains(path)) {
      member.fail("found " + describe(value) +
                  ", which is not read, so it may change how text is split; expected no such key");
    }
    member.expect_nothing_else(harmless);
  }
}

std::vector<JsonPlace> JsonPlace::elements() const {
  std::vector<JsonPlace> places;
  if (empty()) return places;
  const boost::json::array& values = array();
  for (size_t i = 0; i < values.size(); ++i) {
    places.push_back(JsonPlace(&values[i], *this, path_ + '[' + std::to_string(i) + ']'));
  }
  return places;
}

const boost::json::object& JsonPlace::object() const {
  if (!is_object()) expected("an object");
  return value_->get_object();
}

const boost::json::array& JsonPlace::array() const {
  if (!is_array()) expected("an array");
  return value_->get_array();
}

std::string_view JsonPlace::string() const {
  if (!is_string()) expected("a string");
  return {value_->get_string().data(), value_->get_string().size()};
}

int64_t JsonPlace::integer() const {
  if (empty() || !value_->is_int64()) expected("an integer");
  return value_->get_int64();
}

double JsonPlace::number() const {
  if (empty() || !value_->is_number()) expected("a number");
  return value_->to_number<double>();
}

bool JsonPlace::boolean() const {
  if (empty() || !value_->is_bool()) expected("true or false");
  return value_->get_bool();
}

std::string JsonPlace::string_or(std::string_view otherwise) const {
  return std::string(empty() ? otherwise : string());
}

bool JsonPlace::boolean_or(bool otherwise) const {
  return empty() ? otherwise : boolean();
}

void JsonPlace::fail(const std::string& message) const {
  throw Error(ErrorCode::kModel, SourcePosition{*file_}, (path_.empty() ? "" : path_ + ": ") + message);
}

void JsonPlace::expected(std::string_view what) const {
  fail("found " + (value_ == nullptr ? "nothing" : describe(*value_)) + ", expected " + std::string(what));
}

}  // namespace tenon::text
