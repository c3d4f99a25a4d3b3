// This holds values of parameters against a component's schema (types, ranges, choices, defaults) and has the words for
// each of these. A value is checked by its own parameter alone; a default is checked like a value when a schema is. The
// texts that tenon_params points to are the ParamValues' own, so every copy points to its own again (bind()).
#include "tenon/core/params.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "tenon/sdk/error.h"
#include "tenon/sdk/params.h"

namespace tenon {
namespace {

constexpr int64_t kIntMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kIntMax = std::numeric_limits<int64_t>::max();
constexpr double kRealMax = std::numeric_limits<double>::max();

std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return {text, end};
}

std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

template <class T>
std::string range(T low, T high, bool open_low, bool open_high, std::string (*print)(T)) {
  if (open_low && open_high) return "";
  if (open_high) return "at least " + print(low);
  if (open_low) return "at most " + print(high);
  return print(low) + " to " + print(high);
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Says "8 to 4096 in steps of 8" of many numbers that stand equally far apart, and lists all other choices.
std::string choices_text(const tenon_param_spec& spec, const std::vector<std::string>& choices) {
  constexpr size_t kFew = 16;
  if (spec.type != TENON_PARAM_INT || choices.size() <= kFew) return joined(choices);
  std::vector<uint64_t> numbers;
  for (const std::string& choice : choices) {
    const ParamValue value = value_from_text(spec, choice);
    if (const auto* number = std::get_if<int64_t>(&value)) numbers.push_back(static_cast<uint64_t>(*number));
  }
  for (size_t i = 2; i < numbers.size(); ++i) {
    if (numbers[i] - numbers[i - 1] != numbers[1] - numbers[0]) return joined(choices);
  }
  if (numbers.size() != choices.size()) return joined(choices);
  return choices.front() + " to " + choices.back() + " in steps of " + std::to_string(numbers[1] - numbers[0]);
}

bool listed(const std::vector<std::string>& choices, const std::string& text) {
  return choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end();
}

const char* name_of(const ParamValue& value) {
  constexpr const char* kNames[] = {"a bool", "an int", "a real", "a text"};
  return kNames[value.index()];
}

std::string type_problem(const char* wanted, const ParamValue& value) {
  return std::string("must be ") + wanted + ", not " + name_of(value);
}

std::string int_problem(const tenon_param_spec& spec, int64_t value) {
  if (!listed(choices_of(spec), std::to_string(value))) return std::to_string(value) + " is not one of the choices";
  if (value < spec.int_min || value > spec.int_max) return std::to_string(value) + " is out of range";
  return "";
}

std::string real_problem(const tenon_param_spec& spec, double value) {
  if (!std::isfinite(value)) return number(value) + " is no finite number";
  if (value < spec.real_min || value > spec.real_max) return number(value) + " is out of range";
  return "";
}

std::string text_problem(const tenon_param_spec& spec, const std::string& value) {
  if (value.find('\0') != std::string::npos) return "must not hold a zero byte";
  return listed(choices_of(spec), value) ? "" : quoted(value) + " is not one of the choices";
}

// Says what is wrong with the default, as if the user had written it.
std::string default_problem(const tenon_param_spec& spec) {
  if (spec.flags & TENON_PARAM_REQUIRED) return "";
  switch (spec.type) {
    case TENON_PARAM_BOOL:
      return spec.int_default == 0 || spec.int_default == 1 ? "" : "is neither 0 nor 1";
    case TENON_PARAM_INT:
      return int_problem(spec, spec.int_default);
    case TENON_PARAM_REAL:
      return real_problem(spec, spec.real_default);
    default:
      return spec.text_default == nullptr ? "is missing" : text_problem(spec, spec.text_default);
  }
}

}  // namespace

tenon_param_spec spec_at(const tenon_param_schema& schema, size_t i) {
  return sdk::read_abi(schema.spec[i]);
}

size_t find_param(const tenon_param_schema& schema, const std::string& name) {
  size_t i = 0;
  while (i < schema.count && name != schema.spec[i]->name) ++i;
  return i;
}

std::vector<std::string> param_names(const tenon_param_schema& schema) {
  std::vector<std::string> names;
  for (size_t i = 0; i < schema.count; ++i) names.emplace_back(schema.spec[i]->name);
  return names;
}

std::vector<std::string> choices_of(const tenon_param_spec& spec) {
  std::vector<std::string> choices;
  if (spec.choices == nullptr) return choices;
  const std::string_view all = spec.choices;
  for (size_t begin = 0; begin <= all.size();) {
    const size_t end = std::min(all.find('|', begin), all.size());
    choices.emplace_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

std::string type_name(const tenon_param_spec& spec) {
  switch (spec.type) {
    case TENON_PARAM_BOOL:
      return "bool";
    case TENON_PARAM_INT:
      return "int";
    case TENON_PARAM_REAL:
      return "real";
    case TENON_PARAM_TEXT:
      return "text";
    default:
      return "unknown";
  }
}

std::string value_text(const ParamValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const double* real = std::get_if<double>(&value)) return number(*real);
  return quoted(std::get<std::string>(value));
}

ParamValue value_from_text(const tenon_param_spec& spec, const std::string& text) {
  const char* end = text.data() + text.size();
  if (spec.type == TENON_PARAM_BOOL && (text == "true" || text == "false")) return text == "true";
  int64_t integer = 0;
  if (spec.type == TENON_PARAM_INT) {
    const auto [at, error] = std::from_chars(text.data(), end, integer);
    if (error == std::errc() && at == end) return integer;
  }
  double real = 0;
  if (spec.type == TENON_PARAM_REAL) {
    const auto [at, error] = std::from_chars(text.data(), end, real);
    if (error == std::errc() && at == end) return real;
  }
  return text;
}

std::string default_text(const tenon_param_spec& spec) {
  if (spec.flags & TENON_PARAM_REQUIRED) return "";
  switch (spec.type) {
    case TENON_PARAM_BOOL:
      return value_text(spec.int_default != 0);
    case TENON_PARAM_INT:
      return value_text(spec.int_default);
    case TENON_PARAM_REAL:
      return value_text(spec.real_default);
    case TENON_PARAM_TEXT:
      return value_text(std::string(spec.text_default == nullptr ? "" : spec.text_default));
    default:
      return "";
  }
}

std::string range_text(const tenon_param_spec& spec) {
  if (const std::vector<std::string> choices = choices_of(spec); !choices.empty()) return choices_text(spec, choices);
  if (spec.type == TENON_PARAM_INT) {
    return range<int64_t>(spec.int_min, spec.int_max, spec.int_min == kIntMin, spec.int_max == kIntMax,
                          [](int64_t v) { return std::to_string(v); });
  }
  if (spec.type == TENON_PARAM_REAL) {
    return range<double>(spec.real_min, spec.real_max, spec.real_min == -kRealMax, spec.real_max == kRealMax, &number);
  }
  return "";
}

std::string describe(const tenon_param_spec& spec) {
  std::string text = type_name(spec);
  if (const std::string range = range_text(spec); !range.empty()) text += ": " + range;
  if (spec.unit != nullptr && *spec.unit != '\0') text += std::string(" ") + spec.unit;
  return text + (spec.flags & TENON_PARAM_REQUIRED ? "; required" : "; default " + default_text(spec));
}

std::string schema_hash(const tenon_param_schema& schema) {
  std::vector<tenon_param_spec> specs;
  for (size_t i = 0; i < schema.count; ++i) specs.push_back(spec_at(schema, i));
  char hex[17] = "";
  sdk::detail::write_hex(sdk::detail::schema_hash(specs.data(), specs.size()), hex);
  return hex;
}

std::vector<std::string> schema_problems(const tenon_param_schema& schema) {
  std::vector<std::string> problems;
  std::set<std::string> names;
  for (size_t i = 0; i < schema.count; ++i) {
    const std::string where = "parameter " + std::to_string(i);
    if (schema.spec == nullptr || schema.spec[i] == nullptr) return {where + " is missing"};
    const tenon_param_spec spec = spec_at(schema, i);
    if (spec.name == nullptr || *spec.name == '\0') {
      problems.push_back(where + " has no name");
      continue;
    }
    const std::string name = quoted(spec.name);
    if (!names.insert(spec.name).second) problems.push_back("parameter " + name + " is there twice");
    if (spec.doc == nullptr) problems.push_back("parameter " + name + " has no documentation");
    if (spec.type < TENON_PARAM_BOOL || spec.type > TENON_PARAM_TEXT) {
      problems.push_back("parameter " + name + " is of the unknown type " + std::to_string(spec.type));
    } else if (const std::string problem = default_problem(spec); !problem.empty()) {
      problems.push_back("parameter " + name + ": its default " + problem);
    }
  }
  return problems;
}

ParamValues::ParamValues(const tenon_param_schema& schema)
    : schema_(&schema), values_(schema.count), texts_(schema.count), set_(schema.count) {
  for (size_t i = 0; i < schema.count; ++i) {
    const tenon_param_spec spec = spec_at(schema, i);
    values_[i].integer = spec.int_default;
    values_[i].real = spec.real_default;
    if (spec.text_default != nullptr) texts_[i] = spec.text_default;
  }
  bind();
}

ParamValues::ParamValues(const ParamValues& other)
    : schema_(other.schema_), values_(other.values_), texts_(other.texts_), set_(other.set_) {
  bind();
}

ParamValues& ParamValues::operator=(const ParamValues& other) {
  if (this != &other) *this = ParamValues(other);
  return *this;
}

void ParamValues::bind() {
  for (size_t i = 0; i < values_.size(); ++i) values_[i].text = texts_[i].c_str();
  params_ = sdk::abi_struct<tenon_params>();
  params_.count = static_cast<uint32_t>(values_.size());
  params_.value = values_.data();
}

std::string ParamValues::set(size_t i, const ParamValue& value) {
  const tenon_param_spec spec = spec_at(*schema_, i);
  const auto* integer = std::get_if<int64_t>(&value);
  std::string problem;
  switch (spec.type) {
    case TENON_PARAM_BOOL: {
      const bool* flag = std::get_if<bool>(&value);
      if (flag == nullptr) return type_problem("a bool", value);
      values_[i].integer = *flag ? 1 : 0;
      break;
    }
    case TENON_PARAM_INT:
      if (integer == nullptr) return type_problem("an int", value);
      if (problem = int_problem(spec, *integer); !problem.empty()) return problem;
      values_[i].integer = *integer;
      break;
    case TENON_PARAM_REAL: {
      const double* real = std::get_if<double>(&value);
      if (real == nullptr && integer == nullptr) return type_problem("a real", value);
      const double number = real != nullptr ? *real : static_cast<double>(*integer);
      if (problem = real_problem(spec, number); !problem.empty()) return problem;
      values_[i].real = number;
      break;
    }
    default: {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr) return type_problem("a text", value);
      if (problem = text_problem(spec, *text); !problem.empty()) return problem;
      texts_[i] = *text;
      break;
    }
  }
  set_[i] = 1;
  bind();
  return "";
}

ParamValue ParamValues::get(size_t i) const {
  switch (schema_->spec[i]->type) {
    case TENON_PARAM_BOOL:
      return values_[i].integer != 0;
    case TENON_PARAM_INT:
      return values_[i].integer;
    case TENON_PARAM_REAL:
      return values_[i].real;
    default:
      return texts_[i];
  }
}

std::vector<std::string> ParamValues::missing() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < set_.size(); ++i) {
    const tenon_param_spec spec = spec_at(*schema_, i);
    if ((spec.flags & TENON_PARAM_REQUIRED) && set_[i] == 0) names.emplace_back(spec.name);
  }
  return names;
}

}  // namespace tenon
