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

bool is_null(const Weights& weights, const char* key) {
  const MetadataValue* nulls = weights.metadata("null_keys");
  const auto* names = nulls == nullptr ? nullptr : std::get_if<std::vector<std::string>>(nulls);
  return names != nullptr && std::find(names->begin(), names->end(), key) != names->end();
}

float norm_epsilon(ConfigReader& r, const std::string& key, double fallback) {
  const auto epsilon = static_cast<float>(r.positive(key, fallback));
  if (!(std::isfinite(epsilon) && epsilon > 0)) r.problem("key \"" + key + "\" is no positive number in f32");
  return epsilon;
}

uint32_t head_dim(ConfigReader& r, const std::string& key, const ModelInfo& m) {
  if (!r.has(key) && m.width % m.heads != 0) {
    r.problem("a width of " + std::to_string(m.width) + " is no multiple of " + std::to_string(m.heads) +
              " heads, and key \"" + key + "\" is missing");
  }
  return r.count(key, std::max(1u, m.width / m.heads));
}

// Where a key is missing, transformers' LlamaConfig and MistralConfig say what it is.
Config from_huggingface(ConfigReader& r) {
  Config c;
  ModelInfo& m = c.info;
  const Weights& weights = r.weights();
  const bool mistral = architecture_of(weights) == "mistral";
  m.layers = r.count("num_hidden_layers");
  m.heads = r.count("num_attention_heads");
  m.kv_heads = r.count("num_key_value_heads", mistral && !is_null(weights, "num_key_value_heads") ? 8 : m.heads);
  m.width = r.count("hidden_size");
  m.ffn = r.count("intermediate_size");
  m.vocab = r.count("vocab_size");
  m.context = r.count("max_position_embeddings", mistral ? 131072 : 2048);
  m.head_dim = head_dim(r, "head_dim", m);
  m.tied = r.boolean("tie_word_embeddings").value_or(false);
  m.name = r.text("_name_or_path").value_or("");
  c.norm_epsilon = norm_epsilon(r, "rms_norm_eps", 1e-6);
  c.rope = read_huggingface_rope(r, m);
  if (mistral && !is_null(weights, "sliding_window")) c.window = r.count("sliding_window", 4096);
  c.attention_bias = r.boolean("attention_bias").value_or(false);
  c.mlp_bias = r.boolean("mlp_bias").value_or(false);
  const std::string activation = r.text("hidden_act").value_or("silu");
  if (activation != "silu") r.problem("hidden_act \"" + activation + "\" is not supported; supported: silu");
  r.only("architectures", std::vector<std::string>{mistral ? "MistralForCausalLM" : "LlamaForCausalLM"});
  for (const char* key : {"is_encoder_decoder", "add_cross_attention", "rope_interleaved"}) r.only(key, false);
  return c;
}

Config from_gguf(ConfigReader& r) {
  Config c;
  ModelInfo& m = c.info;
  const std::string architecture = architecture_of(r.weights()), prefix = architecture + ".";
  m.layers = r.count(prefix + "block_count");
  m.heads = r.count(prefix + "attention.head_count");
  m.kv_heads = r.count(prefix + "attention.head_count_kv", m.heads);
  m.width = r.count(prefix + "embedding_length");
  m.ffn = r.count(prefix + "feed_forward_length");
  m.context = r.count(prefix + "context_length");
  m.head_dim = head_dim(r, prefix + "attention.key_length", m);
  c.norm_epsilon = norm_epsilon(r, prefix + "attention.layer_norm_rms_epsilon", 1e-5);
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
  if (m.heads % m.kv_heads != 0) {
    r.problem(std::to_string(m.heads) + " query heads are no multiple of " + std::to_string(m.kv_heads) + " KV heads");
  }
  if (c.rope.rotated == 0 || c.rope.rotated % 2 != 0 || c.rope.rotated > m.head_dim) {
    r.problem("rope over " + std::to_string(c.rope.rotated) + " of " + std::to_string(m.head_dim) +
              " dimensions is not possible");
  }
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
