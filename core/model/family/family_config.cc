// This reads a model's numbers from GGUF's metadata or from config.json, by the keys and defaults of its family.
//
// All mistakes are collected and thrown together. Counts are checked before anything is made for each layer: an absurd
// one in a file costs no memory.
#include "family_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "config_reader.h"
#include "rope_config.h"

namespace tenon::family {
namespace {

// Keys that mean the same for every family, and have one supported value.
const std::vector<std::pair<const char*, MetadataValue>>& expected_of_all(std::string_view convention) {
  static const std::vector<std::pair<const char*, MetadataValue>> kHuggingface = {
      {"is_causal", true},
      {"pruned_heads", std::vector<std::string>()},
      {"is_encoder_decoder", false},
      {"add_cross_attention", false}};
  static const std::vector<std::pair<const char*, MetadataValue>> kGguf = {
      {"*.attention.causal", true},
      {"general.type", std::string("model")},
      {"general.quantization_version", int64_t{2}}};
  return convention == "gguf" ? kGguf : kHuggingface;
}

// GGUF says so where null in config.json stands for 0, as of a window.
const MetadataValue kZero = int64_t{0};

bool is_count(double value) {
  return value >= 0 && value <= std::numeric_limits<int32_t>::max() && value == std::floor(value);
}

class FamilyConfig {
 public:
  FamilyConfig(const Family& family, const Weights& weights)
      : family_(family), r_(weights), convention_(weights.convention()), architecture_(architecture_of(weights)) {}

  Config read() {
    for (const Number& n : family_.numbers) {
      const double value = is_given(n.name) ? given(n.name) : number(n);
      config_.numbers[n.name] = value;
      scope_.set(n.name, value);
    }
    read_info();
    check_counts();
    for (const RopeSpec& spec : family_.ropes) rope(spec);
    for (const auto& [name, value] : expected_of_all(convention_)) r_.only(spelled_key(name, architecture_), value);
    for (const ExpectedKey& e : family_.expected.in(convention_)) expect(e);
    if (!gguf()) check_class();
    layer_numbers();
    r_.finish();
    config_.info.parameters = parameter_count();
    return std::move(config_);
  }

 private:
  bool gguf() const { return convention_ == "gguf"; }
  std::string key_of(const Number& n) const {
    if (!gguf() && !n.also.empty() && r_.has(n.also)) return n.also;
    return spelled_key(n.key.in(convention_), architecture_);
  }
  std::string key_of(const char* name) const { return key_of(*family_.number(name)); }

  // A GGUF file tells these by its tensors.
  bool is_given(const std::string& name) const { return gguf() && (name == "vocab" || name == "tied"); }
  double given(const std::string& name) {
    const Weights& weights = r_.weights();
    if (name == "tied") return weights.find(tensor_name(family_, convention_, "lm_head")) == nullptr ? 1 : 0;
    const std::string embedding_name = tensor_name(family_, convention_, "embedding");
    const WeightTensor* embedding = weights.find(embedding_name);
    if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[0] < 1 ||
        embedding->shape[0] > std::numeric_limits<int32_t>::max()) {
      r_.problem("tensor \"" + embedding_name + "\" is missing or no matrix");
      return 1;
    }
    if (const std::string key = key_of("vocab"); !key.empty()) r_.only(key, embedding->shape[0]);
    return static_cast<double>(embedding->shape[0]);
  }

  double number(const Number& n) {
    const std::string key = key_of(n);
    const std::optional<Formula>& fallback = n.fallback.in(convention_);
    if (key.empty()) return scope_.value(*fallback);
    if (n.null) r_.may_be_null(key);
    if (n.null && r_.is_null(key)) return computed(n, key, *n.null);
    const MetadataValue* found_value = r_.weights().metadata(key);
    const bool zero = gguf() && found_value != nullptr && *found_value == kZero;
    if (zero && n.null && scope_.value(*n.null) == 0) return 0;
    if (n.type == Number::kBool) {
      const std::optional<bool> found = r_.boolean(key);
      if (!found && !fallback && !r_.has(key)) r_.problem("key \"" + key + "\" is missing");
      return found ? (*found ? 1 : 0) : fallback ? scope_.value(*fallback) : 0;
    }
    if (!r_.has(key) && fallback) {
      r_.refuse_null(key);
      (void)r_.refuse_object(key);
      return computed(n, key, *fallback);
    }
    if (n.type == Number::kCount) return r_.count(key);
    const double found = r_.positive(key);
    if (!(std::isfinite(static_cast<float>(found)) && static_cast<float>(found) > 0)) {
      r_.problem("key \"" + key + "\" is no positive number in f32");
    }
    return static_cast<double>(static_cast<float>(found));
  }
  // Returns the number that stands for a key that is not there.
  double computed(const Number& n, const std::string& key, const Formula& formula) {
    const double value = scope_.value(formula);
    if (n.type != Number::kCount || is_count(value)) return value;
    r_.problem("key \"" + key + "\" is missing, and " + formula.text + " is " + weights::in_figures(value) +
               "; expected the key, or a whole number");
    return 1;
  }

  uint32_t whole(const char* name) const {
    const auto found = config_.numbers.find(name);
    return found == config_.numbers.end() ? 0 : static_cast<uint32_t>(found->second);
  }
  void read_info() {
    ModelInfo& m = config_.info;
    m.architecture = architecture_;
    m.name = r_.text(gguf() ? "general.name" : "_name_or_path").value_or("");
    m.layers = whole("layers");
    m.heads = whole("heads");
    m.kv_heads = whole("kv_heads");
    m.head_dim = whole("head_dim");
    m.width = whole("width");
    m.ffn = whole("ffn");
    m.vocab = whole("vocab");
    m.context = whole("context");
    m.tied = whole("tied") != 0;
  }
  void check_counts() {
    ModelInfo& m = config_.info;
    // Frequencies are computed for every pair before any tensor's shape is compared.
    constexpr uint32_t kMost = 65536;
    if (m.head_dim > kMost) {
      r_.wrong(key_of("head_dim"), std::to_string(m.head_dim), "at most " + std::to_string(kMost));
      m.head_dim = kMost;
    }
    if (m.kv_heads == 0 || m.heads % m.kv_heads != 0) {
      r_.problem("keys \"" + key_of("heads") + "\" and \"" + key_of("kv_heads") + "\": " + std::to_string(m.heads) +
                 " query heads are no multiple of " + std::to_string(m.kv_heads) + " KV heads");
    }
    // Each layer has tensors of its own, so an absurd count is known before anything is made for each of them.
    if (const size_t tensors = r_.weights().tensors().size(); m.layers > tensors) {
      r_.wrong(key_of("layers"), std::to_string(m.layers),
               "no more layers than the " + std::to_string(tensors) + " tensors that there are");
    }
  }

  void rope(const RopeSpec& spec) {
    config_.ropes.push_back(gguf() ? read_gguf_rope(r_, spec, config_.info, architecture_, scope_)
                                   : read_huggingface_rope(r_, spec, config_.info, scope_));
  }

  void expect(const ExpectedKey& e) {
    const std::string key = spelled_key(e.key, architecture_);
    if (e.nullable) r_.may_be_null(key);
    if (e.formula) return r_.only(key, static_cast<int64_t>(std::llround(scope_.value(*e.formula))));
    if (e.values.size() == 1) return r_.only(key, e.values.front());
    r_.refuse_null(key);
    const MetadataValue* found = r_.weights().metadata(key);
    if (found == nullptr || std::find(e.values.begin(), e.values.end(), *found) != e.values.end()) return;
    std::string supported;
    for (const MetadataValue& v : e.values) supported += (supported.empty() ? "" : ", ") + weights::describe(v);
    r_.problem("key \"" + key + "\": found " + weights::describe(*found) +
               ", which is not supported; supported: " + (supported.empty() ? "null" : supported));
  }
  void check_class() {
    r_.may_be_null("architectures");
    const MetadataValue* classes = r_.weights().metadata("architectures");
    if (classes == nullptr || *classes == MetadataValue(std::vector{family_.model_class})) return;
    r_.wrong("architectures", weights::describe(*classes),
             "\"" + family_.model_class + "\" alone, as model_type is \"" + architecture_ + "\"");
  }

  void layer_numbers() {
    std::vector<const MetadataValue*> lists;
    for (const LayerNumber& n : family_.layer_numbers) lists.push_back(list(n));
    if (!r_.fine()) return;
    for (uint32_t layer = 0; layer < config_.info.layers; ++layer) {
      Values& values = config_.layers.emplace_back();
      scope_.set("layer", layer);
      for (size_t i = 0; i < lists.size(); ++i) {
        const LayerNumber& n = family_.layer_numbers[i];
        values[n.name] = lists[i] == nullptr ? scope_.value(n.fallback) : element(n, *lists[i], layer);
        scope_.set(n.name, values[n.name]);
        if (!r_.fine()) return;
      }
    }
  }
  // Returns the list of the description that has the values of all layers; nullptr if there is none.
  const MetadataValue* list(const LayerNumber& n) {
    const std::string key = spelled_key(n.key.in(convention_), architecture_);
    if (key.empty()) return nullptr;
    r_.may_be_null(key);
    const MetadataValue* found = r_.weights().metadata(key);
    if (found == nullptr) return nullptr;
    const auto* texts = std::get_if<std::vector<std::string>>(found);
    const auto* numbers = std::get_if<std::vector<int64_t>>(found);
    const size_t size = texts != nullptr ? texts->size() : numbers != nullptr ? numbers->size() : 0;
    if (size == config_.info.layers && (texts == nullptr) == n.choices.empty()) return found;
    r_.wrong(key, weights::describe(*found),
             "a list of " + std::to_string(config_.info.layers) + (n.choices.empty() ? " whole numbers" : " texts"));
    return nullptr;
  }
  double element(const LayerNumber& n, const MetadataValue& list, uint32_t layer) {
    if (n.choices.empty()) return static_cast<double>(std::get<std::vector<int64_t>>(list)[layer]);
    const std::string& text = std::get<std::vector<std::string>>(list)[layer];
    std::string known;
    for (const LayerNumber::Choice& c : n.choices) {
      const bool possible = !c.when || scope_.holds(*c.when);
      if (possible && c.text == text) return scope_.value(c.value);
      known += (known.empty() ? "\"" : " or \"") + c.text + "\"" + (c.when ? " (if " + c.when->text + ")" : "");
    }
    r_.wrong(spelled_key(n.key.in(convention_), architecture_), weights::in_quotes(text), known);
    return 0;
  }

  // A matrix may be stored in any number of tensors, so those are not counted.
  uint64_t parameter_count() const {
    const ModelInfo& m = config_.info;
    const uint64_t q = uint64_t{m.heads} * m.head_dim, kv = uint64_t{m.kv_heads} * m.head_dim;
    uint64_t of_layer = 0;
    for (const Block& b : family_.blocks) {
      if (b.experts) {
        of_layer += m.width * scope_.count(b.experts->count) * (1 + 3 * uint64_t{scope_.count(b.experts->inner)});
      } else {
        of_layer += m.width * (b.attention ? 2 * q + 2 * kv : (b.gated ? 3 : 2) * uint64_t{m.ffn});
      }
    }
    uint64_t n = m.layers * of_layer + uint64_t{m.vocab} * m.width * (m.tied ? 1 : 2);
    for (const WeightTensor& t : r_.weights().tensors()) {
      if (t.shape.size() != 1 || !(t.name.ends_with("norm.weight") || t.name.ends_with(".bias"))) continue;
      n += static_cast<uint64_t>(t.shape.front());
    }
    return n;
  }

  const Family& family_;
  ConfigReader r_;
  std::string_view convention_;
  std::string architecture_;
  Scope scope_;
  Config config_;
};

// The first "*" becomes a number.
std::string with_number(const std::string& name, const std::string& number) {
  const size_t star = name.find('*');
  return star == std::string::npos ? name : name.substr(0, star) + number + name.substr(star + 1);
}

// Returns "3" for "layers.3.attention.q", and "" for what is in no layer.
std::string layer_of(const std::string& path) {
  constexpr std::string_view kBegin = "layers.";
  if (!path.starts_with(kBegin)) return "";
  return path.substr(kBegin.size(), path.find('.', kBegin.size()) - kBegin.size());
}

// Returns "5" for "experts.5.gate", and "" for what belongs to no expert, or to all.
std::string expert_of(const std::string& rest) {
  if (!rest.starts_with(kExperts)) return "";
  const size_t begin = sizeof(kExperts) - 1;
  const std::string number = rest.substr(begin, rest.find('.', begin) - begin);
  return number.find_first_not_of("0123456789") == std::string::npos ? number : "";
}

// Returns "attention.q" for "layers.3.attention.q".
std::string in_layer(const std::string& path, const std::string& layer) {
  return layer.empty() ? path : path.substr(sizeof("layers.") + layer.size());
}

}  // namespace

void Config::define(Scope& scope) const {
  for (const auto& [name, value] : numbers) scope.set(name, value);
}

void Config::define(Scope& scope, uint32_t layer) const {
  scope.set("layer", layer);
  for (const auto& [name, value] : layers.at(layer)) scope.set(name, value);
}

Config read_config(const Family& family, const Weights& weights) {
  return FamilyConfig(family, weights).read();
}

std::string spelled_key(const std::string& key, const std::string& architecture) {
  return key.starts_with("*.") ? architecture + key.substr(1) : key;
}

const TensorNames& names_of(const Family& family, const std::string& path) {
  const std::string layer = layer_of(path);
  std::string rest = in_layer(path, layer);
  if (const std::string expert = expert_of(rest); !expert.empty()) {
    rest.replace(sizeof(kExperts) - 1, expert.size(), "*");
  }
  const std::string name = (layer.empty() ? "" : kLayers) + rest;
  if (const TensorNames* found = family.tensor(name)) return *found;
  throw Error(ErrorCode::kInternal, "no tensor is called \"" + path + "\"");
}

std::string tensor_name(const Family& family, std::string_view convention, const std::string& path,
                        const char* suffix) {
  const TensorNames& names = names_of(family, path);
  const std::string& file = names.file.in(convention);
  const bool bare = names.bare.in(convention);
  if (file.empty() || (bare && suffix != std::string_view("weight"))) return "";
  const std::string layer = layer_of(path), expert = expert_of(in_layer(path, layer));
  const std::string name = with_number(file, layer);
  return (expert.empty() ? name : with_number(name, expert)) + (bare ? "" : std::string(".") + suffix);
}

std::vector<std::string> layer_tensors(const Family& family, uint32_t layer) {
  std::vector<std::string> paths;
  for (const TensorNames& t : family.tensors) {
    if (t.name.starts_with(kLayers)) paths.push_back(with_number(t.name, std::to_string(layer)));
  }
  return paths;
}

std::vector<std::string> tensor_paths(const Family& family, uint32_t layers) {
  std::vector<std::string> paths;
  bool after = false;  // true: it comes after the layers, which stand together
  for (const TensorNames& t : family.tensors) {
    if (!t.name.starts_with(kLayers)) {
      paths.push_back(t.name);
    } else if (!std::exchange(after, true)) {
      for (uint32_t layer = 0; layer < layers; ++layer) {
        for (std::string& path : layer_tensors(family, layer)) paths.push_back(std::move(path));
      }
    }
  }
  return paths;
}

}  // namespace tenon::family
