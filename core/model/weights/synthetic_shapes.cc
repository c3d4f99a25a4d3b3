// This is a table of published shapes; from it follow their config.json and the names of their tensors, both as the
// publishers' own models on Hugging Face have them. Tensors lie one after the other without gaps. Only the shapes are
// real: the weights of such a model are made from a seed (synthetic_reader.cc).
#include "synthetic_shapes.h"

#include "layout.h"

namespace tenon::weights {
namespace {

constexpr SyntheticSeries kLlama1{.norm_epsilon = 1e-6};
constexpr SyntheticSeries kLlama2{.context = 4096};
// This is the Python variant, whose vocabulary is Llama's.
constexpr SyntheticSeries kCodeLlama{.theta = 1e6, .context = 16384};
// The sliding window of 4096 positions is left out: it makes no difference within a context of 4096.
constexpr SyntheticSeries kMistral{.type = "mistral", .architecture = "MistralForCausalLM", .context = 4096};
constexpr SyntheticSeries kMixtral{
    .type = "mixtral", .architecture = "MixtralForCausalLM", .theta = 1e6, .context = 32768, .experts = 8};
constexpr SyntheticSeries kStories15m{.context = 256, .tied = true};
constexpr SyntheticSeries kStories110m{.context = 1024, .tied = true};
constexpr SyntheticSeries kLlama3{.theta = 5e5, .context = 8192, .bos = 128000, .eos = 128001};
constexpr SyntheticSeries kLlama31{.theta = 5e5, .context = 131072, .rope_factor = 8, .bos = 128000, .eos = 128001};
constexpr SyntheticSeries kLlama32{
    .theta = 5e5, .context = 131072, .tied = true, .rope_factor = 32, .bos = 128000, .eos = 128001};
constexpr SyntheticSeries kSmolLm2{.theta = 1e5, .context = 8192, .tied = true, .bos = 0, .eos = 0};

constexpr SyntheticShape kShapes[] = {
    // The columns are: name, layers, heads, kv heads, width, ffn, vocabulary.
    {"llama-7b", 32, 32, 32, 4096, 11008, 32000, kLlama1},
    {"llama-13b", 40, 40, 40, 5120, 13824, 32000, kLlama1},
    {"llama-30b", 60, 52, 52, 6656, 17920, 32000, kLlama1},
    {"llama-2-7b", 32, 32, 32, 4096, 11008, 32000, kLlama2},
    {"llama-2-13b", 40, 40, 40, 5120, 13824, 32000, kLlama2},
    {"llama-2-70b", 80, 64, 8, 8192, 28672, 32000, kLlama2},
    {"codellama-7b", 32, 32, 32, 4096, 11008, 32000, kCodeLlama},
    {"codellama-34b", 48, 64, 8, 8192, 22016, 32000, kCodeLlama},
    {"mistral-7b", 32, 32, 8, 4096, 14336, 32000, kMistral},
    {"mixtral-8x7b", 32, 32, 8, 4096, 14336, 32000, kMixtral},
    {"stories15m", 6, 6, 6, 288, 768, 32000, kStories15m},
    {"stories110m", 12, 12, 12, 768, 2048, 32000, kStories110m},
    {"llama-3-8b", 32, 32, 8, 4096, 14336, 128256, kLlama3},
    {"llama-3-70b", 80, 64, 8, 8192, 28672, 128256, kLlama3},
    {"llama-3.1-8b", 32, 32, 8, 4096, 14336, 128256, kLlama31},
    {"llama-3.1-70b", 80, 64, 8, 8192, 28672, 128256, kLlama31},
    {"llama-3.1-405b", 126, 128, 8, 16384, 53248, 128256, kLlama31},
    {"llama-3.2-1b", 16, 32, 8, 2048, 8192, 128256, kLlama32},
    {"llama-3.2-3b", 28, 24, 8, 3072, 8192, 128256, kLlama32},
    {"smollm2-135m", 30, 9, 3, 576, 1536, 49152, kSmolLm2},
};

// Lists tensors that follow one another.
class TensorList {
 public:
  explicit TensorList(tenon_format format) : format_(format) {}

  void add(std::string name, std::vector<int64_t> shape) {
    const uint64_t bytes = stored_bytes(format_, shape).value();
    tensors_.push_back({std::move(name), format_, std::move(shape), bytes, 0, end_});
    end_ += bytes;
  }

  std::vector<WeightTensor> take() { return std::move(tensors_); }

 private:
  tenon_format format_;
  uint64_t end_ = 0;
  std::vector<WeightTensor> tensors_;
};

void add_feed_forward(const SyntheticShape& shape, const std::string& layer, TensorList& list) {
  if (shape.series.experts == 0) {
    list.add(layer + "mlp.gate_proj.weight", {shape.ffn, shape.width});
    list.add(layer + "mlp.up_proj.weight", {shape.ffn, shape.width});
    list.add(layer + "mlp.down_proj.weight", {shape.width, shape.ffn});
    return;
  }
  list.add(layer + "block_sparse_moe.gate.weight", {shape.series.experts, shape.width});
  for (int64_t i = 0; i < shape.series.experts; ++i) {
    const std::string expert = layer + "block_sparse_moe.experts." + std::to_string(i);
    list.add(expert + ".w1.weight", {shape.ffn, shape.width});
    list.add(expert + ".w2.weight", {shape.width, shape.ffn});
    list.add(expert + ".w3.weight", {shape.ffn, shape.width});
  }
}

std::string torch_name(tenon_format format) {
  return format == TENON_BF16 ? "bfloat16" : format == TENON_F16 ? "float16" : "float32";
}

}  // namespace

std::span<const SyntheticShape> synthetic_shapes() {
  return kShapes;
}

MetadataMap synthetic_config(const SyntheticShape& shape, tenon_format format) {
  const SyntheticSeries& series = shape.series;
  MetadataMap config = {
      {"architectures", std::vector<std::string>{std::string(series.architecture)}},
      {"model_type", std::string(series.type)},
      {"hidden_act", std::string("silu")},
      {"hidden_size", shape.width},
      {"intermediate_size", shape.ffn},
      {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads},
      {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.width / shape.heads},
      {"vocab_size", shape.vocabulary},
      {"max_position_embeddings", series.context},
      {"rms_norm_eps", series.norm_epsilon},
      {"rope_theta", series.theta},
      {"tie_word_embeddings", series.tied},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"bos_token_id", series.bos},
      {"eos_token_id", series.eos},
      {"torch_dtype", torch_name(format)},
  };
  if (series.rope_factor > 0) {
    config["rope_scaling.rope_type"] = std::string("llama3");
    config["rope_scaling.factor"] = series.rope_factor;
    config["rope_scaling.low_freq_factor"] = 1.0;
    config["rope_scaling.high_freq_factor"] = 4.0;
    config["rope_scaling.original_max_position_embeddings"] = int64_t{8192};
  }
  if (series.type == "mistral") config[kNullKeys] = std::vector<std::string>{"sliding_window"};
  if (series.experts > 0) {
    config["num_local_experts"] = series.experts;
    config["num_experts_per_tok"] = int64_t{2};
  }
  return config;
}

std::vector<WeightTensor> synthetic_tensors(const SyntheticShape& shape, tenon_format format) {
  const int64_t kv_width = shape.width / shape.heads * shape.kv_heads;
  TensorList list(format);
  list.add("model.embed_tokens.weight", {shape.vocabulary, shape.width});
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    list.add(layer + "input_layernorm.weight", {shape.width});
    list.add(layer + "self_attn.q_proj.weight", {shape.width, shape.width});
    list.add(layer + "self_attn.k_proj.weight", {kv_width, shape.width});
    list.add(layer + "self_attn.v_proj.weight", {kv_width, shape.width});
    list.add(layer + "self_attn.o_proj.weight", {shape.width, shape.width});
    list.add(layer + "post_attention_layernorm.weight", {shape.width});
    add_feed_forward(shape, layer, list);
  }
  list.add("model.norm.weight", {shape.width});
  if (!shape.series.tied) list.add("lm_head.weight", {shape.vocabulary, shape.width});
  return list.take();
}

}  // namespace tenon::weights
