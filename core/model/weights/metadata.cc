#include <algorithm>
#include <array>
#include <cstdio>
#include <type_traits>

#include "layout.h"
#include "tenon/core/error.h"
#include "tenon/core/weights.h"

namespace tenon {

std::string weights::in_figures(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

std::string weights::describe(const MetadataValue& value) {
  struct {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(uint64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return "the number " + weights::in_figures(v); }
    std::string operator()(const std::string& v) const { return "the text " + weights::in_quotes(v); }
    std::string operator()(const std::vector<int64_t>& v) const { return list(v.size(), "integers"); }
    std::string operator()(const std::vector<double>& v) const { return list(v.size(), "numbers"); }
    std::string operator()(const std::vector<std::string>& v) const {
      if (v.empty()) return "an empty list or group";
      if (v.size() > 4) return list(v.size(), "texts");
      std::string text = "a list of";
      for (const std::string& each : v) text += " " + weights::in_quotes(each);
      return text;
    }
    static std::string list(size_t count, const char* what) {
      return "a list of " + std::to_string(count) + " " + what;
    }
  } visitor;
  return std::visit(visitor, value);
}

bool weights::is_null(const Weights& weights, std::string_view key) {
  const MetadataValue* nulls = weights.metadata(kNullKeys);
  const auto* names = nulls == nullptr ? nullptr : std::get_if<std::vector<std::string>>(nulls);
  return names != nullptr && std::find(names->begin(), names->end(), key) != names->end();
}

std::string weights::description_file(const Weights& weights) {
  if (weights.files().empty()) return {};
  const std::filesystem::path& first = weights.files().front();
  return (weights.convention() == "gguf" ? first : first.parent_path() / "config.json").string();
}

namespace {

[[noreturn]] void mistyped(const Weights& weights, std::string_view key, const MetadataValue& value,
                           const std::string& expected) {
  throw Error(ErrorCode::kModel, {weights::description_file(weights)},
              "metadata " + weights::in_quotes(key) + " is " + weights::describe(value) + "; expected " + expected);
}

template <class T>
std::optional<T> exactly(const Weights& weights, std::string_view key, const std::string& expected) {
  const MetadataValue* value = weights.metadata(key);
  if (!value) return std::nullopt;
  if (const T* found = std::get_if<T>(value)) return *found;
  mistyped(weights, key, *value, expected);
}

}  // namespace

std::optional<int64_t> metadata_int(const Weights& weights, std::string_view key) {
  return exactly<int64_t>(weights, key, "an integer below 2^63");
}

std::optional<double> metadata_real(const Weights& weights, std::string_view key) {
  const MetadataValue* value = weights.metadata(key);
  if (!value) return std::nullopt;
  if (const auto* real = std::get_if<double>(value)) return *real;
  if (const auto* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
  if (const auto* large = std::get_if<uint64_t>(value)) return static_cast<double>(*large);
  mistyped(weights, key, *value, "a number");
}

std::optional<bool> metadata_bool(const Weights& weights, std::string_view key) {
  return exactly<bool>(weights, key, "true or false");
}

std::optional<std::string> metadata_text(const Weights& weights, std::string_view key) {
  return exactly<std::string>(weights, key, "a text");
}

}  // namespace tenon
