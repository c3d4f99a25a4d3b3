// config.json has a group of keys: rope_parameters from transformers 5 on, rope_scaling before, with theta and others
// beside it. Defaults are those of transformers' modeling_rope_utils.py, for GGUF those of llama.cpp. A key of the
// group that the type does not have is refused, as is a group of another form.
#include "rope_config.h"

#include <algorithm>
#include <set>

namespace tenon::llama {
namespace {

constexpr char kTypes[] = "linear, dynamic, yarn, longrope, llama3";

class RopeGroup {
 public:
  RopeGroup(ConfigReader& reader, std::string name) : reader_(reader), name_(std::move(name)) {}

  std::string key(const std::string& name) const { return name_ + "." + name; }
  bool has(const std::string& name) const { return reader_.has(key(name)); }
  double positive(const std::string& name) { return known(name), reader_.positive(key(name)); }
  double positive(const std::string& name, double fallback) {
    return known(name), reader_.positive(key(name), fallback);
  }
  std::optional<double> optional_positive(const std::string& name) {
    return known(name), reader_.optional_positive(key(name));
  }
  bool boolean(const std::string& name, bool fallback) {
    return known(name), reader_.boolean(key(name)).value_or(fallback);
  }
  // In the group or beside it; in both it must be the same.
  double positive_here_or_beside(const std::string& name, double fallback) {
    const std::optional<double> here = optional_positive(name), beside = reader_.optional_positive(name);
    if (here && beside && *here != *beside) {
      reader_.problem("keys \"" + key(name) + "\" and \"" + name + "\": found " + std::to_string(*here) + " and " +
                      std::to_string(*beside) + ", expected one value");
    }
    return here ? *here : beside.value_or(fallback);
  }
  // A divisor for each pair.
  std::vector<double> divisors(const std::string& name, size_t count) {
    known(name);
    std::vector<double> values;
    const MetadataValue* found = reader_.weights().metadata(key(name));
    if (found != nullptr) {
      if (const auto* reals = std::get_if<std::vector<double>>(found)) values = *reals;
      if (const auto* whole = std::get_if<std::vector<int64_t>>(found)) values.assign(whole->begin(), whole->end());
    }
    const auto usable = [](double v) { return std::isfinite(v) && v > 0; };
    if (values.size() != count || !std::all_of(values.begin(), values.end(), usable)) {
      reader_.wrong(key(name), found == nullptr ? "none" : weights::describe(*found),
                    "a list of " + std::to_string(count) + " positive numbers");
      values.assign(count, 1);
    }
    return values;
  }
  // "rope_type", once "type".
  std::string type() {
    known("rope_type"), known("type");
    const std::optional<std::string> now = reader_.text(key("rope_type")), once = reader_.text(key("type"));
    if (now && once && *now != *once) reader_.wrong(key("type"), *once, "the same as rope_type, " + *now);
    return now ? *now : once.value_or("");
  }
  void known(const std::string& name) { known_.insert(key(name)); }
  // Once all that the type has was read.
  void refuse_others(const std::string& type) {
    for (const std::string& found : reader_.weights().metadata_keys()) {
      if (!found.starts_with(name_ + ".") || known_.contains(found)) continue;
      const bool nested = found.find('.', name_.size() + 1) != std::string::npos;
      reader_.problem("key \"" + found + "\": found " + weights::describe(*reader_.weights().metadata(found)) +
                      (nested         ? ", expected one rope for all layers, without groups inside " + name_
                       : type.empty() ? ", but " + name_ + " has no rope_type; expected one of " + kTypes
                                      : ", which a rope of type \"" + type + "\" does not have; expected no such key"));
    }
  }

 private:
  ConfigReader& reader_;
  std::string name_;
  std::set<std::string> known_;
};

void read_yarn(RopeGroup& group, Rope& r) {
  r.slow_turns = group.positive("beta_slow", 1), r.fast_turns = group.positive("beta_fast", 32);
  r.whole_pairs = group.boolean("truncate", true);
  group.known("finetuned");
  const std::optional<double> scale = group.optional_positive("mscale"),
                              whole = group.optional_positive("mscale_all_dim");
  r.attention_factor = yarn_attention_factor(r.factor);
  if (scale && whole) {
    r.attention_factor = yarn_attention_factor(r.factor, *scale) / yarn_attention_factor(r.factor, *whole);
  }
  r.attention_factor = group.positive("attention_factor", r.attention_factor);
}

void read_longrope(RopeGroup& group, Rope& r) {
  r.short_divisors = group.divisors("short_factor", r.rotated / 2);
  r.long_divisors = group.divisors("long_factor", r.rotated / 2);
  r.factor = group.positive("factor", r.context / r.original_context);
  const double derived =
      r.factor <= 1 ? 1 : std::sqrt(1 + std::log(r.factor) / std::log(std::max(2.0, r.original_context)));
  r.attention_factor = group.positive("attention_factor", derived);
}

void read_type(ConfigReader& reader, RopeGroup& group, const std::string& type, Rope& r) {
  if (type == "yarn" || type == "longrope" || type == "llama3") {
    r.original_context = group.positive_here_or_beside("original_max_position_embeddings", r.context);
  }
  if (type == "linear" || type == "dynamic" || type == "llama3") {
    r.factor = group.positive("factor");
  } else if (type == "yarn") {
    r.factor = group.positive("factor", r.context / r.original_context);
  }
  if (type.empty() || type == "default") return;
  if (type == "linear") {
    r.scaling = RopeScaling::kLinear;
  } else if (type == "dynamic") {
    r.scaling = RopeScaling::kDynamic;
  } else if (type == "yarn") {
    r.scaling = RopeScaling::kYarn;
    read_yarn(group, r);
  } else if (type == "longrope") {
    r.scaling = RopeScaling::kLongrope;
    read_longrope(group, r);
  } else if (type == "llama3") {
    r.scaling = RopeScaling::kLlama3;
    r.low_frequency_factor = group.positive("low_freq_factor");
    r.high_frequency_factor = group.positive("high_freq_factor");
  } else {
    reader.problem("rope scaling \"" + type + "\" is not supported; supported: " + kTypes);
  }
}

// What its formula cannot be computed with.
void check(ConfigReader& reader, const Rope& r) {
  if (r.scaling == RopeScaling::kYarn && (r.theta <= 1 || r.fast_turns < r.slow_turns)) {
    reader.problem("rope of type \"yarn\": found theta " + std::to_string(r.theta) + ", beta_fast " +
                   std::to_string(r.fast_turns) + " and beta_slow " + std::to_string(r.slow_turns) +
                   "; expected theta above 1 and beta_fast not below beta_slow");
  }
  if (r.scaling == RopeScaling::kDynamic && r.rotated <= 2) {
    reader.problem("rope of type \"dynamic\" over " + std::to_string(r.rotated) + " dimensions; expected at least 4");
  }
  if (r.scaling == RopeScaling::kLlama3 && r.high_frequency_factor <= r.low_frequency_factor) {
    reader.problem("rope of type \"llama3\": found high_freq_factor " + std::to_string(r.high_frequency_factor) +
                   " and low_freq_factor " + std::to_string(r.low_frequency_factor) + "; expected the first above");
  }
}

// One f32 for each pair; empty if there is no such tensor.
std::vector<double> divisors_of(ConfigReader& reader, const char* name, Rope& r) {
  const Weights& weights = reader.weights();
  const WeightTensor* tensor = weights.find(name);
  if (tensor == nullptr) return {};
  r.tensors.push_back(tensor);
  std::vector<float> values(r.rotated / 2);
  if (tensor->format != TENON_F32 || tensor->shape != std::vector{static_cast<int64_t>(values.size())}) {
    reader.problem("tensor \"" + tensor->name + "\" is " + weights::describe(*tensor) + ", expected f32 (" +
                   std::to_string(values.size()) + ")");
    return {};
  }
  weights.read(*tensor, 0, std::as_writable_bytes(std::span(values)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && values[i] > 0) continue;
    reader.problem("tensor \"" + tensor->name + "\": element " + std::to_string(i) + " is " +
                   std::to_string(values[i]) + ", expected a positive number");
    break;
  }
  return {values.begin(), values.end()};
}

bool has_under(const Weights& weights, const std::string& prefix) {
  const std::vector<std::string> keys = weights.metadata_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return key.starts_with(prefix); });
}

}  // namespace

Rope read_huggingface_rope(ConfigReader& reader, const ModelInfo& model) {
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (const MetadataValue* found = reader.weights().metadata(name)) {
      reader.wrong(name, weights::describe(*found), "an object or null");
    }
  }
  const bool before = has_under(reader.weights(), "rope_scaling.");
  if (before && has_under(reader.weights(), "rope_parameters.")) {
    reader.problem("found rope_scaling and rope_parameters, expected one of them");
  }
  RopeGroup group(reader, before ? "rope_scaling" : "rope_parameters");
  Rope r;
  r.context = r.original_context = model.context;
  r.theta = group.positive_here_or_beside("rope_theta", 10000);
  r.rotated = static_cast<uint32_t>(group.positive_here_or_beside("partial_rotary_factor", 1) * model.head_dim);
  const std::string type = group.type();
  read_type(reader, group, type, r);
  group.refuse_others(type);
  check(reader, r);
  r.divisors = divisors_of(reader, kRopeDivisors, r);
  return r;
}

Rope read_gguf_rope(ConfigReader& reader, const ModelInfo& model, const std::string& architecture) {
  const std::string prefix = architecture + ".rope.", scaling = prefix + "scaling.";
  Rope r;
  r.interleaved = true;
  r.context = r.original_context = model.context;
  r.rotated = reader.count(prefix + "dimension_count", model.head_dim);
  r.theta = reader.positive(prefix + "freq_base", 10000);
  const std::string type = reader.text(scaling + "type").value_or("none");
  if (type == "linear") {
    r.scaling = RopeScaling::kLinear;
    r.factor = reader.positive(scaling + "factor");
  } else if (type == "yarn") {
    r.scaling = RopeScaling::kYarn;
    r.factor = reader.positive(scaling + "factor");
    r.original_context = reader.count(scaling + "original_context_length", model.context);
    r.slow_turns = reader.positive(scaling + "yarn_beta_slow", 1);
    r.fast_turns = reader.positive(scaling + "yarn_beta_fast", 32);
    r.attention_factor = yarn_attention_factor(r.factor) * reader.positive(scaling + "attn_factor", 1);
  } else if (type == "longrope") {
    r.scaling = RopeScaling::kLongrope;
    r.original_context = reader.count(scaling + "original_context_length");
    r.attention_factor = reader.positive(scaling + "attn_factor", 1);
    r.short_divisors = divisors_of(reader, "rope_factors_short.weight", r);
    r.long_divisors = divisors_of(reader, "rope_factors_long.weight", r);
    if (r.short_divisors.empty() || r.long_divisors.empty()) {
      reader.problem(
          "rope of type \"longrope\": expected the tensors rope_factors_short.weight and "
          "rope_factors_long.weight");
    }
  } else if (type != "none") {
    reader.problem("key \"" + scaling + "type\": found \"" + type + "\", expected none, linear, yarn or longrope");
  } else if (reader.has(scaling + "factor")) {
    reader.problem("key \"" + scaling + "factor\" is there without \"" + scaling +
                   "type\"; expected none, linear, "
                   "yarn or longrope there");
  }
  check(reader, r);
  r.divisors = divisors_of(reader, kRopeDivisors, r);
  return r;
}

}  // namespace tenon::llama
