// A recorded step shows which products take the result of which module. What an op does to a factor
// is known of ops of the vocabulary (tenon/abi/program.h), by their names; any other op ends the
// search, so that nothing is folded through it.
#include "foldings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "../pipeline/recorded_step.h"
#include "model_listing.h"

namespace tenon {
namespace {

bool one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return name == n; });
}
// Column c of the result is proportional to the elements c of its vectors together.
bool is_norm(const OpCall& op) {
  return one_of(op.name, {"rms_norm", "layer_norm"});
}
// Column c of the result is proportional to column n + c of 2n.
bool is_gate(const OpCall& op) {
  return one_of(op.name, {"silu_mul", "gelu_mul"});
}
// V's heads stay as they are.
bool leaves_v(const OpCall& op) {
  return one_of(op.name, {"rope", "qk_norm", "attention_sinks"});
}

class Search {
 public:
  explicit Search(const ModelListing& model) : model_(model) {}

  std::vector<Folding> run() {
    add_norms();
    for (const RecordedTensor& tensor : recorded_step(*model_.model())) {
      if (tensor.read_otherwise || tensor.takers.empty()) continue;
      add_experts(tensor);
      std::optional<Folding> found = producer_of(tensor.maker);
      if (!found) continue;
      const auto takes = [&](LinearId id) { return model_.linears()[id].before.empty() && add_consumer(id, *found); };
      const auto take = [&](const RecordedModule& taker) { return std::ranges::all_of(products_of(taker), takes); };
      if (std::ranges::all_of(tensor.takers, take)) found_.push_back(std::move(*found));
    }
    return std::move(found_);
  }

 private:
  using Vector = ModelListing::Vector;

  const Vector& vector(VectorId id) const { return model_.vectors()[id]; }

  // Returns the products whose x is the module's.
  std::set<LinearId> products_of(const RecordedModule& module) const {
    if (module.kind == RecordedModule::kLinear) return {module.number};
    if (module.kind == RecordedModule::kAttention) {
      const AttentionDecl& a = model_.attentions()[module.number];
      return a.cache_of ? std::set{a.q} : std::set{a.q, a.k, a.v};
    }
    const std::vector<LinearId>& linears = model_.joined_linears()[module.number].linears;
    return {linears.begin(), linears.end()};
  }

  // Returns false if the product's matrices cannot have factors.
  static bool set_layer(const LinearDecl& decl, Folding& folding) {
    if (!decl.product || decl.lookup || decl.layer < 0) return false;
    if (static_cast<size_t>(decl.columns) != folding.source.size()) return false;
    if (folding.layer >= 0 && folding.layer != decl.layer) return false;
    folding.layer = decl.layer;
    return true;
  }
  bool add_consumer(LinearId id, Folding& folding) const {
    const LinearDecl& decl = model_.linears()[id];
    if (!decl.experts.empty() || !set_layer(decl, folding)) return false;
    folding.consumers.push_back(decl.matrix.name);
    return true;
  }

  // Takes products of which the first is the router of the others, which are all experts'. False: they are others.
  bool add_mixture(const std::vector<LinearId>& ids, Folding& folding) const {
    const LinearDecl& router = model_.linears()[ids.front()];
    if (!router.experts.empty() || !is_router(router.matrix.path) || !set_layer(router, folding)) return false;
    folding.router = router.matrix.name;
    folding.experts = static_cast<uint32_t>(router.matrix.rows);
    for (uint32_t e = 0; e < folding.experts; ++e) {
      for (auto id = ids.begin() + 1; id != ids.end(); ++id) {
        const LinearDecl& decl = model_.linears()[*id];
        if (decl.experts.size() != folding.experts || !set_layer(decl, folding)) return false;
        folding.consumers.push_back(decl.experts[e].name);
      }
    }
    return true;
  }

  // Adds the rows of `up` and the columns of `down` of each expert, where the rows of `up` pass through a gate alone.
  void add_experts(const RecordedTensor& tensor) {
    const RecordedModule& taker = tensor.takers.front();
    if (tensor.maker.kind != RecordedModule::kJoined || tensor.takers.size() > 1) return;
    if (taker.kind != RecordedModule::kLinear) return;
    const JoinedDecl& joined = model_.joined_linears()[tensor.maker.number];
    const LinearDecl &up = model_.linears()[joined.linears.back()], &down = model_.linears()[taker.number];
    if (!has_gate_alone(joined) || !up.after.empty() || !down.before.empty()) return;
    if (up.experts.size() != down.experts.size() || up.matrix.rows != down.columns) return;
    for (size_t e = 0; e < down.experts.size(); ++e) {
      Folding& folding = found_.emplace_back();
      folding.layer = down.layer;
      folding.consumers = {down.experts[e].name};
      folding.producer = up.experts[e].name;
      set_sources(folding, down.columns);
    }
  }
  static bool has_gate_alone(const JoinedDecl& joined) {
    return joined.linears.size() == 2 && joined.after.size() == 1 && is_gate(joined.after.front());
  }

  // Adds elements of the vectors of an op. False: they are not one tensor each.
  bool add_vectors(const OpCall& op, int64_t first, Folding& folding) const {
    for (const auto& [argument, id] : op.vectors) {
      const Vector& v = vector(id);
      if (v.tensors.size() != 1) return false;
      folding.vectors.push_back({v.tensors.front()->name, first, v.added});
    }
    return !op.vectors.empty();
  }

  static void set_sources(Folding& folding, int64_t columns) {
    folding.sources = static_cast<uint32_t>(columns);
    for (uint32_t i = 0; i < folding.sources; ++i) folding.source.push_back(i);
  }

  // Adds the norms before products, by the tensor of the weight.
  void add_norms() {
    std::map<const WeightTensor*, std::vector<LinearId>> by_weight;
    std::map<const WeightTensor*, size_t> uses;
    const auto count = [&](const Chain& chain) {
      for (const OpCall& op : chain) {
        for (const auto& [argument, id] : op.vectors) {
          for (const WeightTensor* t : vector(id).tensors) ++uses[t];
        }
      }
    };
    for (LinearId id = 0; id < model_.linears().size(); ++id) {
      const LinearDecl& decl = model_.linears()[id];
      for (const Chain* chain : {&decl.before, &decl.after, &decl.looked_up}) count(*chain);
      if (decl.before.empty() || !is_norm(decl.before.back()) || decl.before.back().vectors.empty()) continue;
      const Vector& weight = vector(decl.before.back().vectors.front().second);
      if (weight.tensors.size() == 1) by_weight[weight.tensors.front()].push_back(id);
    }
    for (const JoinedDecl& decl : model_.joined_linears()) count(decl.after);
    for (const AttentionDecl& decl : model_.attentions()) count(decl.heads);
    for (const auto& [weight, linears] : by_weight) {
      Folding folding;
      const OpCall& norm = model_.linears()[linears.front()].before.back();
      set_sources(folding, model_.linears()[linears.front()].columns);
      if (!add_vectors(norm, 0, folding)) continue;
      // Every use of the norm's tensors is this norm before one of these products.
      const auto only_here = [&](const auto& argument) {
        return uses[vector(argument.second).tensors.front()] == linears.size();
      };
      if (!std::all_of(norm.vectors.begin(), norm.vectors.end(), only_here)) continue;
      const auto takes = [&](LinearId id) { return add_consumer(id, folding); };
      const bool mixture = !model_.linears()[linears.back()].experts.empty();
      if (mixture ? add_mixture(linears, folding) : std::ranges::all_of(linears, takes)) {
        found_.push_back(std::move(folding));
      }
    }
  }

  // Takes rows of a product, from first_row on, whose result may pass through a bias. So many `ops` after it are looked
  // at. Returns false if something else follows.
  bool set_producer(LinearId id, int64_t first_row, size_t ops, Folding& folding) const {
    const LinearDecl& decl = model_.linears()[id];
    if (!decl.experts.empty()) return false;
    folding.producer = decl.matrix.name;
    folding.first_row = first_row;
    if (ops == 0) return true;
    return ops == 1 && decl.after.front().name == "bias" && add_vectors(decl.after.front(), first_row, folding);
  }

  std::optional<Folding> producer_of(const RecordedModule& module) const {
    Folding folding;
    if (module.kind == RecordedModule::kAttention) {
      const AttentionDecl& a = model_.attentions()[module.number];
      if (!std::all_of(a.heads.begin(), a.heads.end(), leaves_v)) return {};
      // Products of other layers take V as well.
      const auto shares = [&](const AttentionDecl& other) { return other.cache_of == module.number; };
      if (a.cache_of || std::ranges::any_of(model_.attentions(), shares)) return {};
      const int64_t before_v = a.q == a.v ? int64_t{a.q_heads + a.kv_heads} * a.k_dim : 0;
      folding.sources = a.kv_heads * a.v_dim;
      for (uint32_t i = 0; i < a.q_heads * a.v_dim; ++i) {
        const uint32_t head = i / a.v_dim / (a.q_heads / a.kv_heads);
        folding.source.push_back(head * a.v_dim + i % a.v_dim);
      }
      if (!set_producer(a.v, before_v, model_.linears()[a.v].after.size(), folding)) return {};
      return folding;
    }
    if (module.kind == RecordedModule::kJoined) {
      const JoinedDecl& joined = model_.joined_linears()[module.number];
      if (!has_gate_alone(joined)) return {};
      const LinearDecl& up = model_.linears()[joined.linears.back()];
      set_sources(folding, up.matrix.rows);
      if (!set_producer(joined.linears.back(), 0, up.after.size(), folding)) return {};
      return folding;
    }
    if (module.kind != RecordedModule::kLinear) return {};
    const LinearDecl& both = model_.linears()[module.number];
    if (both.after.empty() || !is_gate(both.after.back())) return {};
    set_sources(folding, both.matrix.rows / 2);
    if (!set_producer(module.number, both.matrix.rows / 2, both.after.size() - 1, folding)) return {};
    return folding;
  }

  const ModelListing& model_;
  std::vector<Folding> found_;
};

}  // namespace

std::vector<Folding> foldings_of(const ModelListing& model) {
  if (model.model() == nullptr) return {};
  return Search(model).run();
}

}  // namespace tenon
