// Models are made of modules. A model states once what it needs (Declarations), and is then recorded, once for each
// shape of a batch (StepBuilder). It never sees a component: matrices, caches and attention are numbers, which the
// pipeline resolves. docs/glossary.md has the words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/abi/program.h"
#include "tenon/core/weights.h"

namespace tenon {

// This says what a model is, as far as others need to know. Dimensions are in elements, the context is in tokens.
struct ModelInfo {
  std::string architecture;  // the name that the weights give it
  std::string name;          // a name for people
  uint32_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  uint32_t width = 0, ffn = 0, vocab = 0, context = 0;
  bool tied = false;  // the head is the embedding
  uint64_t parameters = 0;
};

using VectorId = uint32_t;  // a norm's weight, a bias, a table
using LinearId = uint32_t;  // a product
using JoinedId = uint32_t;  // products whose columns lie side by side
using LayerId = uint32_t;   // an attention layer, counted from 0
using RowOpsId = uint32_t;  // ops over rows that stand beside no product

// This is one small op of a chain: a component of kind `op` by its name, with its arguments by the names that it
// publishes. Rows (a residual) are named when the model is recorded; the counts and dimensions of heads follow from the
// attention.
struct OpCall {
  std::string name;
  std::vector<std::pair<std::string, VectorId>> vectors = {};
  std::vector<std::pair<std::string, double>> numbers = {};
};
// The ops of a chain are applied in order. Those that a neighbour claims run inside it, the others as ops of their own.
using Chain = std::vector<OpCall>;

// A weight matrix is all that the file has under its name, but for a bias. Its scheme knows what the tensors mean.
struct Matrix {
  std::string path;                          // "layers.3.attention.q"
  std::string name;                          // the file's name for it: "model.layers.3.self_attn.q_proj"
  std::vector<const WeightTensor*> tensors;  // their names begin with `name` and a dot; they are sorted by name
  int64_t rows = 0;
};

// A linear map is y = after(before(x) W^T). Products that take the same x and stand side by side are declared apart;
// the pipeline makes one product of them if their scheme is the same. A routed product has a matrix for each expert,
// all with as many rows and stored alike: then `matrix` has the path that they share and their rows, and no tensors.
// Each row of x is multiplied by the matrix of its expert.
struct LinearDecl {
  Matrix matrix;
  int32_t layer = -1;   // -1: it belongs to no layer
  int64_t columns = 0;  // the matrix and x have this many
  bool product = true;  // y = x W^T is wanted
  bool lookup = false;  // rows of the matrix are wanted: an embedding
  Chain before = {}, after = {};
  Chain looked_up = {};  // these ops follow where rows of the matrix are looked up
  std::vector<Matrix> experts = {};
  uint32_t chosen = 1;  // so many of the experts see a row of the model's x
};

// Says whether a matrix at this path gives the scores by which a mixture chooses its experts. Near ties of scores choose
// other experts when they are rounded, so a router stays as the file has it, in a pipeline and in what is written,
// unless an override names it.
inline bool is_router(std::string_view path) {
  return path.ends_with(".router");
}

// Joined products take the same x (after the same ops), their columns lie side by side, and ops follow over all of
// these columns: gate and up with silu_mul.
struct JoinedDecl {
  std::vector<LinearId> linears;
  Chain after = {};
};

// These ops run over rows that are at hand, such as the scores of a router.
struct RowOpsDecl {
  std::string path;  // "layers.3.experts.router"
  int32_t layer = -1;
  int64_t columns = 0;  // x has so many
  Chain ops = {};
};

// These ops make several rows of each (StepBuilder::repeat_rows()).
struct RepeatedRows {
  uint32_t times = 1;
  RowOpsId repeat = 0;     // (rows, columns) -> (rows, times * columns): op.repeat
  RowOpsId live_rows = 0;  // the count of live rows times `times`: op.live_rows
};

// This is the self-attention of a layer: Q, K and V of the same x, the ops over their heads, the cache, the softmax. A
// layer may have Q alone, and read the keys and values that another one has cached (YOCO, Sun et al., arXiv:2405.05254;
// cross-layer attention, Brandon et al., arXiv:2405.12981).
struct AttentionDecl {
  std::string path;  // "layers.3.attention"
  int32_t layer = -1;
  // These have q_heads * k_dim, kv_heads * k_dim and kv_heads * v_dim columns. If all three are the same product, it
  // has all of these columns, in that order.
  LinearId q = 0, k = 0, v = 0;
  uint32_t q_heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0;
  Chain heads =
      {};  // these run over the heads of Q, K and V side by side, before the cache gets K and V: qk_norm, rope
  uint32_t window = 0;           // a row sees so many positions, its own included; 0 = all
  float scale = 1, softcap = 0;  // see tenon_attn
  // This layer's keys and values are read; none: the layer has its own. It was declared before and has its own, with as
  // many KV heads of as many dimensions and the same window. k and v then stand for nothing; `heads` see Q alone.
  std::optional<LayerId> cache_of = {};
  uint32_t cache_layer = 0;  // the cache counts layers that have their own; declaring the layer sets this
};

// A range of a model may be built alone: layers that follow each other, with or without
// what stands before and after all layers.
struct LayerRange {
  uint32_t first = 0, layers = 0;
  bool embeds = true;  // false: the rows that enter it are handed in (Pipeline::hand_in()) and not looked up by tokens
  bool head = true;    // false: the rows that leave it are what its steps give instead of logits
};

// A model's constructor takes this. Mistakes in the weights are collected, and thrown together once the model is built:
// tensors of another shape or format than declared, tensors that nobody declared, and what the model itself refuses.
class Declarations {
 public:
  virtual ~Declarations() = default;
  // Declares a product, or a matrix whose rows are looked up.
  virtual LinearId linear(LinearDecl decl) = 0;
  // Joins products that were declared. A product is joined once at most, and then not recorded by itself. Those of
  // attention are joined with their neighbours anyway.
  virtual JoinedId joined(JoinedDecl decl) = 0;
  // Declares vectors that lie side by side, as f32; together they have `length` elements. Each of the tensors has one
  // dimension and is f32, f16 or bf16. No tensors stand for one that is missing, which the model has refused.
  virtual VectorId vector(std::string path, std::vector<const WeightTensor*> tensors, int64_t length) = 0;
  // Adds a number to each element of a vector when it is loaded: some norms are stored less one.
  virtual void add_to(VectorId vector, float number) = 0;
  // Declares a constant that fill() computes when the model is loaded: f32 (rows, columns).
  virtual VectorId table(std::string path, int64_t rows, int64_t columns,
                         std::function<void(std::span<float>)> fill) = 0;
  // These declare the attention of a layer, whose products were declared before, and ops over rows.
  virtual LayerId attention(AttentionDecl decl) = 0;
  virtual RowOpsId row_ops(RowOpsDecl decl) = 0;
  // Returns how many positions a sequence may have: the cache's capacity.
  virtual uint32_t capacity() const = 0;
  // Returns what is wanted of a model that has `all` layers. Throws Error(kConfig) if the configuration asks for more.
  virtual LayerRange layer_range(uint32_t all) const = 0;
  // Says that the model reads a tensor by itself, or does not need it, such as one of a layer that is not wanted.
  virtual void uses(const WeightTensor& tensor) = 0;
  // Tells people of something that was decided for this run and that changes what is computed:
  // what it is about, and how it was decided.
  virtual void note(std::string /*about*/, std::string /*decision*/) {}
  // Says what about the weights makes it impossible to build the model, in words that name the tensor or key.
  virtual void refuse(std::string what) = 0;
};

// A model's record() takes this. Tensors are f32 (rows, columns).
class StepBuilder {
 public:
  virtual ~StepBuilder() = default;
  virtual tenon_tid embed(LinearId linear) = 0;  // looks up the rows of the step's tokens
  // Returns the rows, of so many columns, that are handed in to a part that does not embed.
  virtual tenon_tid handed_in(int64_t columns) = 0;
  virtual tenon_tid tokens() = 0;  // i32 (rows): the step's tokens, for models that route by the token
  // Records a product. `rows` are the operands that the ops after it take beside x, in order, such as the residual of
  // an `add`. expert, for a routed product: i32 (rows), the expert of each row of x; below 0, the row's product is
  // zeros.
  virtual tenon_tid linear(LinearId linear, tenon_tid x, const std::vector<tenon_tid>& rows = {},
                           tenon_tid expert = 0) = 0;
  virtual tenon_tid joined(JoinedId joined, tenon_tid x, const std::vector<tenon_tid>& rows = {},
                           tenon_tid expert = 0) = 0;
  // Records ops over x, which stays as it is. `rows` are as for a product.
  virtual tenon_tid row_ops(RowOpsId ops, tenon_tid x, const std::vector<tenon_tid>& rows = {}) = 0;
  // Makes how.times rows of each row at hand, one after the other, and returns x with these rows. What is recorded
  // after it works on all of them, until end_repeat(). So the experts that a row chose are one product, of rows that
  // have an expert each.
  virtual tenon_tid repeat_rows(const RepeatedRows& how, tenon_tid x) = 0;
  virtual void end_repeat() = 0;
  // Returns x (any rows, columns) cut or put together into the rows that are at hand: (rows, 2 * n) as (2 * rows, n)
  // after repeat_rows(), and the other way round after end_repeat(). x is contiguous.
  virtual tenon_tid as_rows(tenon_tid x) = 0;
  // Returns x (rows, 1), whose elements are the bits of i32, as the experts of rows.
  virtual tenon_tid experts_of(tenon_tid x) = 0;
  // Records Q, K and V, the ops over their heads, the cache's append and the softmax: x (rows, width) becomes
  // (rows, q_heads * v_dim). A layer that reads the cache of another has Q alone and no append.
  virtual tenon_tid attention(LayerId layer, tenon_tid x) = 0;
  // Does the same, and picks the rows of the result as out_rows() does.
  virtual tenon_tid attention_of_out_rows(LayerId layer, tenon_tid x) = 0;
  // Picks the rows of x whose logits are wanted. What is recorded after it works on those. Where picks_early() is false,
  // it is called before the head, which is the first product after it: the ops before that product make of x the final
  // hidden states. The result is 0 where nobody wants logits; then nothing more is to be recorded.
  virtual tenon_tid out_rows(tenon_tid x) = 0;
  // Says whether no other rows are needed from the last attention on: that is recorded by attention_of_out_rows(), and
  // out_rows() is called after it, once for each tensor that is still read.
  virtual bool picks_early() const = 0;
};

// A module is one node of the model's tree.
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

// A model records its steps. It does not change once it is built, and the pipeline that built it owns it.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  // Records a whole step; the result is the logits, f32 (out_rows, vocab), or of a
  // part without a head f32 (out_rows, width).
  virtual tenon_tid record(StepBuilder& builder) const = 0;
};

// A translation is a model in the other convention of names, order of rows and description: GGUF's for a Hugging Face
// model, and the other way round. It borrows the weights that it was made of.
struct Translation {
  std::unique_ptr<Weights> weights;  // they have no tokenizer
  std::string config;                // config.json's text, in Hugging Face's convention; else ""
};

// This is an architecture as the registry lists it.
struct ModelKind {
  std::string name;
  std::string doc;
  std::filesystem::path file;  // the family's file; "" for a family that a program made
  // Returns the weights as the other functions want them, which borrow what they were made
  // of; nullptr: as they are. It may be empty.
  std::function<std::unique_ptr<Weights>(const Weights& weights)> view = {};
  std::function<ModelInfo(const Weights& weights)> describe;
  std::function<std::unique_ptr<Model>(const Weights& weights, Declarations& declare)> build;
  // Throws Error(kModel) that names what has no counterpart, keys that it does not know and that are not to be ignored,
  // and names to ignore that stand for no such key.
  std::function<Translation(const Weights& weights, std::span<const std::string> ignored)> translate;
  // These keys and tensors may be there without being read; they are patterns in which '*' stands for any text. Any
  // other that build() leaves unread is an error. Keys that are harmless for every model need not be listed.
  std::vector<std::string> harmless_keys = {}, harmless_tensors = {};
};

// This describes a model family that is installed; docs/adding-a-model.md is about such files.
struct ModelFamily {
  std::string name;
  std::filesystem::path file;
};
// Returns the families in the folders of model_search_path(), sorted by name; of several of one name the first counts.
std::vector<ModelFamily> model_families(const std::vector<std::filesystem::path>& model_dirs);
// Returns the folders in which families are looked for, in order: those given (--model-dir), those of
// $TENON_MODEL_PATH, the user's folder, and the one that is installed with this library.
std::vector<std::filesystem::path> model_search_path(const std::vector<std::filesystem::path>& model_dirs);
// Returns what `tenon inspect model.NAME` prints of a family. Throws Error(kConfig) if its file is not as it should be.
std::string family_text(const std::filesystem::path& file);

// Returns the architecture that the weights name: "llama" from GGUF's general.architecture or config.json's model_type;
// "" if they name none.
std::string architecture_of(const Weights& weights);

// Reads the family that claims these weights. Throws Error: kModel, which names the architecture and lists the known
// ones; kConfig for a family that is not as it should be.
std::shared_ptr<const ModelKind> model_kind_for(const Weights& weights,
                                                const std::vector<std::filesystem::path>& model_dirs = {});

}  // namespace tenon
