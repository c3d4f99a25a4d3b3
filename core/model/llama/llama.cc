// Llama and what shares its shape (Mistral, SmolLM2): pre-norm decoder layers of grouped-query attention with rotary
// positions and a gated MLP. Touvron et al. 2023, arXiv:2302.13971; Su et al. 2021, arXiv:2104.09864.
#include "llama.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "harmless_names.h"
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

// The tensors of the weights by the house's names, and what a model declares of them.
class SourceTensors {
 public:
  SourceTensors(const Weights& weights, Declarations& declare) : weights_(weights), declare_(declare) {}

  const WeightTensor* find(const std::string& path, const char* suffix = "weight") const {
    return weights_.find(tensor_name(weights_.convention(), path, suffix));
  }
  OpCall rms_norm(const std::string& path, const Config& c) const {
    return {.name = "rms_norm",
            .vectors = {{"weight", vector(path, "weight", c.info.width)}},
            .numbers = {{"eps", static_cast<double>(c.norm_epsilon)}}};
  }
  // The tensors of a layer that is not wanted.
  void leave_out(uint32_t layer) const {
    for (const std::string& part : layer_parts()) {
      for (const WeightTensor* t : everything_of(layer_path(layer, part.c_str()))) declare_.uses(*t);
    }
  }
  // A head of its own beside one that is tied must be the embedding once more.
  void check_tied_head() const {
    const WeightTensor *head = find("lm_head"), *embedding = find("embedding");
    if (head == nullptr || embedding == nullptr) return;
    declare_.uses(*head);
    if (!same_bytes(*head, *embedding)) {
      declare_.refuse("tensor \"" + head->name + "\" is not the same as \"" + embedding->name +
                      "\", but tie_word_embeddings is true; expected equal tensors, no head of its own, or "
                      "tie_word_embeddings = false");
    }
  }
  // Everything that the file has of a matrix.
  Matrix matrix(const std::string& path, int64_t rows) const {
    const std::string name = matrix_name(path);
    Matrix m{.path = path, .name = name, .tensors = everything_of(path), .rows = rows};
    std::erase_if(m.tensors, [&](const WeightTensor* t) { return t->name == name + ".bias"; });
    if (m.tensors.empty()) refuse_missing(path, "weight");
    return m;
  }
  // The product with the matrix of a path. biased: whether it has a bias; unset: it has if the file holds one.
  LinearDecl linear(const std::string& path, int32_t layer, int64_t rows, int64_t columns,
                    std::optional<bool> biased) const {
    LinearDecl decl{.matrix = matrix(path, rows), .layer = layer, .columns = columns};
    if (biased.value_or(find(path, "bias") != nullptr)) {
      decl.after.push_back({.name = "bias", .vectors = {{"bias", vector(path, "bias", rows)}}});
    }
    return decl;
  }

 private:
  std::string matrix_name(const std::string& path) const {
    const std::string name = tensor_name(weights_.convention(), path);
    return name.substr(0, name.rfind('.'));
  }
  std::vector<const WeightTensor*> everything_of(const std::string& path) const {
    return weights_.find_under(matrix_name(path));
  }
  bool same_bytes(const WeightTensor& a, const WeightTensor& b) const {
    if (a.format != b.format || a.shape != b.shape) return false;
    std::vector<std::byte> from_a(1 << 20), from_b(1 << 20);
    for (uint64_t at = 0; at < a.bytes; at += from_a.size()) {
      const uint64_t n = std::min<uint64_t>(a.bytes - at, from_a.size());
      weights_.read(a, at, std::span(from_a).first(n));
      weights_.read(b, at, std::span(from_b).first(n));
      if (!std::equal(from_a.begin(), from_a.begin() + static_cast<ptrdiff_t>(n), from_b.begin())) return false;
    }
    return true;
  }
  VectorId vector(const std::string& path, const char* suffix, int64_t length) const {
    const std::string name = suffix == std::string_view("weight") ? path : path + "." + suffix;
    const WeightTensor* tensor = find(path, suffix);
    if (tensor != nullptr) return declare_.vector(name, {tensor}, length);
    refuse_missing(path, suffix);
    return declare_.vector(name, {}, length);
  }
  void refuse_missing(const std::string& path, const char* suffix) const {
    declare_.refuse("tensor \"" + tensor_name(weights_.convention(), path, suffix) + "\" is missing");
  }

  const Weights& weights_;
  Declarations& declare_;
};

// Frequencies that depend on the length of the text are those of the longest that the cache takes, for all positions
// and from the first token on: keys that are stored already cannot be turned anew when a text grows.
void note_length(const Rope& rope, Declarations& declare) {
  const uint32_t capacity = declare.capacity();
  const std::string length = "for texts of kv_cache.capacity = " + std::to_string(capacity) + " tokens, ";
  char first_text[32];  // A file may state any number.
  std::snprintf(first_text, sizeof(first_text), "%.15g",
                rope.scaling == RopeScaling::kDynamic ? rope.context : rope.original_context);
  const std::string first = first_text;
  if (rope.scaling == RopeScaling::kDynamic) {
    declare.note("rope", "dynamic, " + length +
                             (capacity > rope.context ? "beyond the context of " + first + ": theta is larger"
                                                      : "within the context of " + first + ": not scaled"));
  } else if (rope.scaling == RopeScaling::kLongrope) {
    declare.note("rope",
                 "longrope, " + length +
                     (capacity > rope.original_context ? "beyond the first context of " + first + ": long_factor"
                                                       : "within the first context of " + first + ": short_factor"));
  }
}

VectorId declare_rope(const Rope& rope, Declarations& declare) {
  for (const WeightTensor* t : rope.tensors) declare.uses(*t);
  note_length(rope, declare);
  return declare.table("rope", declare.capacity(), rope.rotated,
                       [f = frequencies(rope, declare.capacity()),
                        scale = static_cast<float>(rope.attention_factor)](std::span<float> table) {
                         // Angles in single precision, as the models were trained with.
                         for (size_t row = 0; row * 2 * f.size() < table.size(); ++row) {
                           for (size_t i = 0; i < f.size(); ++i) {
                             const float angle = static_cast<float>(row) * static_cast<float>(f[i]);
                             table[(row * f.size() + i) * 2] = std::cos(angle) * scale;
                             table[(row * f.size() + i) * 2 + 1] = std::sin(angle) * scale;
                           }
                         }
                       });
}

class SelfAttention : public Module {
 public:
  SelfAttention(uint32_t layer, const Config& c, VectorId rope, const SourceTensors& source, Declarations& declare)
      : Module(layer_path(layer, "attention")) {
    const ModelInfo& m = c.info;
    const auto number = static_cast<int32_t>(layer);
    const Chain before = {source.rms_norm(layer_path(layer, "attention_norm"), c)};
    const auto heads = [&](const char* name, uint32_t count) {
      LinearDecl decl = source.linear(path() + name, number, int64_t{count} * m.head_dim, m.width, c.attention_bias);
      decl.before = before;
      return declare.linear(std::move(decl));
    };
    AttentionDecl attention{.path = path(), .layer = number};
    attention.q = heads(".q", m.heads);
    attention.k = heads(".k", m.kv_heads);
    attention.v = heads(".v", m.kv_heads);
    attention.q_heads = m.heads;
    attention.kv_heads = m.kv_heads;
    attention.k_dim = attention.v_dim = m.head_dim;
    attention.heads = {{.name = "rope",
                        .vectors = {{"table", rope}},
                        .numbers = {{"rotated", c.rope.rotated}, {"interleaved", c.rope.interleaved ? 1 : 0}}}};
    attention.window = c.windows.at(layer);
    attention.scale = 1.0f / std::sqrt(static_cast<float>(m.head_dim));
    attention_ = declare.attention(std::move(attention));

    LinearDecl o = source.linear(path() + ".o", number, m.width, int64_t{m.heads} * m.head_dim, c.attention_bias);
    o.after.push_back({.name = "add"});
    o_ = declare.linear(std::move(o));
  }
  tenon_tid forward(StepBuilder& b, tenon_tid x) const override {
    return b.linear(o_, b.attention(attention_, x), {x});
  }

 private:
  LayerId attention_;
  LinearId o_;
};

class Mlp : public Module {
 public:
  Mlp(uint32_t layer, const Config& c, const SourceTensors& source, Declarations& declare)
      : Module(layer_path(layer, "mlp")) {
    const auto number = static_cast<int32_t>(layer);
    const Chain before = {source.rms_norm(layer_path(layer, "mlp_norm"), c)};
    const auto half = [&](const char* name) {
      LinearDecl decl = source.linear(path() + name, number, c.info.ffn, c.info.width, c.mlp_bias);
      decl.before = before;
      return declare.linear(std::move(decl));
    };
    const LinearId gate = half(".gate"), up = half(".up");
    gated_ = declare.joined({.linears = {gate, up}, .after = {{.name = "silu_mul"}}});
    LinearDecl down = source.linear(path() + ".down", number, c.info.width, c.info.ffn, c.mlp_bias);
    down.after.push_back({.name = "add"});
    down_ = declare.linear(std::move(down));
  }
  tenon_tid forward(StepBuilder& b, tenon_tid x) const override { return b.linear(down_, b.joined(gated_, x), {x}); }

 private:
  JoinedId gated_;
  LinearId down_;
};

class Llama : public Model {
 public:
  Llama(const Weights& weights, Declarations& declare) : config_(read_config(weights)) {
    const uint32_t all = config_.info.layers;
    config_.info.layers = declare.layer_count(all);
    const ModelInfo& m = config_.info;
    const SourceTensors source(weights, declare);
    LinearDecl embedding{.matrix = source.matrix("embedding", m.vocab), .columns = m.width, .lookup = true};
    const VectorId rope = declare_rope(config_.rope, declare);
    const Chain before_head = {source.rms_norm("norm", config_)};
    for (uint32_t layer = m.layers; layer < all; ++layer) source.leave_out(layer);
    if (m.tied) {
      source.check_tied_head();
      // One store for both uses, under the head's name: it decides what most of the bytes are read for.
      embedding.matrix.path = "lm_head";
      embedding.before = before_head;
      embedding_ = head_ = declare.linear(std::move(embedding));
    } else {
      embedding.product = false;
      embedding_ = declare.linear(std::move(embedding));
      head_ = declare.linear({.matrix = source.matrix("lm_head", m.vocab), .columns = m.width, .before = before_head});
    }
    for (uint32_t layer = 0; layer < m.layers; ++layer) {
      layers_.push_back(std::make_unique<SelfAttention>(layer, config_, rope, source, declare));
      layers_.push_back(std::make_unique<Mlp>(layer, config_, source, declare));
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
  LinearId embedding_ = 0, head_ = 0;
  std::vector<std::unique_ptr<Module>> layers_;
};

bool claims(const Weights& weights) {
  const std::string architecture = architecture_of(weights);
  return architecture == "llama" || architecture == "mistral";
}

}  // namespace

const ModelKind& kind() {
  static constexpr ModelKind kKind = {"llama",
                                      "Llama 2 and 3, Mistral, SmolLM2 and others of their shape",
                                      &claims,
                                      [](const Weights& weights) { return read_config(weights).info; },
                                      [](const Weights& weights, Declarations& declare) -> std::unique_ptr<Model> {
                                        return std::make_unique<Llama>(weights, declare);
                                      },
                                      &translate,
                                      kHarmlessKeys,
                                      kHarmlessTensors};
  return kKind;
}

}  // namespace llama
}  // namespace tenon
