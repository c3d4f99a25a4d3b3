// The modules of a family's blocks (attention, an MLP, experts) are made with these.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "family.h"
#include "family_config.h"
#include "formula.h"
#include "source_tensors.h"
#include "tenon/core/module.h"

namespace tenon::family {

inline std::string layer_path(uint32_t layer, const std::string& rest) {
  return "layers." + std::to_string(layer) + "." + rest;
}

// The blocks of a model share it while they are declared.
struct Building {
  const Family& family;
  const Config& config;
  const Weights& weights;
  Declarations& declare;
  SourceTensors source;
  Scope scope = {};
  std::vector<VectorId> ropes = {};  // see Family::ropes

  double number(const std::optional<Formula>& formula, double otherwise) const {
    return formula ? scope.value(*formula) : otherwise;
  }
  OpCall with_numbers(const OpSpec& spec) const {
    OpCall op{.name = spec.use};
    for (const auto& [argument, formula] : spec.numbers) op.numbers.emplace_back(argument, scope.value(formula));
    return op;
  }
  // Makes the ops. columns: of the rows, or of the heads, that they work on. prefix: the layer's, "layers.3.".
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

// This says which block of which layer is declared.
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
  // Says whether the block takes what the block before it took.
  bool parallel() const { return parallel_; }
  // Adds to the rows of `to` the block's result for x.
  virtual tenon_tid add(StepBuilder& b, tenon_tid x, tenon_tid to) const = 0;
  tenon_tid forward(StepBuilder& b, tenon_tid x) const final { return add(b, x, x); }

 protected:
  // Returns the product with a matrix of the block, and its bias.
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
  // Declares the block's last product, whose result is added to other rows.
  static LinearId last(const Building& b, const BlockPlace& at, LinearDecl decl) {
    append(decl.after, b.chain(at.block.after, at.prefix(), b.config.info.width));
    decl.after.push_back({.name = "add"});
    return b.declare.linear(std::move(decl));
  }

 private:
  bool parallel_;
};

// Makes the module of a block of experts.
std::unique_ptr<BlockModule> make_experts(const Building& b, const BlockPlace& at);

}  // namespace tenon::family
