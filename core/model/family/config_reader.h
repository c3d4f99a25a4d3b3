// Reads a model's description and collects what is wrong with it, so that all of it is said at once. A key of
// config.json that is null is refused where it is read, unless transformers lets it be null: then it counts as absent.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../weights/layout.h"
#include "tenon/core/error.h"
#include "tenon/core/weights.h"

namespace tenon::family {

class ConfigReader {
 public:
  explicit ConfigReader(const Weights& weights) : weights_(weights) {}

  const Weights& weights() const { return weights_; }
  bool has(const std::string& key) const { return weights_.metadata(key) != nullptr; }
  bool is_null(const std::string& key) const { return weights::is_null(weights_, key); }
  void may_be_null(const std::string& key) { nullable_.insert(key); }

  // These look up a value of one type; a value of another kind is a problem and counts as absent.
  std::optional<double> real(const std::string& key) { return look_up(metadata_real, key); }
  std::optional<bool> boolean(const std::string& key) { return look_up(metadata_bool, key); }
  std::optional<std::string> text(const std::string& key) { return look_up(metadata_text, key); }

  // Reads a number of 1 to 2^31 - 1. Without a fallback the key must be there.
  uint32_t count(const std::string& key, std::optional<int64_t> fallback = {}) {
    if (!require(key, fallback.has_value())) return static_cast<uint32_t>(fallback.value_or(1));
    const std::optional<int64_t> n = look_up(metadata_int, key);
    if (n && *n > 0 && *n <= std::numeric_limits<int32_t>::max()) return static_cast<uint32_t>(*n);
    if (n) wrong(key, std::to_string(*n), "a positive count below 2^31");
    unread_.insert(key);
    return 1;
  }
  // Reads a positive, finite number. Without a fallback the key must be there.
  double positive(const std::string& key, std::optional<double> fallback = {}) {
    if (!require(key, fallback.has_value())) return fallback.value_or(1);
    return usable_positive(key).value_or(1);
  }
  // A number that is wrong is a problem and counts as absent.
  std::optional<double> optional_positive(const std::string& key) {
    return require(key, true) ? usable_positive(key) : std::nullopt;
  }
  // Says whether a key that must be there had no value of its type: then what follows from it says nothing.
  bool is_unread(const std::string& key) const { return unread_.contains(key); }
  // Checks a key that may be left out, and of which one value is supported.
  void only(const std::string& key, const MetadataValue& expected) {
    refuse_null(key);
    const MetadataValue* found = weights_.metadata(key);
    if (found == nullptr || *found == expected) return;
    wrong(key, weights::describe(*found), weights::describe(expected));
  }
  void wrong(const std::string& key, const std::string& found, const std::string& expected) {
    problem("key \"" + key + "\": found " + found + ", expected " + expected);
  }
  void problem(const std::string& message) {
    Diagnostic& d = problems_.emplace_back();
    d.where.file = weights::description_file(weights_);
    d.message = message;
  }
  void refuse_null(const std::string& key) {
    if (is_null(key) && !nullable_.contains(key)) wrong(key, "null", "a value, or no such key");
  }
  // An object in the place of a number is a problem; says whether it is one.
  bool refuse_object(const std::string& key) {
    if (!is_object(key)) return false;
    wrong(key, "an object", "a number");
    unread_.insert(key);
    return true;
  }
  bool fine() const { return problems_.empty(); }
  // Throws Error(kModel) if there are problems.
  void finish() {
    if (!problems_.empty()) throw Error(ErrorCode::kModel, std::move(problems_));
  }

 private:
  std::optional<double> usable_positive(const std::string& key) {
    const std::optional<double> v = real(key);
    if (v && std::isfinite(*v) && *v > 0) return v;
    if (v) wrong(key, weights::in_figures(*v), "a positive number");
    unread_.insert(key);
    return std::nullopt;
  }
  template <class T>
  std::optional<T> look_up(std::optional<T> (*find)(const Weights&, std::string_view), const std::string& key) {
    refuse_null(key);
    try {
      return find(weights_, key);
    } catch (const Error& e) {
      problems_.insert(problems_.end(), e.diagnostics().begin(), e.diagnostics().end());
      return std::nullopt;
    }
  }
  bool require(const std::string& key, bool optional) {
    refuse_null(key);
    if (has(key)) return true;
    if (refuse_object(key)) return false;
    if (!optional && !is_null(key)) {
      problem("key \"" + key + "\" is missing");
    }
    return false;
  }
  // An object of config.json is there as its entries alone: "head_dim.a".
  bool is_object(const std::string& key) const {
    if (weights_.convention() == "gguf") return false;
    const std::vector<std::string> keys = weights_.metadata_keys();
    return std::any_of(keys.begin(), keys.end(), [&](const std::string& k) { return k.starts_with(key + "."); });
  }

  const Weights& weights_;
  std::set<std::string> nullable_, unread_;
  std::vector<Diagnostic> problems_;
};

}  // namespace tenon::family
