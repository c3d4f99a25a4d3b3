// JSON files of tokenizers are read with this; errors name the file and the place.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

// Reads the whole file. Throws Error(kIo); Error(kModel) if it is larger than `limit` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 30);

// Throws Error(kModel) with line and column.
boost::json::value parse_json(std::string_view text, const std::string& file);

// This is a place in a parsed file; null or absent values are empty places. It borrows the value, the file's name and,
// if there is one, the list in which it writes down the path of each member that is asked for. Everything that reads
// throws Error(kModel) "FILE: PLACE: found ..., expected ..." for a value of another kind.
class JsonPlace {
 public:
  JsonPlace(const boost::json::value& value, const std::string& file, std::set<std::string>* asked = nullptr)
      : value_(&value), file_(&file), asked_(asked) {}

  bool empty() const { return value_ == nullptr || value_->is_null(); }
  bool is_null() const { return value_ != nullptr && value_->is_null(); }
  bool is_boolean() const { return !empty() && value_->is_bool(); }
  bool is_string() const { return !empty() && value_->is_string(); }
  bool is_array() const { return !empty() && value_->is_array(); }
  bool is_object() const { return !empty() && value_->is_object(); }

  // Returns a member of an object; an empty place if it has none of that name.
  JsonPlace operator[](std::string_view key) const;
  // Returns the elements of an array; none for an empty place.
  std::vector<JsonPlace> elements() const;
  // Returns the elements of an array that has to be there.
  std::vector<JsonPlace> required_elements() const {
    array();
    return elements();
  }

  const boost::json::object& object() const;
  const boost::json::array& array() const;
  std::string_view string() const;
  int64_t integer() const;
  double number() const;
  bool boolean() const;
  // These return `otherwise` for a value that is missing.
  std::string string_or(std::string_view otherwise) const;
  bool boolean_or(bool otherwise) const;

  // Fails at the first member, here or below, that was not asked for, is not null, and whose path matches none of the
  // patterns (a star stands for any text). What lies below a match is harmless as well.
  void expect_nothing_else(std::span<const std::string_view> harmless) const;

  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void expected(std::string_view what) const;

 private:
  JsonPlace(const boost::json::value* value, const JsonPlace& parent, std::string path)
      : value_(value), file_(parent.file_), asked_(parent.asked_), path_(std::move(path)) {}
  const boost::json::value* value_;
  const std::string* file_;
  std::set<std::string>* asked_;
  std::string path_;
};

}  // namespace tenon::text
