// This makes a mixture of experts a block of a layer: a router chooses some of its MLPs for each row.
#include "block_module.h"

namespace tenon::family {
namespace {

// Computes x + the sum of weight_i * down_i(activation(gate_i(x), up_i(x))) over the chosen experts i. Each row becomes
// as many rows as experts see it, so that all are one routed product, which reads only the matrices that are chosen.
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

  // Declares the ops that choose the experts of rows, and those before and after the products of these.
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
  // Returns a product with the matrix of each row's expert.
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

  // Adds the biases of all experts after products that stand side by side: those of an expert lie together.
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

}  // namespace

std::unique_ptr<BlockModule> make_experts(const Building& b, const BlockPlace& at) {
  return std::make_unique<Experts>(b, at);
}

}  // namespace tenon::family
