// This reads a Llama's hyper-parameters from GGUF's metadata or from config.json, and names its tensors in both
// conventions. What a missing key means is what transformers' LlamaConfig and MistralConfig say.
//
// All mistakes are collected and thrown together. Counts are checked before anything is made for each layer: an absurd
// one in a file costs no memory.
#include "llama_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "config_reader.h"
#include "rope_config.h"

namespace tenon::llama {
namespace {

// Without a fallback the key must be there.
float norm_epsilon(ConfigReader& r, const std::string& key, std::optional<double> fallback) {
  const auto epsilon = static_cast<float>(r.positive(key, fallback));
  if (!(std::isfinite(epsilon) && epsilon > 0)) r.problem("key \"" + key + "\" is no positive number in f32");
  return epsilon;
}

// The names of the counts in a convention, for messages.
struct CountKeys {
  std::string layers, heads, kv_heads, width, head_dim;
};

uint32_t head_dim(ConfigReader& r, const CountKeys& keys, const ModelInfo& m) {
  if (!r.has(keys.head_dim) && m.width % m.heads != 0) {
    r.problem("key \"" + keys.width + "\": a width of " + std::to_string(m.width) + " is no multiple of the " +
              std::to_string(m.heads) + " heads of \"" + keys.heads + "\", and key \"" + keys.head_dim +
              "\" is missing");
  }
  const uint32_t found = r.count(keys.head_dim, std::max(1u, m.width / m.heads));
  // Frequencies are computed for every pair before any tensor's shape is compared.
  constexpr uint32_t kMost = 65536;
  if (found <= kMost) return found;
  r.wrong(keys.head_dim, std::to_string(found), "at most " + std::to_string(kMost));
  return kMost;
}

void check_counts(ConfigReader& r, const CountKeys& keys, const ModelInfo& m) {
  if (m.heads % m.kv_heads != 0) {
    r.problem("keys \"" + keys.heads + "\" and \"" + keys.kv_heads + "\": " + std::to_string(m.heads) +
              " query heads are no multiple of " + std::to_string(m.kv_heads) + " KV heads");
  }
  // Each layer has tensors of its own, so an absurd count is known before anything is made for each of them.
  if (const size_t tensors = r.weights().tensors().size(); m.layers > tensors) {
    r.wrong(keys.layers, std::to_string(m.layers),
            "no more layers than the " + std::to_string(tensors) + " tensors that there are");
  }
}

// Reads how many positions a row of each layer sees. The published default of Mistral is 4096 in every layer; layer_types
// may take the window from some of them.
std::vector<uint32_t> read_windows(ConfigReader& r, const ModelInfo& m, bool mistral) {
  uint32_t window = 0;
  if (mistral) {
    r.may_be_null("sliding_window");
    if (!r.is_null("sliding_window")) window = r.count("sliding_window", 4096);
  }
  const MetadataValue* found = r.weights().metadata("layer_types");
  if (found == nullptr) return r.fine() ? std::vector(m.layers, window) : std::vector<uint32_t>();
  const auto* types = std::get_if<std::vector<std::string>>(found);
  if (types == nullptr || types->size() != m.layers) {
    r.wrong("layer_types", weights::describe(*found), "a list of " + std::to_string(m.layers) + " texts");
    return {};
  }
  std::vector<uint32_t> windows;
  for (const std::string& type : *types) {
    const bool sliding = type == "sliding_attention" && window != 0;
    if (!sliding && type != "full_attention" && type != "attention") {
      r.wrong("layer_types", "\"" + type + "\"",
              mistral ? "\"full_attention\" or, with a sliding_window, \"sliding_attention\"" : "\"full_attention\"");
      break;
    }
    windows.push_back(sliding ? window : 0);
  }
  return windows;
}

// If a key is missing, transformers' LlamaConfig and MistralConfig say what it is.
Config from_huggingface(ConfigReader& r) {
  Config c;
  ModelInfo& m = c.info;
  const Weights& weights = r.weights();
  const bool mistral = architecture_of(weights) == "mistral";
  const CountKeys keys = {"num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim"};
  for (const std::string& key : {keys.kv_heads, keys.head_dim}) r.may_be_null(key);
  m.layers = r.count("num_hidden_layers");
  m.heads = r.count("num_attention_heads");
  m.kv_heads = r.count("num_key_value_heads", mistral && !r.is_null(keys.kv_heads) ? 8 : m.heads);
  m.width = r.count("hidden_size");
  m.ffn = r.count("intermediate_size");
  m.vocab = r.count("vocab_size");
  m.context = r.count("max_position_embeddings", mistral ? 131072 : 2048);
  m.head_dim = head_dim(r, keys, m);
  m.tied = r.boolean("tie_word_embeddings").value_or(false);
  m.name = r.text("_name_or_path").value_or("");
  c.norm_epsilon = norm_epsilon(r, "rms_norm_eps", 1e-6);
  c.rope = read_huggingface_rope(r, m);
  check_counts(r, keys, m);
  c.windows = read_windows(r, m, mistral);
  if (mistral) {
    // MistralConfig has no such keys, and its model never has biases.
    for (const char* key : {"attention_bias", "mlp_bias"}) r.only(key, false);
  }
  c.attention_bias = r.boolean("attention_bias").value_or(false);
  c.mlp_bias = r.boolean("mlp_bias").value_or(false);
  const std::string activation = r.text("hidden_act").value_or("silu");
  if (activation != "silu" && activation != "swish") {
    r.problem("hidden_act \"" + activation + "\" is not supported; supported: silu");
  }
  r.may_be_null("architectures");
  const std::string causal = mistral ? "MistralForCausalLM" : "LlamaForCausalLM";
  const MetadataValue* classes = weights.metadata("architectures");
  if (classes != nullptr && *classes != MetadataValue(std::vector{causal})) {
    r.wrong("architectures", weights::describe(*classes),
            "\"" + causal + "\" alone, as model_type is \"" + architecture_of(weights) + "\"");
  }
  r.only("is_causal", true);
  r.only("pruned_heads", std::vector<std::string>());
  for (const char* key : {"is_encoder_decoder", "add_cross_attention", "rope_interleaved"}) r.only(key, false);
  return c;
}

Config from_gguf(ConfigReader& r) {
  Config c;
  ModelInfo& m = c.info;
  const std::string architecture = architecture_of(r.weights()), prefix = architecture + ".";
  const CountKeys keys = {prefix + "block_count", prefix + "attention.head_count", prefix + "attention.head_count_kv",
                          prefix + "embedding_length", prefix + "attention.key_length"};
  m.layers = r.count(prefix + "block_count");
  m.heads = r.count(prefix + "attention.head_count");
  m.kv_heads = r.count(prefix + "attention.head_count_kv", m.heads);
  m.width = r.count(prefix + "embedding_length");
  m.ffn = r.count(prefix + "feed_forward_length");
  m.context = r.count(prefix + "context_length");
  m.head_dim = head_dim(r, keys, m);
  check_counts(r, keys, m);
  if (r.fine()) c.windows.assign(m.layers, 0);
  c.norm_epsilon = norm_epsilon(r, prefix + "attention.layer_norm_rms_epsilon", {});
  c.rope = read_gguf_rope(r, m, architecture);
  const WeightTensor* embedding = r.weights().find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[0] < 1 ||
      embedding->shape[0] > std::numeric_limits<int32_t>::max()) {
    r.problem("tensor \"token_embd.weight\" is missing or no matrix");
  } else {
    m.vocab = static_cast<uint32_t>(embedding->shape[0]);
    r.only(prefix + "vocab_size", int64_t{m.vocab});
  }
  m.tied = r.weights().find("output.weight") == nullptr;
  m.name = r.text("general.name").value_or("");
  r.only(prefix + "expert_count", int64_t{0});
  r.only(prefix + "expert_used_count", int64_t{0});
  r.only(prefix + "attention.value_length", int64_t{m.head_dim});
  r.only(prefix + "attention.causal", true);
  r.only(prefix + "use_parallel_residual", false);
  r.only("general.type", std::string("model"));
  r.only("general.quantization_version", int64_t{2});
  return c;
}

struct Names {
  const char *part, *gguf, *huggingface;
};
constexpr std::array<Names, 9> kLayerNames = {{
    {"attention.q", "attn_q", "self_attn.q_proj"},
    {"attention.k", "attn_k", "self_attn.k_proj"},
    {"attention.v", "attn_v", "self_attn.v_proj"},
    {"attention.o", "attn_output", "self_attn.o_proj"},
    {"attention_norm", "attn_norm", "input_layernorm"},
    {"mlp.gate", "ffn_gate", "mlp.gate_proj"},
    {"mlp.up", "ffn_up", "mlp.up_proj"},
    {"mlp.down", "ffn_down", "mlp.down_proj"},
    {"mlp_norm", "ffn_norm", "post_attention_layernorm"},
}};
constexpr std::array<Names, 3> kModelNames = {{
    {"embedding", "token_embd", "model.embed_tokens"},
    {"norm", "output_norm", "model.norm"},
    {"lm_head", "output", "lm_head"},
}};

// A matrix may be stored in any number of tensors, so those are not counted.
uint64_t parameter_count(const Weights& weights, const ModelInfo& m) {
  const uint64_t q = uint64_t{m.heads} * m.head_dim, kv = uint64_t{m.kv_heads} * m.head_dim;
  const uint64_t of_layer = m.width * (2 * q + 2 * kv + 3 * uint64_t{m.ffn});
  uint64_t n = m.layers * of_layer + uint64_t{m.vocab} * m.width * (m.tied ? 1 : 2);
  for (const WeightTensor& t : weights.tensors()) {
    if (t.shape.size() != 1 || !(t.name.ends_with("norm.weight") || t.name.ends_with(".bias"))) continue;
    n += static_cast<uint64_t>(t.shape.front());
  }
  return n;
}

}  // namespace

Config read_config(const Weights& weights) {
  ConfigReader r(weights);
  Config c = weights.convention() == "gguf" ? from_gguf(r) : from_huggingface(r);
  ModelInfo& m = c.info;
  m.architecture = architecture_of(weights);
  r.finish();
  m.parameters = parameter_count(weights, m);
  return c;
}

std::string tensor_name(std::string_view convention, const std::string& part, const char* suffix) {
  const bool gguf = convention == "gguf";
  const auto spell = [&](const Names& n) { return gguf ? n.gguf : n.huggingface; };
  for (const Names& n : kModelNames) {
    if (part == n.part) return std::string(spell(n)) + "." + suffix;
  }
  const size_t dot = part.find('.', 7);  // "layers.<n>.<rest>"
  for (const Names& n : kLayerNames) {
    if (part.substr(dot + 1) != n.part) continue;
    return (gguf ? "blk." : "model.layers.") + part.substr(7, dot - 7) + "." + spell(n) + "." + suffix;
  }
  throw Error(ErrorCode::kInternal, "no tensor is called \"" + part + "\"");
}

std::vector<std::string> layer_parts() {
  std::vector<std::string> parts;
  for (const Names& n : kLayerNames) parts.emplace_back(n.part);
  return parts;
}

std::vector<std::string> part_names(uint32_t layers) {
  std::vector<std::string> parts = {"embedding"};
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (const std::string& part : layer_parts()) parts.push_back("layers." + std::to_string(layer) + "." + part);
  }
  parts.insert(parts.end(), {"norm", "lm_head"});
  return parts;
}

}  // namespace tenon::llama
