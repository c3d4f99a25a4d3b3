// This describes a model of one convention in the words of the other: names of tensors, numbers, the order of the rows
// of Q and K, and what is said of the rope. Among the weights, rows of Q and K change places, and norms that one
// convention stores less one have it added.
#include "family_translation.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "../weights/expert_tensors.h"
#include "../weights/json_text.h"
#include "../weights/metadata_ledger.h"
#include "../weights/translated_weights.h"
#include "family_config.h"
#include "family_model.h"
#include "rope_config.h"
#include "tenon/core/error.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::family {
namespace {

using weights::Contents;
using weights::MetadataMap;
using weights::TensorOrigin;
using weights::TranslatedWeights;

[[noreturn]] void refuse(const Weights& model, const std::string& message) {
  throw Error(ErrorCode::kModel, {model.files().empty() ? "" : model.files().front().string()}, message);
}

// Returns for each row of a matrix in the other order where it stands in this one.
std::vector<uint32_t> row_order(uint32_t heads, uint32_t head_dim, bool to_pairs) {
  std::vector<uint32_t> order(size_t{heads} * head_dim);
  const uint32_t half = head_dim / 2;
  for (uint32_t h = 0; h < heads; ++h) {
    for (uint32_t i = 0; i < half; ++i) {
      for (uint32_t j = 0; j < 2; ++j) {
        const uint32_t in_pairs = h * head_dim + 2 * i + j, in_halves = h * head_dim + j * half + i;
        order[to_pairs ? in_pairs : in_halves] = to_pairs ? in_halves : in_pairs;
      }
    }
  }
  return order;
}

// This gives the tensors of a model under the names of another convention.
class Renaming {
 public:
  Renaming(const Family& family, const Weights& model, const Config& config, std::string_view convention)
      : family_(family), model_(model), config_(config), convention_(convention) {
    config_.define(scope_);
  }

  void add_parts() {
    for (const std::string& path : tensor_paths(family_, config_.info.layers)) {
      if (path.find('*') != std::string::npos) {
        add_experts(path, "weight");
        if (has_bias(path)) add_experts(path, "bias");
        continue;
      }
      for (const char* suffix : {"weight", "bias"}) add_part(path, suffix);
    }
  }
  // Leaves out the model's tensors of rope, which the description says otherwise in the other convention.
  void leave_out_rope() {
    for (const Rope& rope : config_.ropes) {
      for (const WeightTensor* t : rope.tensors) used_.insert(t->name);
    }
  }
  void add_floats(const std::string& name, const std::vector<double>& reals) {
    const std::vector<float> values(reals.begin(), reals.end());
    TensorOrigin origin;
    origin.bytes.resize(values.size() * sizeof(float));
    std::memcpy(origin.bytes.data(), values.data(), origin.bytes.size());
    WeightTensor t;
    t.format = TENON_F32;
    t.shape = {static_cast<int64_t>(values.size())};
    t.bytes = origin.bytes.size();
    add(t, name, std::move(origin));
  }
  std::unique_ptr<Weights> finish(MetadataMap metadata) {
    for (const WeightTensor& t : model_.tensors()) {
      // A tied head is the embedding.
      const bool head = t.name == tensor_name(family_, model_.convention(), "lm_head");
      if (used_.contains(t.name) || weights::matches_any(t.name, family_.ignored_tensors) || head) continue;
      refuse(model_, "tensor \"" + t.name + "\" has no counterpart in a model of the family " + family_.name +
                         " in the form of " + std::string(convention_ == "gguf" ? "GGUF" : "Hugging Face") +
                         "; [tensors] of " + family_.file.string() + " would name it");
    }
    contents_.convention = convention_;
    contents_.metadata = std::move(metadata);
    for (size_t i = 0; i < contents_.tensors.size(); ++i) name_experts(i);
    return std::make_unique<TranslatedWeights>(model_, std::move(contents_), std::move(origins_));
  }

 private:
  // Each expert's part of a tensor of all of them has a name of its own.
  void name_experts(size_t number) {
    std::vector<WeightTensor> parts = weights::expert_tensors(contents_.tensors[number]);
    if (parts.size() != origins_[number].parts.size()) return;
    for (size_t e = 0; e < parts.size(); ++e) {
      contents_.unlisted.push_back(std::move(parts[e]));
      TensorOrigin origin;
      origin.source = origins_[number].parts.at(e);
      origins_.push_back(std::move(origin));
    }
  }
  void add_part(const std::string& path, const char* suffix) {
    const std::string from = tensor_name(family_, model_.convention(), path, suffix);
    const WeightTensor* t = from.empty() ? nullptr : model_.find(from);
    if (t == nullptr || (path == "lm_head" && config_.info.tied)) return;
    const bool bias = suffix == std::string_view("bias");
    // A bias that the description does not have is no part of the model.
    if (bias && !has_bias(path)) return;
    const std::string to = tensor_name(family_, convention_, path, suffix);
    if (to.empty()) return;
    TensorOrigin origin;
    origin.source = t;
    reorder(path, *t, origin);
    const ByConvention<bool>& less_one = names_of(family_, path).plus_one;
    if (!bias && less_one.huggingface != less_one.gguf) return add_shifted(*t, to, less_one.in(convention_) ? -1 : 1);
    add(*t, to, std::move(origin));
  }
  // Adds the matrices or biases of all experts of a layer, "layers.3.experts.*.up": GGUF has one tensor of them.
  void add_experts(const std::string& path, const char* suffix) {
    for (const std::string_view convention : {model_.convention(), convention_}) {
      if (!tensor_name(family_, convention, path).empty()) continue;
      refuse(model_, "the family " + family_.name + " does not say how " +
                         (convention == "gguf" ? "GGUF" : "a Hugging Face folder") + " has \"" + path + "\"");
    }
    const size_t star = path.find('*');
    const auto of_expert = [&](uint32_t e) { return path.substr(0, star) + std::to_string(e) + path.substr(star + 1); };
    const std::string stacked = weights::stacked_name(tensor_name(family_, model_.convention(), path, suffix));
    if (model_.find(stacked) != nullptr) used_.insert(stacked);
    const std::string to = weights::stacked_name(tensor_name(family_, convention_, path, suffix));
    std::vector<const WeightTensor*> parts;
    for (uint32_t e = 0; e < expert_count(); ++e) {
      if (to.empty()) {
        add_part(of_expert(e), suffix);
        continue;
      }
      const std::string from = tensor_name(family_, model_.convention(), of_expert(e), suffix);
      const WeightTensor* t = model_.find(from);
      if (t == nullptr) refuse(model_, "tensor \"" + from + "\" is missing");
      if (!parts.empty() && (t->format != parts.front()->format || t->shape != parts.front()->shape)) {
        refuse(model_, "tensors \"" + parts.front()->name + "\" and \"" + from + "\" are " +
                           weights::describe(*parts.front()) + " and " + weights::describe(*t) +
                           ", and those of all experts are one tensor in GGUF");
      }
      parts.push_back(t);
    }
    if (!to.empty()) add_stacked(to, std::move(parts));
  }
  void add_stacked(const std::string& name, std::vector<const WeightTensor*> parts) {
    WeightTensor t = *parts.front();
    t.name = name;
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(parts.size()));
    t.bytes *= parts.size();
    t.offset = 0;
    for (const WeightTensor* part : parts) used_.insert(part->name);
    contents_.tensors.push_back(std::move(t));
    TensorOrigin& origin = origins_.emplace_back();
    origin.parts = std::move(parts);
  }
  uint32_t expert_count() const {
    const auto block = std::find_if(family_.blocks.begin(), family_.blocks.end(),
                                    [](const Block& b) { return b.experts.has_value(); });
    return block == family_.blocks.end() ? 0 : scope_.count(block->experts->count);
  }
  // Puts rows of Q and K into another order where the conventions turn other pairs.
  void reorder(const std::string& path, const WeightTensor& t, TensorOrigin& origin) {
    const ModelInfo& m = config_.info;
    const uint32_t heads = path.ends_with("attention.q")     ? m.heads
                           : path.ends_with("attention.k")   ? m.kv_heads
                           : path.ends_with(kFusedAttention) ? m.heads + 2 * m.kv_heads
                                                             : 0;
    if (heads == 0 || family_.ropes.empty()) return;
    const ByConvention<bool>& interleaved = family_.ropes.front().interleaved;
    if (interleaved.huggingface == interleaved.gguf) return;
    if (path.ends_with(kFusedAttention)) {
      refuse(model_, "tensor \"" + t.name + "\" has the rows of Q and K in another order in the other convention");
    }
    if (t.shape.empty() || t.shape.front() != int64_t{heads} * m.head_dim) {
      refuse(model_, "tensor \"" + t.name + "\" must have " + std::to_string(heads) + " heads of " +
                         std::to_string(m.head_dim) + " rows");
    }
    origin.row = row_order(heads, m.head_dim, interleaved.in(convention_));
  }
  // Adds a vector with a number added to each element, as f32.
  void add_shifted(const WeightTensor& t, const std::string& name, float number) {
    if (t.shape.size() != 1 || !sdk::can_unpack(t.format)) refuse(model_, "tensor \"" + t.name + "\" must be a vector");
    std::vector<std::byte> raw(t.bytes);
    model_.read(t, 0, raw);
    std::vector<float> values(static_cast<size_t>(t.shape.front()));
    sdk::unpack_row(t.format, raw.data(), values.size(), values.data());
    for (float& v : values) v += number;
    used_.insert(t.name);
    add_floats(name, {values.begin(), values.end()});
  }
  bool has_bias(const std::string& path) const {
    for (const Block& b : family_.blocks) {
      const std::string use = b.attention ? ".attention." : b.experts ? ".experts." : ".mlp.";
      const size_t at = path.find(use);
      if (at == std::string::npos) continue;
      const std::string part = path.substr(at + use.size());
      const size_t dot = part.find('.');  // "5.up" is of one expert
      const auto spec = b.bias.find(dot == std::string::npos ? part : "*" + part.substr(dot));
      if (spec == b.bias.end()) return false;
      const BiasSpec& bias = spec->second.in(model_.convention());
      return bias.stored || scope_.holds(bias.formula);
    }
    return true;  // the path belongs to a norm
  }
  void add(WeightTensor t, std::string name, TensorOrigin origin) {
    if (origin.source != nullptr) used_.insert(origin.source->name);
    t.name = std::move(name);
    contents_.tensors.push_back(std::move(t));
    origins_.push_back(std::move(origin));
  }

  const Family& family_;
  const Weights& model_;
  const Config& config_;
  std::string_view convention_;
  Scope scope_;
  Contents contents_;
  std::vector<TensorOrigin> origins_;
  std::set<std::string> used_;
};

// Returns what the plain frequencies are divided by, pair by pair, for sequences of so many positions.
std::vector<double> divisors_at(const Rope& rope, uint32_t positions) {
  std::vector<double> divisors = plain_frequencies(rope);
  const std::vector<double> applied = frequencies(rope, positions);
  for (size_t i = 0; i < divisors.size(); ++i) divisors[i] /= applied[i];
  return divisors;
}

// This is a rope of a model, which describe_gguf_rope() says in the words of a GGUF architecture.
struct ScaledRope {
  const Weights& model;  // refusals name its file
  const Rope& rope;
  const RopeSpec& spec;  // the family's
  const std::string& architecture;
};

// GGUF's types of scaled rope are linear, yarn and longrope; other frequencies that do not depend on the length are a
// tensor.
void describe_gguf_rope(const ScaledRope& scaled, MetadataMap& all, Renaming& tensors) {
  const auto& [model, rope, spec, architecture] = scaled;
  const std::string scaling = architecture + ".rope.scaling.";
  switch (rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      all[scaling + "type"] = std::string("linear");
      all[scaling + "factor"] = rope.factor;
      break;
    case RopeScaling::kYarn:
      if (rope.whole_pairs != spec.whole_pairs.gguf) {
        refuse(model, std::string("rope of type \"yarn\" with truncate = ") + (rope.whole_pairs ? "true" : "false") +
                          " cannot be said in GGUF's architecture " + architecture);
      }
      all[scaling + "type"] = std::string("yarn");
      all[scaling + "factor"] = rope.factor;
      all[scaling + "original_context_length"] = static_cast<int64_t>(rope.original_context);
      all[scaling + "attn_factor"] = rope.attention_factor / yarn_attention_factor(rope.factor);
      all[scaling + "yarn_beta_fast"] = rope.fast_turns;
      all[scaling + "yarn_beta_slow"] = rope.slow_turns;
      break;
    case RopeScaling::kLongrope:
      all[scaling + "type"] = std::string("longrope");
      all[scaling + "original_context_length"] = static_cast<int64_t>(rope.original_context);
      all[scaling + "attn_factor"] = rope.attention_factor;
      tensors.add_floats(kShortRopeDivisors, rope.short_divisors);
      tensors.add_floats(kLongRopeDivisors, rope.long_divisors);
      break;
    case RopeScaling::kLlama3:
      tensors.add_floats(kRopeDivisors, divisors_at(rope, static_cast<uint32_t>(rope.context)));
      break;
    case RopeScaling::kDynamic:
      refuse(model,
             "rope of type \"dynamic\" cannot be said in GGUF, whose types are none, linear, yarn and longrope: its "
             "frequencies depend on the length of the text");
  }
}

boost::json::array numbers(const std::vector<double>& values) {
  return boost::json::array(values.begin(), values.end());
}

// Frequencies of a tensor are said as longrope, whose divisors are the same for short and for long texts then.
boost::json::value huggingface_rope(const Rope& rope, uint32_t context) {
  if (rope.scaling == RopeScaling::kLongrope || !rope.divisors.empty()) {
    const bool by_length = rope.scaling == RopeScaling::kLongrope;
    const auto original = static_cast<uint32_t>(by_length ? rope.original_context : context);
    return boost::json::object{{"rope_type", "longrope"},
                               {"original_max_position_embeddings", original},
                               {"attention_factor", rope.attention_factor},
                               {"short_factor", numbers(divisors_at(rope, 1))},
                               {"long_factor", numbers(divisors_at(rope, original + 1))}};
  }
  if (rope.scaling == RopeScaling::kLinear) {
    return boost::json::object{{"rope_type", "linear"}, {"factor", rope.factor}};
  }
  if (rope.scaling == RopeScaling::kYarn) {
    return boost::json::object{{"rope_type", "yarn"},
                               {"factor", rope.factor},
                               {"original_max_position_embeddings", static_cast<int64_t>(rope.original_context)},
                               {"attention_factor", rope.attention_factor},
                               {"beta_fast", rope.fast_turns},
                               {"beta_slow", rope.slow_turns},
                               {"truncate", rope.whole_pairs}};
  }
  return nullptr;
}

MetadataValue typed(Number::Type type, double value) {
  if (type == Number::kBool) return value != 0;
  if (type == Number::kReal) return value;
  return static_cast<int64_t>(std::llround(value));
}

// A window that the other convention has no key for is said by nothing.
void refuse_windows(const Family& family, const Weights& model, const Config& c, const std::string& architecture) {
  const Number* said = family.number("window");
  if (said != nullptr && !said->key.gguf.empty()) return;
  for (const uint32_t window : windows_of(family, c)) {
    if (window == 0 || window >= c.info.context) continue;
    refuse(model,
           "sliding_window " + std::to_string(window) + " cannot be said in GGUF's architecture " + architecture);
  }
}

// GGUF has no lists with an element for each layer, so the layers must follow from what it has.
void check_layers(const Family& family, const Weights& model, const Config& c, const Weights& made) {
  const auto wanted = layer_facts(family, c), found = layer_facts(family, read_config(family, made));
  const auto differs = std::mismatch(wanted.begin(), wanted.end(), found.begin(), found.end()).first;
  if (differs == wanted.end()) return;
  refuse(model, "window, rope or cache of layer " + std::to_string(differs - wanted.begin()) +
                    " cannot be said in GGUF's architecture " + family.gguf_architecture +
                    ", which has no list of layers");
}

Translation to_gguf(const Family& family, const Weights& model, const Config& c) {
  const std::string& architecture = family.gguf_architecture;
  refuse_windows(family, model, c, architecture);
  std::string name = c.info.name;
  if (name.empty() && !model.files().empty()) name = model.files().front().parent_path().filename().string();
  MetadataMap all = {{"general.architecture", architecture}, {"general.name", name}};
  const auto spell = [&](const std::string& key) { return spelled_key(key, architecture); };
  for (const Number& n : family.numbers) {
    if (!n.key.gguf.empty()) all[spell(n.key.gguf)] = typed(n.type, c.numbers.at(n.name));
  }
  Scope scope;
  c.define(scope);
  for (const Number& n : family.numbers) {
    // Numbers of config.json are rounded to f32.
    const auto in_float = [](double value) { return static_cast<float>(value); };
    if (!n.only_default || in_float(c.numbers.at(n.name)) == in_float(scope.value(*n.fallback.gguf))) continue;
    refuse(model, n.key.huggingface + " " + weights::in_figures(c.numbers.at(n.name)) +
                      " cannot be said in GGUF's architecture " + architecture);
  }
  for (const ExpectedKey& e : family.expected.gguf) {
    if (e.formula) all[spell(e.key)] = typed(Number::kCount, scope.value(*e.formula));
  }
  Renaming tensors(family, model, c, "gguf");
  tensors.add_parts();
  for (size_t i = 0; i < family.ropes.size(); ++i) {
    const RopeSpec& spec = family.ropes[i];
    if (!spec.theta.key.gguf.empty()) all[spell(spec.theta.key.gguf)] = c.ropes[i].theta;
    if (!spec.scaled) continue;
    all[architecture + ".rope.dimension_count"] = int64_t{c.ropes[i].rotated};
    describe_gguf_rope({model, c.ropes[i], spec, architecture}, all, tensors);
  }
  Translation made{tensors.finish(std::move(all)), {}};
  check_layers(family, model, c, *made.weights);
  return made;
}

// Says whether the products whose bias depends on a key have one, all of them in all layers; config.json can say no
// more than all or none. It says nothing if no product's bias depends on it.
std::optional<bool> biased(const Family& family, const Weights& model, uint32_t layers, const std::string& number) {
  std::string with, without;
  for (const Block& b : family.blocks) {
    for (const auto& [part, spec] : b.bias) {
      if (spec.huggingface.formula.text != number) continue;
      for (uint32_t layer = 0; layer < layers; ++layer) {
        const std::string path = "layers." + std::to_string(layer) + (b.attention ? ".attention." : ".mlp.") + part;
        const std::string name = tensor_name(family, model.convention(), path, "bias");
        (model.find(name) != nullptr ? with : without) = name;
      }
    }
  }
  if (!with.empty() && !without.empty()) {
    refuse(model, "tensor \"" + with + "\" is there and \"" + without +
                      "\" is not; in the form of Hugging Face all of these have biases or none");
  }
  if (with.empty() && without.empty()) return {};
  return !with.empty();
}

boost::json::value json_of(const MetadataValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  if (const auto* i = std::get_if<int64_t>(&value)) return *i;
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* s = std::get_if<std::string>(&value)) return boost::json::value(*s);
  return nullptr;
}

boost::json::object huggingface_config(const Family& family, const Weights& model, const Config& c) {
  boost::json::object config{{"architectures", {family.model_class}},
                             {"model_type", family.claims.huggingface.front()}};
  for (const ExpectedKey& e : family.expected.huggingface) {
    const bool text = !e.values.empty() && std::holds_alternative<std::string>(e.values.front());
    if (text) config[e.key] = json_of(e.values.front());
  }
  for (const Number& n : family.numbers) {
    if (n.key.huggingface.empty()) continue;
    const bool maybe_bias = n.type == Number::kBool && n.key.gguf.empty();
    const std::optional<bool> bias = maybe_bias ? biased(family, model, c.info.layers, n.name) : std::nullopt;
    const double value = bias ? (*bias ? 1 : 0) : c.numbers.at(n.name);
    const bool null = n.null && value == 0;  // no key can say 0 of what is counted or positive
    config[n.key.huggingface] = null ? boost::json::value() : json_of(typed(n.type, value));
  }
  if (!c.info.name.empty()) config["_name_or_path"] = c.info.name;
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (const auto id = metadata_int(model, std::string("tokenizer.ggml.") + key)) config[key] = *id;
  }
  for (size_t i = 0; i < family.ropes.size(); ++i) {
    const RopeSpec& spec = family.ropes[i];
    config[spec.theta.key.huggingface] = c.ropes[i].theta;
    if (spec.partial) config["partial_rotary_factor"] = static_cast<double>(c.ropes[i].rotated) / c.info.head_dim;
    if (!spec.scaled) continue;
    if (boost::json::value rope = huggingface_rope(c.ropes[i], c.info.context); !rope.is_null()) {
      config["rope_scaling"] = rope;
    } else if (spec.needed) {
      config["rope_scaling"] = boost::json::object{{"rope_type", "default"}};
    }
  }
  return config;
}

Translation to_huggingface(const Family& family, const Weights& model, const Config& c) {
  Renaming tensors(family, model, c, "huggingface");
  tensors.add_parts();
  tensors.leave_out_rope();
  std::string text = boost::json::serialize(huggingface_config(family, model, c));
  MetadataMap flat;
  weights::flatten_json(weights::parse_json(text, "config.json").as_object(), "", flat);
  return {tensors.finish(std::move(flat)), std::move(text)};
}

}  // namespace

Translation translate(const Family& family, const Weights& whole, std::span<const std::string> ignored) {
  std::unique_ptr<Weights> cut = cut_stacked(family, whole);
  const Weights& model = cut ? *cut : whole;
  const weights::MetadataLedger ledger(model);
  const Config config = read_config(family, ledger);
  std::vector<Diagnostic> wrong = ledger.unknown_keys(family.ignored_keys, ignored);
  for (Diagnostic& d : ledger.needlessly_ignored(family.ignored_keys, ignored)) wrong.push_back(std::move(d));
  if (!wrong.empty()) throw Error(ErrorCode::kModel, std::move(wrong));
  Translation made =
      model.convention() == "gguf" ? to_huggingface(family, model, config) : to_gguf(family, model, config);
  static_cast<TranslatedWeights&>(*made.weights).own(std::move(cut));
  return made;
}

}  // namespace tenon::family
