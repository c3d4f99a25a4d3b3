// Llama and what shares its shape (Mistral, SmolLM2): pre-norm decoder layers of grouped-query attention with rotary
// positions and a gated MLP. Touvron et al. 2023, arXiv:2302.13971; Su et al. 2021, arXiv:2104.09864.
#include <cmath>

#include "llama_config.h"
#include "llama_translation.h"
#include "tenon/core/error.h"
#include "tenon/core/module.h"

namespace tenon {
namespace llama {
namespace {

std::string layer_path(uint32_t layer, const char* rest) {
  return "layers." + std::to_string(layer) + "." + rest;
}

// The source tensors of a model by the house's names.
class Parts {
 public:
  Parts(const Weights& weights, Declarations& declare) : weights_(weights), declare_(declare) {}

  const WeightTensor* find(const std::string& part, const char* suffix = "weight") const {
    return weights_.find(tensor_name(weights_.convention(), part, suffix));
  }
  const WeightTensor* need(const std::string& part, const char* suffix = "weight") const {
    if (const WeightTensor* t = find(part, suffix)) return t;
    throw Error(ErrorCode::kModel, {weights_.files().empty() ? "" : weights_.files().front().string(), 0, 0},
                "tensor \"" + tensor_name(weights_.convention(), part, suffix) + "\" is missing");
  }
  Matrix matrix(const std::string& part, int64_t rows) const { return {part, need(part), rows}; }
  VectorId vector(const std::string& part) const { return declare_.vector(part, {need(part)}); }
  // The biases of matrices that stand side by side: all of them or none.
  std::optional<VectorId> biases(const std::string& path, const std::vector<Matrix>& mats) const {
    std::vector<const WeightTensor*> found;
    for (const Matrix& m : mats) {
      if (find(m.path, "bias") != nullptr || !found.empty()) found.push_back(need(m.path, "bias"));
    }
    if (found.empty()) return {};
    if (found.size() != mats.size()) need(mats.front().path, "bias");
    return declare_.vector(path + ".bias", found);
  }

 private:
  const Weights& weights_;
  Declarations& declare_;
};

// Angular frequencies by pair, after scaling.
std::vector<double> frequencies(const Config& c, const Weights& weights) {
  std::vector<double> f = scaled_frequencies(c);
  const WeightTensor* divisors = weights.find(kRopeDivisors);
  if (divisors != nullptr) {
    std::vector<float> d(f.size());
    if (divisors->format != TENON_F32 || divisors->bytes != d.size() * sizeof(float)) {
      throw Error(
          ErrorCode::kModel, {weights.files().front().string(), 0, 0},
          "tensor \"" + std::string(kRopeDivisors) + "\" must hold " + std::to_string(d.size()) + " f32 values");
    }
    weights.read(*divisors, 0, std::as_writable_bytes(std::span(d)));
    for (size_t i = 0; i < f.size(); ++i) f[i] /= static_cast<double>(d[i]);
  }
  return f;
}

VectorId declare_rope(const Config& c, const Weights& weights, Declarations& declare) {
  return declare.table("rope", declare.capacity(), c.rotated, [f = frequencies(c, weights)](std::span<float> table) {
    // Angles in single precision, as the models were trained with.
    for (size_t row = 0; row * 2 * f.size() < table.size(); ++row) {
      for (size_t i = 0; i < f.size(); ++i) {
        const float angle = static_cast<float>(row) * static_cast<float>(f[i]);
        table[(row * f.size() + i) * 2] = std::cos(angle);
        table[(row * f.size() + i) * 2 + 1] = std::sin(angle);
      }
    }
  });
}

class SelfAttention : public Module {
 public:
  SelfAttention(uint32_t layer, const Config& c, VectorId rope, const Parts& parts, Declarations& declare)
      : Module(layer_path(layer, "attention")) {
    const ModelInfo& m = c.info;
    const int64_t q_rows = int64_t{m.heads} * m.head_dim, kv_rows = int64_t{m.kv_heads} * m.head_dim;
    LinearDecl qkv{.path = path() + ".qkv", .role = "qkv", .layer = static_cast<int32_t>(layer), .columns = m.width};
    qkv.mats = {parts.matrix(path() + ".q", q_rows), parts.matrix(path() + ".k", kv_rows),
                parts.matrix(path() + ".v", kv_rows)};
    qkv.norm = Norm{parts.vector(layer_path(layer, "attention_norm")), c.norm_epsilon};
    qkv.bias = parts.biases(qkv.path, qkv.mats);

    AttentionDecl attention{.path = path(), .layer = static_cast<int32_t>(layer), .qkv = declare.linear(qkv)};
    attention.q_heads = m.heads, attention.kv_heads = m.kv_heads, attention.head_dim = m.head_dim;
    attention.window = c.window;
    attention.scale = 1.0f / std::sqrt(static_cast<float>(m.head_dim));
    attention.rope = rope, attention.rotated = c.rotated, attention.interleaved = c.interleaved;
    attention_ = declare.attention(attention);

    LinearDecl o{.path = path() + ".o", .role = "o", .layer = static_cast<int32_t>(layer), .columns = q_rows};
    o.mats = {parts.matrix(path() + ".o", m.width)};
    o.bias = parts.biases(o.path, o.mats);
    o.residual = true;
    o_ = declare.linear(o);
  }
  tenon_tid forward(StepBuilder& b, tenon_tid x) const override { return b.linear(o_, b.attention(attention_, x), x); }

 private:
  LayerId attention_;
  SiteId o_;
};

class Mlp : public Module {
 public:
  Mlp(uint32_t layer, const Config& c, const Parts& parts, Declarations& declare) : Module(layer_path(layer, "mlp")) {
    LinearDecl in{
        .path = path() + ".gate_up", .role = "gate_up", .layer = static_cast<int32_t>(layer), .columns = c.info.width};
    in.mats = {parts.matrix(path() + ".gate", c.info.ffn), parts.matrix(path() + ".up", c.info.ffn)};
    in.norm = Norm{parts.vector(layer_path(layer, "mlp_norm")), c.norm_epsilon};
    in.bias = parts.biases(in.path, in.mats);
    in.silu_mul = true;
    in_ = declare.linear(in);
    LinearDecl down{
        .path = path() + ".down", .role = "down", .layer = static_cast<int32_t>(layer), .columns = c.info.ffn};
    down.mats = {parts.matrix(path() + ".down", c.info.width)};
    down.bias = parts.biases(down.path, down.mats);
    down.residual = true;
    down_ = declare.linear(down);
  }
  tenon_tid forward(StepBuilder& b, tenon_tid x) const override { return b.linear(down_, b.linear(in_, x), x); }

 private:
  SiteId in_, down_;
};

class Llama : public Model {
 public:
  Llama(const Weights& weights, Declarations& declare) : config_(read_config(weights)) {
    const ModelInfo& m = config_.info;
    const Parts parts(weights, declare);
    LinearDecl embedding{.path = "embedding", .role = "embedding", .columns = m.width};
    embedding.mats = {parts.matrix("embedding", m.vocab)};
    embedding.lookup = true;
    const VectorId rope = declare_rope(config_, weights, declare);
    LinearDecl head{.path = "lm_head", .role = "head", .columns = m.width};
    head.norm = Norm{parts.vector("norm"), config_.norm_epsilon};
    if (m.tied) {
      // One store for both uses, under the head's name: it decides what most of the bytes are read for.
      embedding.path = head.path, embedding.role = head.role, embedding.norm = head.norm;
      embedding_ = head_ = declare.linear(embedding);
    } else {
      embedding.product = false;
      embedding_ = declare.linear(embedding);
      head.mats = {parts.matrix("lm_head", m.vocab)};
      head_ = declare.linear(head);
    }
    for (uint32_t layer = 0; layer < m.layers; ++layer) {
      layers_.push_back(std::make_unique<SelfAttention>(layer, config_, rope, parts, declare));
      layers_.push_back(std::make_unique<Mlp>(layer, config_, parts, declare));
    }
  }

  const ModelInfo& info() const override { return config_.info; }

  tenon_tid record(StepBuilder& b) const override {
    tenon_tid x = b.embed(embedding_);
    for (const auto& module : layers_) x = module->forward(b, x);
    return b.linear(head_, b.out_rows(x));
  }

 private:
  Config config_;
  SiteId embedding_ = 0, head_ = 0;
  std::vector<std::unique_ptr<Module>> layers_;
};

bool claims(const Weights& weights) {
  const std::string architecture = architecture_of(weights);
  return architecture == "llama" || architecture == "mistral";
}

}  // namespace
}  // namespace llama

namespace {

constexpr ModelKind kModels[] = {
    {"llama", "Llama 2 and 3, Mistral, SmolLM2 and others of their shape", &llama::claims,
     [](const Weights& weights) { return llama::read_config(weights).info; },
     [](const Weights& weights, Declarations& declare) -> std::unique_ptr<Model> {
       return std::make_unique<llama::Llama>(weights, declare);
     },
     &llama::translate},
};

}  // namespace

std::span<const ModelKind> builtin_models() {
  return kModels;
}

std::string architecture_of(const Weights& weights) {
  const char* key = weights.convention() == "gguf" ? "general.architecture" : "model_type";
  return metadata_text(weights, key).value_or("");
}

const ModelKind& model_kind_for(const Weights& weights) {
  std::string known;
  for (const ModelKind& kind : builtin_models()) {
    if (kind.claims(weights)) return kind;
    known += (known.empty() ? "" : "; ") + std::string(kind.name) + ": " + std::string(kind.doc);
  }
  const std::string found = architecture_of(weights);
  throw Error(ErrorCode::kModel, {weights.files().empty() ? "" : weights.files().front().string(), 0, 0},
              (found.empty() ? "the weights name no architecture" : "architecture \"" + found + "\" is not supported") +
                  "; supported: " + known);
}

}  // namespace tenon
