// The interpreter of families. It runs once, while a pipeline is built: layer by layer it computes the formulas of each
// block and declares the block's products, chains and attention. What it leaves is the same tree of modules as one that
// is written by hand, and a step costs the same.
#include "family_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "../weights/expert_tensors.h"
#include "../weights/layout.h"
#include "../weights/metadata_ledger.h"
#include "tenon/core/error.h"

namespace tenon::family {
namespace {

std::string layer_path(uint32_t layer, const std::string& rest) {
  return "layers." + std::to_string(layer) + "." + rest;
}

// Returns which of a block's ropes is the first that holds, counted from 1; 0 for none.
uint32_t rope_choice(const Block& block, const Scope& scope) {
  for (uint32_t i = 0; i < block.rope.size(); ++i) {
    if (!block.rope[i].when || scope.holds(*block.rope[i].when)) return i + 1;
  }
  return 0;
}

// The tensors of the weights by the house's names, and what a model declares of them.
class SourceTensors {
 public:
  SourceTensors(const Family& family, const Weights& weights, Declarations& declare)
      : family_(family), weights_(weights), declare_(declare) {}

  const WeightTensor* find(const std::string& path, const char* suffix = "weight") const {
    const std::string name = tensor_name(family_, weights_.convention(), path, suffix);
    return name.empty() ? nullptr : weights_.find(name);
  }
  // The tensors of a layer that is not wanted.
  void leave_out(uint32_t layer) const {
    for (const std::string& path : layer_tensors(family_, layer)) {
      for (const WeightTensor* t : everything_of(path)) declare_.uses(*t);
      if (const WeightTensor* t = find(path)) declare_.uses(*t);
      const std::string name = matrix_name(path);
      if (name.find('*') == std::string::npos) continue;
      for (const char* suffix : {"weight", "bias"}) {
        if (const WeightTensor* stacked = stacked_of(path, suffix)) declare_.uses(*stacked);
      }
      for (const WeightTensor& t : weights_.tensors()) {
        if (weights::matches_any(t.name, std::vector{name + ".*"})) declare_.uses(t);
      }
    }
  }
  // A matrix outside of layers that is not wanted.
  void leave_out(const std::string& path) const {
    for (const WeightTensor* t : everything_of(path)) declare_.uses(*t);
    if (const WeightTensor* t = find(path)) declare_.uses(*t);
  }
  // The biases at these paths side by side, each of so many elements.
  VectorId biases(const std::string& name, const std::vector<std::string>& paths, int64_t each) const {
    std::vector<const WeightTensor*> tensors;
    for (const std::string& path : paths) {
      const WeightTensor* t = find(path, "bias");
      if (t == nullptr) {
        refuse_missing(path, "bias");
        return declare_.vector(name, {}, each * static_cast<int64_t>(paths.size()));
      }
      tensors.push_back(t);
    }
    return declare_.vector(name, std::move(tensors), each * static_cast<int64_t>(paths.size()));
  }
  // A tensor of all experts has one for each of them, and is used if they are. path: "layers.3.experts.*.up".
  void use_stacked(const std::string& path, uint32_t experts) const {
    for (const char* suffix : {"weight", "bias"}) {
      const WeightTensor* t = stacked_of(path, suffix);
      if (t == nullptr) continue;
      declare_.uses(*t);
      if (t->shape.empty() || t->shape.front() == experts) continue;
      declare_.refuse("tensor \"" + t->name + "\" is " + weights::describe(*t) + ", expected " +
                      std::to_string(experts) + " experts");
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
  // A vector of a norm, or a bias.
  VectorId vector(const std::string& path, const char* suffix, int64_t length) const {
    const std::string name = suffix == std::string_view("weight") ? path : path + "." + suffix;
    const WeightTensor* tensor = find(path, suffix);
    if (tensor == nullptr) {
      refuse_missing(path, suffix);
      return declare_.vector(name, {}, length);
    }
    const VectorId id = declare_.vector(name, {tensor}, length);
    if (name == path && names_of(family_, path).plus_one.in(weights_.convention())) declare_.add_to(id, 1);
    return id;
  }

 private:
  std::string matrix_name(const std::string& path) const {
    if (names_of(family_, path).bare.in(weights_.convention())) return "";
    const std::string name = tensor_name(family_, weights_.convention(), path);
    return name.substr(0, name.rfind('.'));
  }
  const WeightTensor* stacked_of(const std::string& path, const char* suffix) const {
    return weights_.find(weights::stacked_name(tensor_name(family_, weights_.convention(), path, suffix)));
  }
  std::vector<const WeightTensor*> everything_of(const std::string& path) const {
    const std::string name = matrix_name(path);
    return name.empty() ? std::vector<const WeightTensor*>() : weights_.find_under(name);
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
  void refuse_missing(const std::string& path, const char* suffix) const {
    if (tensor_name(family_, weights_.convention(), path, suffix).empty()) {
      return declare_.refuse("the family " + family_.name + " does not say how " +
                             (weights_.convention() == "gguf" ? "GGUF" : "a Hugging Face folder") + " has \"" + path +
                             "\"; " + family_.file.string() + " has the names that it knows");
    }
    declare_.refuse("tensor \"" + tensor_name(family_, weights_.convention(), path, suffix) + "\" is missing");
  }

  const Family& family_;
  const Weights& weights_;
  Declarations& declare_;
};

// Frequencies that depend on the length of the text are those of the longest that the cache takes, for all positions
// and from the first token on: keys that are stored already cannot be turned anew when a text grows.
void note_length(const Rope& rope, const std::string& path, Declarations& declare) {
  const uint32_t capacity = declare.capacity();
  const std::string length = "for texts of kv_cache.capacity = " + std::to_string(capacity) + " tokens, ";
  char first_text[32];  // A file may state any number.
  std::snprintf(first_text, sizeof(first_text), "%.15g",
                rope.scaling == RopeScaling::kDynamic ? rope.context : rope.original_context);
  const std::string first = first_text;
  if (rope.scaling == RopeScaling::kDynamic) {
    declare.note(path, "dynamic, " + length +
                           (capacity > rope.context ? "beyond the context of " + first + ": theta is larger"
                                                    : "within the context of " + first + ": not scaled"));
  } else if (rope.scaling == RopeScaling::kLongrope) {
    declare.note(path,
                 "longrope, " + length +
                     (capacity > rope.original_context ? "beyond the first context of " + first + ": long_factor"
                                                       : "within the first context of " + first + ": short_factor"));
  }
}

VectorId declare_rope(const Rope& rope, const std::string& path, Declarations& declare) {
  for (const WeightTensor* t : rope.tensors) declare.uses(*t);
  note_length(rope, path, declare);
  return declare.table(path, declare.capacity(), rope.rotated,
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

// What the blocks of a model share while they are declared.
struct Building {
  const Family& family;
  const Config& config;
  const Weights& weights;
  Declarations& declare;
  SourceTensors source;
  Scope scope = {};
  std::vector<VectorId> ropes = {};  // as Family::ropes

  double number(const std::optional<Formula>& formula, double otherwise) const {
    return formula ? scope.value(*formula) : otherwise;
  }
  OpCall with_numbers(const OpSpec& spec) const {
    OpCall op{.name = spec.use};
    for (const auto& [argument, formula] : spec.numbers) op.numbers.emplace_back(argument, scope.value(formula));
    return op;
  }
  // columns: of the rows, or of the heads, that the ops work on. prefix: the layer's, "layers.3.".
  Chain chain(const std::vector<OpSpec>& specs, const std::string& prefix, int64_t columns) const {
    Chain ops;
    for (const OpSpec& spec : specs) {
      if (spec.when && !scope.holds(*spec.when)) continue;
      OpCall op = with_numbers(spec);
      for (const auto& [argument, tensor] : spec.tensors) {
        const bool bias = tensor.ends_with(".bias") && family.tensor(in_family(prefix, tensor)) == nullptr;
        const std::string path = prefix + (bias ? tensor.substr(0, tensor.size() - 5) : tensor);
        op.vectors.emplace_back(argument, source.vector(path, bias ? "bias" : "weight", columns));
      }
      ops.push_back(std::move(op));
    }
    return ops;
  }
  bool biased(const Block& block, const std::string& part, const std::string& path) const {
    const auto found = block.bias.find(part);
    if (found == block.bias.end()) return false;
    const BiasSpec& spec = found->second.in(weights.convention());
    return spec.stored ? source.find(path, "bias") != nullptr : scope.holds(spec.formula);
  }

 private:
  static std::string in_family(const std::string& prefix, const std::string& tensor) {
    return (prefix.empty() ? "" : kLayers) + tensor;
  }
};

// A block of a layer, as it is declared.
struct BlockPlace {
  const Block& block;
  uint32_t layer;
  std::string path;  // "layers.3.attention"
  std::string prefix() const { return layer_path(layer, ""); }
};

class BlockModule : public Module {
 public:
  explicit BlockModule(const Building& b, const BlockPlace& at)
      : Module(at.path), parallel_(at.block.parallel && b.scope.holds(*at.block.parallel)) {}
  // True: the block takes what the block before it took.
  bool parallel() const { return parallel_; }
  // What the block makes of x is added to the rows of `to`.
  virtual tenon_tid add(StepBuilder& b, tenon_tid x, tenon_tid to) const = 0;
  tenon_tid forward(StepBuilder& b, tenon_tid x) const final { return add(b, x, x); }

 protected:
  // The product with a matrix of the block, and its bias.
  static LinearDecl linear(const Building& b, const BlockPlace& at, const std::string& part, int64_t rows,
                           int64_t columns) {
    const std::string path = at.path + "." + part;
    LinearDecl decl{.matrix = b.source.matrix(path, rows), .layer = static_cast<int32_t>(at.layer), .columns = columns};
    if (b.biased(at.block, part, path)) {
      decl.after.push_back({.name = "bias", .vectors = {{"bias", b.source.vector(path, "bias", rows)}}});
    }
    return decl;
  }
  static void append(Chain& chain, Chain more) {
    for (OpCall& op : more) chain.push_back(std::move(op));
  }
  // The block's last product; its result is added to other rows.
  static LinearId last(const Building& b, const BlockPlace& at, LinearDecl decl) {
    append(decl.after, b.chain(at.block.after, at.prefix(), b.config.info.width));
    decl.after.push_back({.name = "add"});
    return b.declare.linear(std::move(decl));
  }

 private:
  bool parallel_;
};

class SelfAttention : public BlockModule {
 public:
  SelfAttention(const Building& b, const BlockPlace& at) : BlockModule(b, at) {
    const ModelInfo& m = b.config.info;
    const Block& block = at.block;
    const Chain before = b.chain(block.before, at.prefix(), m.width);
    const auto product = [&](const char* part, uint32_t count, const std::vector<OpSpec>& after) {
      LinearDecl decl = linear(b, at, part, int64_t{count} * m.head_dim, m.width);
      decl.before = before;
      append(decl.after, b.chain(after, at.prefix(), int64_t{count} * m.head_dim));
      return b.declare.linear(std::move(decl));
    };
    AttentionDecl attention{.path = path(), .layer = static_cast<int32_t>(at.layer)};
    if (b.family.fused(block)) {
      attention.q = attention.k = attention.v = product(kFusedAttention, m.heads + 2 * m.kv_heads, {});
    } else {
      attention.q = product("q", m.heads, block.q_after);
      attention.k = product("k", m.kv_heads, block.k_after);
      attention.v = product("v", m.kv_heads, {});
    }
    attention.q_heads = m.heads;
    attention.kv_heads = m.kv_heads;
    attention.k_dim = attention.v_dim = m.head_dim;
    attention.heads = b.chain(block.heads, at.prefix(), m.head_dim);
    add_rope(b, block, attention.heads);
    if (!block.sinks.empty()) {
      const VectorId sinks = b.source.vector(at.prefix() + block.sinks, "weight", m.heads);
      attention.heads.push_back({.name = "attention_sinks", .vectors = {{"sinks", sinks}}});
    }
    attention.window = block.window ? b.scope.count(*block.window) : 0;
    attention.scale = block.scale ? static_cast<float>(b.scope.value(*block.scale))
                                  : 1.0f / std::sqrt(static_cast<float>(m.head_dim));
    attention.softcap = static_cast<float>(b.number(block.softcap, 0));
    attention_ = b.declare.attention(std::move(attention));
    o_ = last(b, at, linear(b, at, "o", m.width, int64_t{m.heads} * m.head_dim));
  }
  tenon_tid add(StepBuilder& b, tenon_tid x, tenon_tid to) const override {
    return b.linear(o_, b.attention(attention_, x), {to});
  }

 private:
  static void add_rope(const Building& b, const Block& block, Chain& heads) {
    const uint32_t choice = rope_choice(block, b.scope);
    if (choice == 0) return;
    const size_t rope = block.rope[choice - 1].rope;
    const bool interleaved = b.family.ropes[rope].interleaved.in(b.weights.convention());
    heads.push_back({.name = "rope",
                     .vectors = {{"table", b.ropes[rope]}},
                     .numbers = {{"rotated", b.config.ropes[rope].rotated}, {"interleaved", interleaved ? 1 : 0}}});
  }

  LayerId attention_;
  LinearId o_;
};

// down(activation(gate(x), up(x))), or without a gate down(activation(up(x))).
class Mlp : public BlockModule {
 public:
  Mlp(const Building& b, const BlockPlace& at)
      : BlockModule(b, at), joins_(at.block.gated && !b.family.fused(at.block)) {
    const ModelInfo& m = b.config.info;
    const Chain before = b.chain(at.block.before, at.prefix(), m.width);
    const auto widen = [&](const char* part, bool activated, uint32_t times = 1) {
      LinearDecl decl = linear(b, at, part, int64_t{times} * m.ffn, m.width);
      decl.before = before;
      if (activated) decl.after.push_back(b.with_numbers(at.block.activation));
      return b.declare.linear(std::move(decl));
    };
    if (joins_) {
      const LinearId gate = widen("gate", false);
      joined_ =
          b.declare.joined({.linears = {gate, widen("up", false)}, .after = {b.with_numbers(at.block.activation)}});
    } else {
      up_ = at.block.gated ? widen(kFusedMlp, true, 2) : widen("up", true);
    }
    down_ = last(b, at, linear(b, at, "down", m.width, m.ffn));
  }
  tenon_tid add(StepBuilder& b, tenon_tid x, tenon_tid to) const override {
    const tenon_tid inner = joins_ ? b.joined(joined_, x) : b.linear(up_, x);
    return b.linear(down_, inner, {to});
  }

 private:
  bool joins_;  // gate and up are matrices of their own
  JoinedId joined_ = 0;
  LinearId up_ = 0, down_ = 0;
};

// x + the sum of weight_i * down_i(activation(gate_i(x), up_i(x))) over the chosen experts i. Each row becomes as many rows as
// experts see it, so that all of these are one routed product, which reads no matrices but those that are chosen.
class Experts : public BlockModule {
 public:
  Experts(const Building& b, const BlockPlace& at) : BlockModule(b, at) {
    const ModelInfo& m = b.config.info;
    const ExpertsSpec& spec = *at.block.experts;
    const uint32_t count = b.scope.count(spec.count), chosen = b.scope.count(spec.chosen);
    if (chosen < 1 || chosen > count) {
      b.declare.refuse(at.path + ": " + std::to_string(chosen) + " of " + std::to_string(count) +
                       " experts are to be chosen; expected 1 to " + std::to_string(count));
      return;
    }
    const Chain before = b.chain(at.block.before, at.prefix(), m.width);
    LinearDecl router = linear(b, at, "router", count, m.width);
    router.before = before;
    router_ = b.declare.linear(std::move(router));
    declare_choice(b, at, chosen, count);
    const int64_t inner = b.scope.count(spec.inner);
    LinearDecl gate = routed(b, at, "gate", {count, inner, m.width}), up = routed(b, at, "up", {count, inner, m.width});
    LinearDecl down = routed(b, at, "down", {count, m.width, inner});
    gate.before = up.before = before;
    gate.chosen = up.chosen = down.chosen = chosen;
    const LinearId first = b.declare.linear(std::move(gate)), second = b.declare.linear(std::move(up));
    JoinedDecl joined{.linears = {first, second}};
    biased_ = b.biased(at.block, "*.down", at.path + ".0.down");
    if (biased_) joined.after.push_back(bias(b, at, {"gate", "up"}, {count, inner, m.width}));
    joined.after.push_back(b.with_numbers(at.block.activation));
    joined_ = b.declare.joined(std::move(joined));
    if (biased_) down.after.push_back(bias(b, at, {"down"}, {count, m.width, inner}));
    down_ = b.declare.linear(std::move(down));
  }
  tenon_tid add(StepBuilder& b, tenon_tid x, tenon_tid to) const override {
    const tenon_tid scores = b.linear(router_, x), chosen = b.row_ops(chosen_, scores);
    const tenon_tid repeated = b.repeat_rows(repeated_, x), number = b.as_rows(chosen), expert = b.experts_of(number);
    // Biases are those of the rows' experts.
    std::vector<tenon_tid> of_bias;
    if (biased_) of_bias.push_back(number);
    const tenon_tid made = b.linear(down_, b.joined(joined_, repeated, of_bias, expert), of_bias, expert);
    b.end_repeat();
    return b.row_ops(sum_, b.as_rows(made), {chosen, scores, to});
  }

 private:
  struct Shape {
    uint32_t experts;
    int64_t rows, columns;
  };

  // The ops that choose the experts of rows, and those before and after the products of these.
  void declare_choice(const Building& b, const BlockPlace& at, uint32_t chosen, uint32_t count) {
    const uint32_t width = b.config.info.width;
    const auto ops = [&](const char* part, int64_t columns, OpCall call) {
      RowOpsDecl decl{.path = at.path + "." + part, .layer = static_cast<int32_t>(at.layer), .columns = columns};
      decl.ops.push_back(std::move(call));
      return b.declare.row_ops(std::move(decl));
    };
    chosen_ = ops("choice", count, {.name = "chosen_experts", .numbers = {{"chosen", chosen}}});
    repeated_.times = chosen;
    repeated_.repeat = ops("gate_up", width, {.name = "repeat", .numbers = {{"times", chosen}}});
    repeated_.live_rows = ops("choice", width, {.name = "live_rows", .numbers = {{"times", chosen}}});
    const double renormalised = b.scope.holds(at.block.experts->renormalised) ? 1 : 0;
    sum_ =
        ops("down", int64_t{chosen} * width,
            {.name = "expert_sum", .numbers = {{"chosen", chosen}, {"renormalised", renormalised}, {"count", count}}});
  }
  // A product with the matrix of each row's expert.
  static LinearDecl routed(const Building& b, const BlockPlace& at, const std::string& part, const Shape& shape) {
    LinearDecl decl;
    decl.matrix.path = at.path + "." + part;
    decl.matrix.rows = shape.rows;
    decl.layer = static_cast<int32_t>(at.layer);
    decl.columns = shape.columns;
    for (uint32_t e = 0; e < shape.experts; ++e) {
      Matrix matrix = b.source.matrix(at.path + "." + std::to_string(e) + "." + part, shape.rows);
      matrix.path = decl.matrix.path;
      decl.experts.push_back(std::move(matrix));
    }
    b.source.use_stacked(at.path + ".*." + part, shape.experts);
    return decl;
  }

  // The biases of all experts after products that stand side by side: those of an expert lie together.
  static OpCall bias(const Building& b, const BlockPlace& at, const std::vector<std::string>& parts,
                     const Shape& shape) {
    std::vector<std::string> paths;
    for (uint32_t e = 0; e < shape.experts; ++e) {
      for (const std::string& part : parts) paths.push_back(at.path + "." + std::to_string(e) + "." + part);
    }
    for (const std::string& part : parts) b.source.use_stacked(at.path + ".*." + part, shape.experts);
    OpCall call{.name = "expert_bias"};
    const std::string name = at.path + "." + (parts.size() > 1 ? "gate_up" : parts.front()) + ".bias";
    call.vectors = {{"bias", b.source.biases(name, paths, shape.rows)}};
    call.numbers = {{"experts", shape.experts}};
    return call;
  }

  LinearId router_ = 0, down_ = 0;
  JoinedId joined_ = 0;
  bool biased_ = false;  // the products of the experts have biases
  RowOpsId chosen_ = 0, sum_ = 0;
  RepeatedRows repeated_;
};

class FamilyModel : public Model {
 public:
  FamilyModel(const Family& family, const Weights& weights, Declarations& declare)
      : config_(read_config(family, weights)) {
    const uint32_t all = config_.info.layers;
    part_ = declare.part(all);
    config_.info.layers = part_.layers;
    Building b{family, config_, weights, declare, SourceTensors(family, weights, declare)};
    config_.define(b.scope);
    declare_ends(b, all);
    for (uint32_t layer = part_.first; layer < part_.first + part_.layers; ++layer) {
      config_.define(b.scope, layer);
      for (const Block& block : family.blocks) {
        if (block.when && !b.scope.holds(*block.when)) continue;
        const char* name = block.attention ? "attention" : block.experts ? "experts" : "mlp";
        const BlockPlace at{block, layer, layer_path(layer, name)};
        if (block.attention) {
          modules_.push_back(std::make_unique<SelfAttention>(b, at));
        } else if (block.experts) {
          modules_.push_back(std::make_unique<Experts>(b, at));
        } else {
          modules_.push_back(std::make_unique<Mlp>(b, at));
        }
      }
    }
  }

  const ModelInfo& info() const override { return config_.info; }

  tenon_tid record(StepBuilder& b) const override {
    tenon_tid x = part_.embeds ? b.embed(embedding_) : b.handed_in(config_.info.width), taken = x;
    for (const auto& module : modules_) {
      if (!module->parallel()) taken = x;
      x = module->add(b, taken, x);
    }
    x = b.out_rows(x);
    return part_.head ? b.linear(head_, x) : x;
  }

 private:
  // The embedding, the ropes and the head. all: the layers that the weights have.
  void declare_ends(Building& b, uint32_t all) {
    const ModelInfo& m = config_.info;
    LinearDecl embedding{.matrix = b.source.matrix("embedding", m.vocab), .columns = m.width, .lookup = true};
    for (size_t i = 0; i < config_.ropes.size(); ++i) {
      const std::string path = config_.ropes.size() == 1 ? "rope" : "rope." + b.family.ropes[i].name;
      b.ropes.push_back(declare_rope(config_.ropes[i], path, b.declare));
    }
    const Chain before_head = b.chain(b.family.before_head, "", m.width),
                after_head = b.chain(b.family.after_head, "", m.vocab);
    embedding.looked_up = b.chain(b.family.after_embedding, "", m.width);
    for (uint32_t layer = 0; layer < all; ++layer) {
      if (layer < part_.first || layer >= part_.first + part_.layers) b.source.leave_out(layer);
    }
    if (!part_.embeds) b.source.leave_out("embedding");
    if (!part_.head) b.source.leave_out("lm_head");
    if (m.tied) {
      if (!part_.embeds && !part_.head) return;
      if (part_.embeds && part_.head) b.source.check_tied_head();
      // One store for both uses, under the head's name: it decides what most of the bytes are read for.
      embedding.matrix.path = "lm_head";
      embedding.before = before_head;
      embedding.after = after_head;
      embedding_ = head_ = b.declare.linear(std::move(embedding));
      return;
    }
    embedding.product = false;
    if (part_.embeds) embedding_ = b.declare.linear(std::move(embedding));
    if (!part_.head) return;
    LinearDecl head{.matrix = b.source.matrix("lm_head", m.vocab), .columns = m.width, .before = before_head};
    head.after = after_head;
    head_ = b.declare.linear(std::move(head));
  }

  Config config_;
  ModelPart part_;
  LinearId embedding_ = 0, head_ = 0;
  std::vector<std::unique_ptr<BlockModule>> modules_;
};

}  // namespace

std::unique_ptr<Model> build_model(const Family& family, const Weights& weights, Declarations& declare) {
  return std::make_unique<FamilyModel>(family, weights, declare);
}

std::vector<uint32_t> windows_of(const Family& family, const Config& config) {
  std::vector<uint32_t> windows;
  Scope scope;
  config.define(scope);
  for (uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    config.define(scope, layer);
    for (const Block& b : family.blocks) {
      const bool there = b.attention && (!b.when || scope.holds(*b.when));
      if (there) windows.push_back(b.window ? scope.count(*b.window) : 0);
    }
  }
  return windows;
}

std::vector<std::vector<uint32_t>> layer_facts(const Family& family, const Config& config) {
  std::vector<std::vector<uint32_t>> all;
  Scope scope;
  config.define(scope);
  for (uint32_t layer = 0; layer < config.layers.size(); ++layer) {
    config.define(scope, layer);
    std::vector<uint32_t>& facts = all.emplace_back();
    for (const Block& b : family.blocks) {
      const bool there = !b.when || scope.holds(*b.when);
      facts.push_back(there ? 1 : 0);
      if (!there || !b.attention) continue;
      const uint32_t window = b.window ? scope.count(*b.window) : 0;
      facts.push_back(window < config.info.context ? window : 0);
      facts.push_back(rope_choice(b, scope));
    }
  }
  return all;
}

}  // namespace tenon::family
