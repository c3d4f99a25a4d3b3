// config.json has a group of keys: rope_parameters from transformers 5 on, rope_scaling before, with theta and others
// beside it. Defaults are those of transformers' modeling_rope_utils.py, for GGUF those of llama.cpp. A key of the
// group that the type does not have is refused, as is a group of another form.
#include "rope_config.h"

#include <algorithm>
#include <initializer_list>
#include <numbers>
#include <set>

namespace tenon::family {
namespace {

constexpr char kTypes[] = "linear, dynamic, yarn, longrope, llama3";

class RopeGroup {
 public:
  RopeGroup(ConfigReader& reader, std::string name) : reader_(reader), name_(std::move(name)) {}

  std::string key(const std::string& name) const { return name_ + "." + name; }
  bool has(const std::string& name) const { return reader_.has(key(name)); }
  const std::string& name() const { return name_; }
  bool is_null(const std::string& name) const { return reader_.is_null(key(name)); }
  // Counts keys that are null as absent.
  void may_be_null(std::initializer_list<const char*> names) {
    for (const char* name : names) reader_.may_be_null(key(name));
  }
  double positive(const std::string& name) {
    note_known(name);
    return reader_.positive(key(name));
  }
  double positive(const std::string& name, double fallback) {
    note_known(name);
    return reader_.positive(key(name), fallback);
  }
  std::optional<double> optional_positive(const std::string& name) {
    note_known(name);
    return reader_.optional_positive(key(name));
  }
  bool boolean(const std::string& name, bool fallback) {
    note_known(name);
    return reader_.boolean(key(name)).value_or(fallback);
  }
  // The key stands in the object or beside it; if in both, the values must be the same.
  double positive_here_or_beside(const std::string& name, double fallback) {
    const std::optional<double> here = optional_positive(name), beside = reader_.optional_positive(name);
    if (here && beside && *here != *beside) {
      reader_.problem("keys \"" + key(name) + "\" and \"" + name + "\": found " + weights::in_figures(*here) + " and " +
                      weights::in_figures(*beside) + ", expected one value");
    }
    return here ? *here : beside.value_or(fallback);
  }
  // Returns the positions that a model was trained with before it was extended: a whole number.
  double original_context(double fallback, double least) {
    const char* name = "original_max_position_embeddings";
    const double n = positive_here_or_beside(name, fallback);
    if (n >= least && n == std::floor(n)) return n;
    reader_.wrong(has(name) ? key(name) : name, weights::in_figures(n),
                  "a whole number, at least " + std::to_string(static_cast<int>(least)));
    return least;
  }
  // Returns a divisor for each pair.
  std::vector<double> divisors(const std::string& name, size_t count) {
    note_known(name);
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
  // Returns the value of "rope_type", which was once called "type".
  std::string type() {
    note_known("rope_type");
    note_known("type");
    const std::optional<std::string> now = reader_.text(key("rope_type")), once = reader_.text(key("type"));
    if (now && once && *now != *once) reader_.wrong(key("type"), *once, "the same as rope_type, " + *now);
    for (const char* name : {"rope_type", "type"}) {
      if (reader_.text(key(name)) == "") reader_.wrong(key(name), "\"\"", kTypes);
    }
    return now ? *now : once.value_or("");
  }
  void note_known(const std::string& name) { known_.insert(key(name)); }
  // Refuses keys that belong to other types. It is called once all that this type has was read.
  void refuse_others(const std::string& type) {
    for (const std::string& found : reader_.weights().metadata_keys()) {
      if (!found.starts_with(name_ + ".") || known_.contains(found)) continue;
      const size_t end = found.find('.', name_.size() + 1);
      const bool nested = end != std::string::npos;
      if (nested && reader_.is_unread(found.substr(0, end))) continue;  // a number was expected there
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
  group.may_be_null({"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
  r.slow_turns = group.positive("beta_slow", 1);
  r.fast_turns = group.positive("beta_fast", 32);
  r.whole_pairs = group.boolean("truncate", r.whole_pairs);
  group.note_known("finetuned");
  const std::optional<double> scale = group.optional_positive("mscale"),
                              whole = group.optional_positive("mscale_all_dim");
  r.attention_factor = yarn_attention_factor(r.factor);
  if (scale && whole) {
    r.attention_factor = yarn_attention_factor(r.factor, *scale) / yarn_attention_factor(r.factor, *whole);
  }
  r.attention_factor = group.positive("attention_factor", r.attention_factor);
}

// A family may have some types of scaling only; transformers takes what another type says for one of those.
void check_type(ConfigReader& reader, const std::string& key, const std::string& type, const RopeSpec& spec) {
  if (spec.types.empty() || type.empty() || type == "default" || type == "none") return;
  std::string supported;
  for (const std::string& t : spec.types) {
    if (t == type) return;
    supported += (supported.empty() ? "" : ", ") + t;
  }
  reader.problem("key \"" + key + "\": rope scaling \"" + type + "\" is not supported; supported: " + supported);
}

void read_longrope(RopeGroup& group, Rope& r) {
  group.may_be_null({"factor", "attention_factor"});
  r.short_divisors = group.divisors("short_factor", r.rotated / 2);
  r.long_divisors = group.divisors("long_factor", r.rotated / 2);
  r.factor = group.positive("factor", r.context / r.original_context);
  const double derived = r.factor <= 1 ? 1 : std::sqrt(1 + std::log(r.factor) / std::log(r.original_context));
  r.attention_factor = group.positive("attention_factor", derived);
}

void read_type(ConfigReader& reader, RopeGroup& group, const std::string& type, Rope& r) {
  if (type == "yarn" || type == "longrope" || type == "llama3") {
    r.original_context = group.original_context(r.original_context, type == "longrope" ? 2 : 1);
  }
  if (type == "linear" || type == "dynamic" || type == "llama3") {
    r.factor = group.positive("factor");
  } else if (type == "yarn") {
    group.may_be_null({"factor"});
    r.factor = group.is_null("factor") ? r.context / r.original_context : group.positive("factor");
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
    reader.problem("key \"" + group.key(group.has("rope_type") ? "rope_type" : "type") + "\": rope scaling \"" + type +
                   "\" is not supported; supported: " + kTypes);
  }
}

// A description names its keys like this.
struct RopeKeys {
  std::string group, theta, factor, divisors, fast, slow;
};

// Angles are computed in single precision, so a pair that turns far more than once from one position to the next has
// none that mean anything; one that is all but still is no more meant.
void check_frequencies(ConfigReader& reader, const RopeKeys& keys, const Rope& r) {
  for (const double positions : {1.0, r.original_context + 1}) {
    for (const double f : scaled_frequencies(r, static_cast<uint32_t>(std::min(positions, 4e9)))) {
      if (f >= 1e-30 && f <= 2 * std::numbers::pi) continue;
      reader.problem("rope with " + keys.theta + " " + weights::in_figures(r.theta) +
                     (r.scaling == RopeScaling::kNone ? "" : ", " + keys.factor + " " + weights::in_figures(r.factor)) +
                     (r.scaling == RopeScaling::kLongrope ? " and " + keys.divisors : "") +
                     " turns a pair of dimensions by " + weights::in_figures(f) +
                     " radians a position; expected 1e-30 to a whole turn");
      return;
    }
  }
}

// Reports numbers that the formula cannot be computed with.
void check(ConfigReader& reader, const RopeKeys& keys, const Rope& r) {
  const bool had_problems = !reader.fine();
  if (r.scaling == RopeScaling::kYarn && (r.theta <= 1 || r.fast_turns < r.slow_turns)) {
    reader.problem(keys.group + " of type \"yarn\": found " + keys.theta + " " + weights::in_figures(r.theta) + ", " +
                   keys.fast + " " + weights::in_figures(r.fast_turns) + " and " + keys.slow + " " +
                   weights::in_figures(r.slow_turns) +
                   "; expected the first above 1 and the last not above the second");
  }
  if (r.scaling == RopeScaling::kDynamic && r.rotated <= 2) {
    reader.problem(keys.group + " of type \"dynamic\" over the head_dim of " + std::to_string(r.rotated) +
                   " dimensions; expected at least 4");
  }
  if (r.scaling == RopeScaling::kLlama3 && r.high_frequency_factor <= r.low_frequency_factor) {
    reader.problem(keys.group + " of type \"llama3\": found high_freq_factor " +
                   std::to_string(r.high_frequency_factor) + " and low_freq_factor " +
                   std::to_string(r.low_frequency_factor) + "; expected the first above");
  }
  if (!had_problems && reader.fine()) check_frequencies(reader, keys, r);
}

// Returns one f32 for each pair; nothing if there is no such tensor.
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

// Says whether an object of config.json has keys, if only with null.
bool has_group(const Weights& weights, const std::string& name) {
  std::vector<std::string> keys = weights.metadata_keys();
  if (const MetadataValue* nulls = weights.metadata(weights::kNullKeys)) {
    const auto& more = std::get<std::vector<std::string>>(*nulls);
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return key.starts_with(name + "."); });
}

}  // namespace

namespace {

double theta_default(const RopeSpec& spec, std::string_view convention, const Scope& scope) {
  const std::optional<Formula>& fallback = spec.theta.fallback.in(convention);
  return fallback ? scope.value(*fallback) : 10000;
}

// Returns the name of the object of config.json that is about a rope.
std::string group_name(ConfigReader& reader, const RopeSpec& spec) {
  const Weights& weights = reader.weights();
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const MetadataValue* found = weights.metadata(name);
    if (found != nullptr && *found != MetadataValue(std::vector<std::string>())) {
      reader.wrong(name, weights::describe(*found), "an object or null");
    }
  }
  const bool before = has_group(weights, "rope_scaling");
  if (before && has_group(weights, "rope_parameters")) {
    reader.problem("found rope_scaling and rope_parameters, expected one of them");
  }
  const std::string own = "rope_parameters." + spec.group;
  if (!spec.group.empty() && has_group(weights, own)) return own;
  return before ? "rope_scaling" : "rope_parameters";
}

// Returns how many dimensions of a head turn.
uint32_t rotated(ConfigReader& reader, const RopeSpec& spec, const ModelInfo& model, double share) {
  const double dims = std::floor(model.head_dim * share);
  // Where heads turn as a whole, transformers ignores the share with some types of rope, and fails with others.
  if (!spec.partial && share != 1) {
    reader.wrong("partial_rotary_factor", std::to_string(share), "1, as heads are turned as a whole");
    return 2;
  }
  if (spec.partial && (share > 1 || dims < 2)) {
    reader.wrong("partial_rotary_factor", weights::in_figures(share),
                 "a share of a head's dimensions, two of them at least");
    return 2;
  }
  const auto count = static_cast<uint32_t>(dims);
  if (count % 2 != 0 && !reader.is_unread("head_dim"))
    reader.wrong("head_dim", std::to_string(count), "an even number, as rope turns pairs");
  return count;
}

}  // namespace

Rope read_huggingface_rope(ConfigReader& reader, const RopeSpec& spec, const ModelInfo& model, const Scope& scope) {
  RopeGroup group(reader, group_name(reader, spec));
  const std::string& key = spec.theta.key.huggingface;
  Rope r;
  r.context = r.original_context = model.context;
  r.whole_pairs = spec.whole_pairs.huggingface;
  const bool own = group.name().ends_with("." + spec.group) && !spec.group.empty();
  if (!spec.scaled && !own) {
    r.theta = reader.positive(key, theta_default(spec, "huggingface", scope));
    r.rotated = rotated(reader, spec, model, 1);
    check(reader, {"rope", key, "", "", "", ""}, r);
    return r;
  }
  const double fallback = theta_default(spec, "huggingface", scope);
  r.theta = own ? group.positive("rope_theta", fallback) : group.positive_here_or_beside("rope_theta", fallback);
  r.rotated =
      rotated(reader, spec, model, group.positive_here_or_beside("partial_rotary_factor", spec.partial.value_or(1)));
  const std::string type = group.type();
  if (spec.needed && type.empty()) {
    reader.problem("key \"" + group.name() +
                   "\" is missing, or has no rope_type; models of this family say their rope");
  }
  check_type(reader, group.key(group.has("rope_type") ? "rope_type" : "type"), type, spec);
  if (spec.original_context) r.original_context = *spec.original_context;
  read_type(reader, group, type, r);
  group.refuse_others(type);
  check(reader,
        {group.name(), "rope_theta", group.key("factor"), group.key("short_factor") + " or " + group.key("long_factor"),
         "beta_fast", "beta_slow"},
        r);
  return r;
}

Rope read_gguf_rope(ConfigReader& reader, const RopeSpec& spec, const ModelInfo& model, const std::string& architecture,
                    const Scope& scope) {
  const std::string prefix = architecture + ".rope.", scaling = prefix + "scaling.";
  const std::string theta_key = spec.theta.key.gguf.empty() ? "" : architecture + spec.theta.key.gguf.substr(1);
  const double fallback = theta_default(spec, "gguf", scope);
  Rope r;
  r.context = r.original_context = model.context;
  r.whole_pairs = spec.whole_pairs.gguf;
  r.rotated = reader.count(prefix + "dimension_count", model.head_dim);
  r.theta = theta_key.empty() ? fallback : reader.positive(theta_key, fallback);
  // Some files say it by their tensors alone.
  const std::string unnamed = reader.weights().find(kLongRopeDivisors) == nullptr ? "none" : "longrope";
  const std::string type = spec.scaled ? reader.text(scaling + "type").value_or(unnamed) : "none";
  check_type(reader, scaling + "type", type, spec);
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
    r.short_divisors = divisors_of(reader, kShortRopeDivisors, r);
    r.long_divisors = divisors_of(reader, kLongRopeDivisors, r);
    if (r.short_divisors.empty() || r.long_divisors.empty()) {
      reader.problem(
          "rope of type \"longrope\": expected the tensors rope_factors_short.weight and "
          "rope_factors_long.weight");
    }
  } else if (type != "none") {
    reader.problem("key \"" + scaling + "type\": found \"" + type + "\", expected none, linear, yarn or longrope");
  } else if (spec.scaled && reader.has(scaling + "factor")) {
    reader.problem("key \"" + scaling + "factor\" is there without \"" + scaling +
                   "type\"; expected none, linear, "
                   "yarn or longrope there");
  }
  if ((r.rotated != model.head_dim && !spec.partial) || r.rotated > model.head_dim || r.rotated % 2 != 0) {
    reader.wrong(prefix + "dimension_count", std::to_string(r.rotated),
                 "the dimensions of a head (" + architecture + ".attention.key_length), " +
                     std::to_string(model.head_dim) + ", which are pairs");
    return r;
  }
  check(reader,
        {"rope", theta_key, scaling + "factor", "the tensors of divisors", scaling + "yarn_beta_fast",
         scaling + "yarn_beta_slow"},
        r);
  if (spec.scaled) r.divisors = divisors_of(reader, kRopeDivisors, r);
  return r;
}

}  // namespace tenon::family
