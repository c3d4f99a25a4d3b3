// This describes a Llama of one convention in the words of the other: names of tensors, metadata, the order of the rows
// of Q and K, and what is said of the rope. Weights are not touched; only rows of Q and K change places.
#include "llama_translation.h"

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cstring>
#include <set>

#include "../weights/json_text.h"
#include "../weights/metadata_ledger.h"
#include "../weights/translated_weights.h"
#include "harmless_names.h"
#include "llama_config.h"
#include "rope_config.h"
#include "tenon/core/error.h"

namespace tenon::llama {
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

// The tensors of a model under the names of another convention.
class Renaming {
 public:
  Renaming(const Weights& model, const Config& config, std::string_view convention)
      : model_(model), config_(config), convention_(convention) {}

  void add_parts() {
    for (const std::string& part : part_names(config_.info.layers)) {
      for (const char* suffix : {"weight", "bias"}) add_part(part, suffix);
    }
  }
  // The model's tensors of rope, which the description says otherwise in the other convention.
  void leave_out_rope() {
    for (const WeightTensor* t : config_.rope.tensors) used_.insert(t->name);
  }
  // Adds the numbers that frequencies are divided by, as f32.
  void add_divisors(const char* name, const std::vector<double>& divisors) {
    const std::vector<float> values(divisors.begin(), divisors.end());
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
      // Frequencies are computed, and a tied head is the embedding.
      if (used_.contains(t.name) || t.name.ends_with("rotary_emb.inv_freq") || t.name == "lm_head.weight") continue;
      refuse(model_, "tensor \"" + t.name + "\" has no counterpart in a model of architecture llama in the form of " +
                         std::string(convention_ == "gguf" ? "GGUF" : "Hugging Face"));
    }
    contents_.convention = convention_;
    contents_.metadata = std::move(metadata);
    return std::make_unique<TranslatedWeights>(model_, std::move(contents_), std::move(origins_));
  }

 private:
  void add_part(const std::string& part, const char* suffix) {
    const ModelInfo& m = config_.info;
    const WeightTensor* t = model_.find(tensor_name(model_.convention(), part, suffix));
    if (t == nullptr || (part == "lm_head" && m.tied)) return;
    // A bias that the description does not have is no part of the model.
    if (suffix == std::string_view("bias") && !has_bias(part)) return;
    TensorOrigin origin{t, {}, {}};
    const uint32_t heads = part.ends_with("attention.q") ? m.heads : part.ends_with("attention.k") ? m.kv_heads : 0;
    if (heads != 0) {
      if (t->shape.empty() || t->shape.front() != int64_t{heads} * m.head_dim) {
        refuse(model_, "tensor \"" + t->name + "\" must have " + std::to_string(heads) + " heads of " +
                           std::to_string(m.head_dim) + " rows");
      }
      origin.row = row_order(heads, m.head_dim, convention_ == "gguf");
    }
    add(*t, tensor_name(convention_, part, suffix), std::move(origin));
  }
  bool has_bias(const std::string& part) const {
    if (part.find(".attention.") != std::string::npos) return config_.attention_bias.value_or(true);
    return part.find(".mlp.") != std::string::npos && config_.mlp_bias.value_or(true);
  }
  void add(WeightTensor t, std::string name, TensorOrigin origin) {
    if (origin.source != nullptr) used_.insert(origin.source->name);
    t.name = std::move(name);
    contents_.tensors.push_back(std::move(t));
    origins_.push_back(std::move(origin));
  }

  const Weights& model_;
  const Config& config_;
  std::string_view convention_;
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

// GGUF's types of scaled rope are linear, yarn and longrope; other frequencies that do not depend on the length are a
// tensor.
void describe_gguf_rope(const Weights& model, const Rope& rope, uint32_t context, MetadataMap& all, Renaming& tensors) {
  const std::string scaling = "llama.rope.scaling.";
  switch (rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      all[scaling + "type"] = std::string("linear");
      all[scaling + "factor"] = rope.factor;
      break;
    case RopeScaling::kYarn:
      if (!rope.whole_pairs) refuse(model, "rope of type \"yarn\" with truncate = false cannot be said in GGUF");
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
      tensors.add_divisors(kShortRopeDivisors, rope.short_divisors);
      tensors.add_divisors(kLongRopeDivisors, rope.long_divisors);
      break;
    case RopeScaling::kLlama3:
      tensors.add_divisors(kRopeDivisors, divisors_at(rope, context));
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
                               {"beta_slow", rope.slow_turns}};
  }
  return nullptr;
}

Translation to_gguf(const Weights& model, const Config& c) {
  const ModelInfo& m = c.info;
  for (const uint32_t window : c.windows) {
    if (window == 0 || window >= m.context) continue;
    refuse(model, "sliding_window " + std::to_string(window) + " cannot be said in GGUF's architecture llama");
  }
  const auto number = [](uint32_t n) { return MetadataValue(int64_t{n}); };
  std::string name = m.name;
  if (name.empty() && !model.files().empty()) name = model.files().front().parent_path().filename().string();
  MetadataMap all = {{"general.architecture", std::string("llama")},
                     {"general.name", name},
                     {"llama.block_count", number(m.layers)},
                     {"llama.context_length", number(m.context)},
                     {"llama.embedding_length", number(m.width)},
                     {"llama.feed_forward_length", number(m.ffn)},
                     {"llama.vocab_size", number(m.vocab)},
                     {"llama.attention.head_count", number(m.heads)},
                     {"llama.attention.head_count_kv", number(m.kv_heads)},
                     {"llama.attention.key_length", number(m.head_dim)},
                     {"llama.attention.value_length", number(m.head_dim)},
                     {"llama.attention.layer_norm_rms_epsilon", double{c.norm_epsilon}},
                     {"llama.rope.dimension_count", number(c.rope.rotated)},
                     {"llama.rope.freq_base", c.rope.theta}};
  Renaming tensors(model, c, "gguf");
  tensors.add_parts();
  describe_gguf_rope(model, c.rope, m.context, all, tensors);
  return {tensors.finish(std::move(all)), {}};
}

// True: these products have biases, all of them in all layers; config.json can say no more than all or none.
bool biased(const Weights& model, uint32_t layers, std::initializer_list<const char*> parts) {
  std::string with, without;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (const char* part : parts) {
      const std::string name = tensor_name(model.convention(), "layers." + std::to_string(layer) + "." + part, "bias");
      (model.find(name) != nullptr ? with : without) = name;
    }
  }
  if (!with.empty() && !without.empty()) {
    refuse(model, "tensor \"" + with + "\" is there and \"" + without +
                      "\" is not; in the form of Hugging Face all of these have biases or none");
  }
  return !with.empty();
}

Translation to_huggingface(const Weights& model, const Config& c) {
  const ModelInfo& m = c.info;
  boost::json::object config{{"architectures", {"LlamaForCausalLM"}},
                             {"model_type", "llama"},
                             {"hidden_act", "silu"},
                             {"num_hidden_layers", m.layers},
                             {"max_position_embeddings", m.context},
                             {"hidden_size", m.width},
                             {"intermediate_size", m.ffn},
                             {"vocab_size", m.vocab},
                             {"num_attention_heads", m.heads},
                             {"num_key_value_heads", m.kv_heads},
                             {"head_dim", m.head_dim},
                             {"rms_norm_eps", c.norm_epsilon},
                             {"rope_theta", c.rope.theta},
                             {"tie_word_embeddings", m.tied}};
  if (!m.name.empty()) config["_name_or_path"] = m.name;
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (const auto id = metadata_int(model, std::string("tokenizer.ggml.") + key)) config[key] = *id;
  }
  if (boost::json::value rope = huggingface_rope(c.rope, m.context); !rope.is_null()) config["rope_scaling"] = rope;
  config["attention_bias"] = biased(model, m.layers, {"attention.q", "attention.k", "attention.v", "attention.o"});
  config["mlp_bias"] = biased(model, m.layers, {"mlp.gate", "mlp.up", "mlp.down"});
  Renaming tensors(model, c, "huggingface");
  tensors.add_parts();
  tensors.leave_out_rope();
  std::string text = boost::json::serialize(config);
  MetadataMap flat;
  weights::flatten_json(weights::parse_json(text, "config.json").as_object(), "", flat);
  return {tensors.finish(std::move(flat)), std::move(text)};
}

}  // namespace

Translation translate(const Weights& model, std::span<const std::string> ignored) {
  const weights::MetadataLedger ledger(model);
  const Config config = read_config(ledger);
  std::vector<Diagnostic> wrong = ledger.unknown_keys(kHarmlessKeys, ignored);
  for (Diagnostic& d : ledger.needlessly_ignored(kHarmlessKeys, ignored)) wrong.push_back(std::move(d));
  if (!wrong.empty()) throw Error(ErrorCode::kModel, std::move(wrong));
  return model.convention() == "gguf" ? to_huggingface(model, config) : to_gguf(model, config);
}

}  // namespace tenon::llama
