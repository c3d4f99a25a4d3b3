#include "llama_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "../weights/layout.h"
#include "tenon/core/error.h"

namespace tenon::llama {
namespace {

// Collects what is wrong, so that all of it is said at once.
class Reader {
 public:
  Reader(const Weights& weights, std::string prefix) : weights_(weights), prefix_(std::move(prefix)) {}

  uint32_t count(const std::string& key, std::optional<int64_t> fallback = {}) {
    const std::optional<int64_t> value = metadata_int(weights_, prefix_ + key);
    const int64_t n = value.value_or(fallback.value_or(-1));
    if (!value && !fallback) {
      problem("key \"" + prefix_ + key + "\" is missing");
    } else if (n <= 0 || n > std::numeric_limits<int32_t>::max()) {
      problem("key \"" + prefix_ + key + "\": found " + std::to_string(n) + ", expected a positive count");
    } else {
      return static_cast<uint32_t>(n);
    }
    return 0;
  }
  double real(const std::string& key, std::optional<double> fallback = {}) {
    const std::optional<double> value = metadata_real(weights_, prefix_ + key);
    if (!value && !fallback) problem("key \"" + prefix_ + key + "\" is missing");
    const double v = value.value_or(fallback.value_or(1));
    if (!(v > 0)) problem("key \"" + prefix_ + key + "\": found " + std::to_string(v) + ", expected a positive number");
    return v;
  }
  // A key, with its prefix, that may be left out, and of which one value is supported.
  void only(const std::string& key, const MetadataValue& expected) {
    const MetadataValue* found = weights_.metadata(key);
    if (found == nullptr || *found == expected) return;
    problem("key \"" + key + "\": found " + weights::describe(*found) + ", expected " + weights::describe(expected));
  }
  void problem(const std::string& message) {
    Diagnostic& d = problems_.emplace_back();
    if (!weights_.files().empty()) d.where.file = weights_.files().front().string();
    d.message = message;
  }
  void finish() {
    if (!problems_.empty()) throw Error(ErrorCode::kModel, std::move(problems_));
  }

 private:
  const Weights& weights_;
  std::string prefix_;
  std::vector<Diagnostic> problems_;
};

void read_scaling(const Weights& weights, Reader& reader, const std::string& group, Config& c) {
  std::string type = metadata_text(weights, group + "rope_type").value_or("");
  if (type.empty()) type = metadata_text(weights, group + "type").value_or("");
  if (type.empty() || type == "default" || type == "none") return;
  if (type == "linear") {
    c.scaling = RopeScaling::kLinear;
    c.factor = reader.real(group + "factor");
  } else if (type == "llama3") {
    c.scaling = RopeScaling::kLlama3;
    c.factor = reader.real(group + "factor");
    c.low_frequency_factor = reader.real(group + "low_freq_factor", 1);
    c.high_frequency_factor = reader.real(group + "high_freq_factor", 4);
    c.original_context = reader.real(group + "original_max_position_embeddings", 8192);
  } else {
    reader.problem("rope scaling \"" + type + "\" is not supported; supported: linear, llama3");
  }
}

Config from_huggingface(const Weights& weights) {
  Config c;
  Reader r(weights, "");
  ModelInfo& m = c.info;
  m.layers = r.count("num_hidden_layers");
  m.heads = r.count("num_attention_heads");
  m.kv_heads = r.count("num_key_value_heads", m.heads);
  m.width = r.count("hidden_size");
  m.ffn = r.count("intermediate_size");
  m.vocab = r.count("vocab_size");
  m.context = r.count("max_position_embeddings", 2048);
  m.head_dim = r.count("head_dim", m.heads == 0 ? 1 : m.width / m.heads);
  m.tied = metadata_bool(weights, "tie_word_embeddings").value_or(false);
  m.name = metadata_text(weights, "_name_or_path").value_or("");
  c.norm_epsilon = static_cast<float>(r.real("rms_norm_eps", 1e-6));
  // Transformers 5 gathers all of it in rope_parameters; what is published before keeps theta beside rope_scaling.
  const bool gathered = metadata_real(weights, "rope_parameters.rope_theta").has_value();
  c.rope_theta = r.real(gathered ? "rope_parameters.rope_theta" : "rope_theta", 10000);
  read_scaling(weights, r, gathered ? "rope_parameters." : "rope_scaling.", c);
  const double partial =
      metadata_real(weights, gathered ? "rope_parameters.partial_rotary_factor" : "partial_rotary_factor").value_or(1);
  c.rotated = static_cast<uint32_t>(partial * m.head_dim);
  if (architecture_of(weights) == "mistral")
    c.window = static_cast<uint32_t>(metadata_int(weights, "sliding_window").value_or(0));
  c.attention_bias = metadata_bool(weights, "attention_bias").value_or(false);
  c.mlp_bias = metadata_bool(weights, "mlp_bias").value_or(false);
  const std::string activation = metadata_text(weights, "hidden_act").value_or("silu");
  if (activation != "silu") r.problem("hidden_act \"" + activation + "\" is not supported; supported: silu");
  const bool mistral = architecture_of(weights) == "mistral";
  r.only("architectures", std::vector<std::string>{mistral ? "MistralForCausalLM" : "LlamaForCausalLM"});
  for (const char* key : {"is_encoder_decoder", "add_cross_attention", "rope_interleaved"}) r.only(key, false);
  r.finish();
  return c;
}

Config from_gguf(const Weights& weights) {
  Config c;
  const std::string architecture = architecture_of(weights);
  Reader r(weights, architecture + ".");
  ModelInfo& m = c.info;
  m.layers = r.count("block_count");
  m.heads = r.count("attention.head_count");
  m.kv_heads = r.count("attention.head_count_kv", m.heads);
  m.width = r.count("embedding_length");
  m.ffn = r.count("feed_forward_length");
  m.context = r.count("context_length");
  m.head_dim = r.count("attention.key_length", m.heads == 0 ? 1 : m.width / m.heads);
  c.rotated = r.count("rope.dimension_count", m.head_dim);
  c.norm_epsilon = static_cast<float>(r.real("attention.layer_norm_rms_epsilon", 1e-5));
  c.rope_theta = r.real("rope.freq_base", 10000);
  c.interleaved = true;
  if (metadata_text(weights, architecture + ".rope.scaling.type").value_or("none") == "linear") {
    c.scaling = RopeScaling::kLinear;
    c.factor = r.real("rope.scaling.factor");
  }
  // The llama3 rule is stored as the tensor rope_freqs: one divisor a frequency.
  const WeightTensor* embedding = weights.find("token_embd.weight");
  m.vocab = embedding != nullptr && embedding->shape.size() == 2 ? static_cast<uint32_t>(embedding->shape[0]) : 0;
  if (m.vocab == 0) r.problem("tensor \"token_embd.weight\" is missing or no matrix");
  m.tied = weights.find("output.weight") == nullptr;
  m.name = metadata_text(weights, "general.name").value_or("");
  r.only(architecture + ".expert_count", int64_t{0});
  r.only(architecture + ".expert_used_count", int64_t{0});
  r.only(architecture + ".vocab_size", int64_t{m.vocab});
  r.only(architecture + ".attention.value_length", int64_t{m.head_dim});
  r.only(architecture + ".attention.causal", true);
  r.only(architecture + ".use_parallel_residual", false);
  r.only("general.type", std::string("model"));
  r.only("general.quantization_version", int64_t{2});
  r.finish();
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

}  // namespace

namespace {

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
  Config c = weights.convention() == "gguf" ? from_gguf(weights) : from_huggingface(weights);
  ModelInfo& m = c.info;
  m.architecture = architecture_of(weights);
  const std::string file = weights.files().empty() ? "" : weights.files().front().string();
  const auto refuse = [&](const std::string& message) { throw Error(ErrorCode::kModel, {file, 0, 0}, message); };
  if (m.heads % m.kv_heads != 0) {
    refuse(std::to_string(m.heads) + " query heads are no multiple of " + std::to_string(m.kv_heads) + " KV heads");
  }
  if (c.rotated == 0 || c.rotated % 2 != 0 || c.rotated > m.head_dim) {
    refuse("rope over " + std::to_string(c.rotated) + " of " + std::to_string(m.head_dim) +
           " dimensions is not possible");
  }
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

std::vector<double> plain_frequencies(const Config& c) {
  std::vector<double> f(c.rotated / 2);
  for (size_t i = 0; i < f.size(); ++i) {
    f[i] = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.rotated));
  }
  return f;
}

std::vector<double> scaled_frequencies(const Config& c) {
  std::vector<double> frequencies = plain_frequencies(c);
  for (double& f : frequencies) {
    if (c.scaling == RopeScaling::kLinear) f /= c.factor;
    if (c.scaling != RopeScaling::kLlama3) continue;
    const double wavelength = 2 * std::numbers::pi / f;
    const double low = c.original_context / c.low_frequency_factor;
    const double high = c.original_context / c.high_frequency_factor;
    if (wavelength > low) {
      f /= c.factor;
    } else if (wavelength > high) {
      const double smooth = (c.original_context / wavelength - c.low_frequency_factor) /
                            (c.high_frequency_factor - c.low_frequency_factor);
      f = (1 - smooth) * f / c.factor + smooth * f;
    }
  }
  return frequencies;
}

}  // namespace tenon::llama
