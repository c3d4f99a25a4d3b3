// The host reads a component's parameters here: what its schema says, and values that obey it. Every function takes
// schemas of older and newer components: fields that are not there count as 0.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tenon/abi/params.h"

namespace tenon {

using ParamValue = std::variant<bool, int64_t, double, std::string>;

// Returns spec i as this host knows it; i < schema.count.
tenon_param_spec spec_at(const tenon_param_schema& schema, size_t i);
// Returns the index of a key, or schema.count if there is no such key.
size_t find_param(const tenon_param_schema& schema, const std::string& name);
std::vector<std::string> param_names(const tenon_param_schema& schema);
// Returns the entries of "32|64|128"; none if the parameter is free within its range.
std::vector<std::string> choices_of(const tenon_param_spec& spec);
// Returns "bool", "int", "real" or "text".
std::string type_name(const tenon_param_spec& spec);
// Returns a value as TOML has it: 64, 0.8, true, "fp16".
std::string value_text(const ParamValue& value);
// Returns a text as a value of the parameter's type. If it is none, the result is the text, which set() then refuses.
ParamValue value_from_text(const tenon_param_spec& spec, const std::string& text);
// Returns the default as a TOML value; "" if the parameter is required.
std::string default_text(const tenon_param_spec& spec);
// Says what may be written: "32, 64, 128", "1 to 1024", "at least 1"; "" if anything of the type may.
std::string range_text(const tenon_param_spec& spec);
// Says all of it in one line: "int: 32, 64, 128, 256; default 64".
std::string describe(const tenon_param_spec& spec);
// Returns the hash that a library's note carries, in 16 hexadecimal digits.
std::string schema_hash(const tenon_param_schema& schema);
// Says what is wrong with a schema itself: names missing or twice, an unknown type, a default outside the range.
std::vector<std::string> schema_problems(const tenon_param_schema& schema);

// This has one value for every parameter of a schema, which outlives it. It may be copied and moved freely.
class ParamValues {
 public:
  // All parameters have their defaults; required ones are unset.
  explicit ParamValues(const tenon_param_schema& schema);
  ParamValues(const ParamValues& other);
  ParamValues& operator=(const ParamValues& other);
  ParamValues(ParamValues&&) noexcept = default;
  ParamValues& operator=(ParamValues&&) noexcept = default;
  ~ParamValues() = default;

  const tenon_param_schema& schema() const { return *schema_; }
  // Sets parameter i. Returns "" or what is wrong ("300 is out of range", "must be an int, not a text"); then the
  // value stays as it was. An int is taken for a real.
  std::string set(size_t i, const ParamValue& value);
  ParamValue get(size_t i) const;
  bool is_set(size_t i) const { return set_[i] != 0; }  // the user stated it
  std::vector<std::string> missing() const;             // these are required and not set
  // Returns the values as the component reads them; they are valid until the next change or the end of this object.
  const tenon_params* abi() const { return &params_; }

 private:
  void bind();

  const tenon_param_schema* schema_;
  std::vector<tenon_param_value> values_;
  std::vector<std::string> texts_;
  std::vector<uint8_t> set_;
  tenon_params params_{};
};

}  // namespace tenon
