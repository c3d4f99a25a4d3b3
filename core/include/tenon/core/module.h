// Models as modules. A model states once what it needs (Declarations), and is then run in recording mode, once per
// batch shape (StepBuilder). It never sees a component: sites, caches and attention are numbers that the pipeline
// resolved.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/abi/program.h"
#include "tenon/core/weights.h"

namespace tenon {

// What a model is, as far as others need to know. Dimensions in elements, context in tokens.
struct ModelInfo {
  std::string architecture;  // as the weights name it
  std::string name;          // for people
  uint32_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  uint32_t width = 0, ffn = 0, vocab = 0, context = 0;
  bool tied = false;  // the head is the embedding
  uint64_t parameters = 0;
};

using SiteId = uint32_t;    // a group of matrices
using VectorId = uint32_t;  // a norm's weight, a bias, a table
using LayerId = uint32_t;   // an attention layer, counted from 0

struct Matrix {
  std::string path;                      // "layers.3.attention.q"
  const WeightTensor* source = nullptr;  // (rows, columns)
  int64_t rows = 0;
};

// Small ops before or behind a product: claimed by the scheme or recorded as ops of their own, in order.
struct Norm {  // RMS norm of x
  VectorId weight = 0;
  float epsilon = 0;
};

// A linear map y = epilogue(norm(x) W^T): matrices that share x, side by side in y.
struct LinearDecl {
  std::string path;  // "layers.3.attention.qkv"
  std::string role;  // "qkv", "o", "gate_up", "down", "head", "embedding"
  int32_t layer = -1;
  int64_t columns = 0;  // of every matrix
  std::vector<Matrix> mats = {};
  bool product = true;  // y = x W^T is wanted
  bool lookup = false;  // rows of matrix 0 are wanted: an embedding
  std::optional<Norm> norm = {};
  std::optional<VectorId> bias = {};
  bool silu_mul = false;  // of two equal matrices: silu(first) * second
  bool residual = false;  // plus what record() names
};

// Self-attention of a layer: a qkv site, what happens to heads, the cache, the softmax.
struct AttentionDecl {
  std::string path;  // "layers.3.attention"
  int32_t layer = -1;
  SiteId qkv = 0;  // its y is Q, K, V heads in order
  uint32_t q_heads = 0, kv_heads = 0, head_dim = 0;
  uint32_t window = 0;
  float scale = 1, softcap = 0;
  VectorId rope = 0;                // table (positions, rotated / 2, 2) of (cos, sin)
  uint32_t rotated = 0;             // dimensions of a head
  bool interleaved = false;         // pairs (2i, 2i + 1), else (i, i + rotated / 2)
  std::optional<Norm> q_norm = {};  // with k_norm: per head
  std::optional<Norm> k_norm = {};
};

// Taken by a model's constructor. Throws Error(kModel) for a tensor of the wrong shape, naming it, its shape and the
// right one.
class Declarations {
 public:
  virtual ~Declarations() = default;
  virtual SiteId linear(LinearDecl decl) = 0;
  // Vectors side by side, as f32.
  virtual VectorId vector(std::string path, std::vector<const WeightTensor*> parts) = 0;
  // A constant that fill() computes at load: f32 (rows, columns).
  virtual VectorId table(std::string path, int64_t rows, int64_t columns,
                         std::function<void(std::span<float>)> fill) = 0;
  virtual LayerId attention(AttentionDecl decl) = 0;
  // Positions that a sequence may have: the cache's capacity.
  virtual uint32_t capacity() const = 0;
};

// Taken by a model's record(). Tensors are f32 (rows, columns).
class StepBuilder {
 public:
  virtual ~StepBuilder() = default;
  virtual tenon_tid embed(SiteId site) = 0;  // the step's tokens
  // residual: the addend of a site that was declared with one.
  virtual tenon_tid linear(SiteId site, tenon_tid x, tenon_tid residual = 0) = 0;
  // qkv projection, heads, cache append and softmax: x (rows, width) -> (rows, q_heads * head_dim).
  virtual tenon_tid attention(LayerId layer, tenon_tid x) = 0;
  // The rows whose logits are wanted. What is recorded behind it works on those.
  virtual tenon_tid out_rows(tenon_tid x) = 0;
};

// One node of the model's tree.
class Module {
 public:
  explicit Module(std::string path) : path_(std::move(path)) {}
  virtual ~Module() = default;
  const std::string& path() const { return path_; }
  // Records the module's ops; x and the result are f32 (rows, columns).
  virtual tenon_tid forward(StepBuilder& builder, tenon_tid x) const = 0;

 private:
  std::string path_;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  // Records a whole step; the result is the logits, f32 (out_rows, vocab).
  virtual tenon_tid record(StepBuilder& builder) const = 0;
};

// An architecture as the registry lists it.
// A model in the other convention of names, order of rows and description: GGUF's for a Hugging Face model, and the
// other way round. Borrows the weights that it was made of.
struct Translation {
  std::unique_ptr<Weights> weights;  // without the tokenizer
  std::string config;                // config.json's text for Hugging Face's
};

struct ModelKind {
  std::string_view name;  // the value in TOML
  std::string_view doc;
  bool (*claims)(const Weights& weights);  // by the architecture that the weights name
  ModelInfo (*describe)(const Weights& weights);
  std::unique_ptr<Model> (*build)(const Weights& weights, Declarations& declare);
  // Throws Error(kModel) that names what has no counterpart.
  Translation (*translate)(const Weights& weights);
};

std::span<const ModelKind> builtin_models();

// The architecture that the weights name: "llama" from GGUF's general.architecture or config.json's model_type; "" if
// they name none.
std::string architecture_of(const Weights& weights);

// The kind that claims these weights. Throws Error(kModel) that names the architecture and lists what is there.
const ModelKind& model_kind_for(const Weights& weights);

}  // namespace tenon
