// Reads the fields of a JSON object, each once and by its type. What nobody has
// asked for in the end is refused by name.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "api_error.h"

namespace tenon::serve {

// Throws ApiError(400) if the text is no JSON object, or is nested too deeply.
boost::json::object parse_object(const std::string& text);

// All functions throw ApiError(400) that names the field. A field that is null counts as absent.
class Fields {
 public:
  // `prefix`, such as "stream_options.", precedes names in errors. The object outlives this one.
  explicit Fields(const boost::json::object& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  const boost::json::value* find(std::string_view name);  // returns nullptr if it is absent
  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t least, int64_t most);
  std::optional<double> number(std::string_view name, double least, double most);
  std::optional<std::string> text(std::string_view name);

  // Whatever they say changes nothing of the answer.
  void accept(std::initializer_list<std::string_view> names);
  // Refuses all values of the field but these; the error lists them.
  void only(std::string_view name, std::initializer_list<boost::json::value> values);
  // The field is known, and what it asks for is not there.
  void refuse(std::string_view name, const std::string& why);
  // Every field was asked for.
  void finish() const;

  std::string name(std::string_view field) const { return prefix_ + std::string(field); }
  [[noreturn]] void fail(std::string_view field, const std::string& problem, const std::string& code = "") const;

 private:
  const boost::json::object& object_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tenon::serve
