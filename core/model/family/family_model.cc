// This interprets families. It runs once, while a pipeline is built: layer by layer it computes the formulas of each
// block and declares the block's products, chains and attention. What it leaves is the same tree of modules as one that
// is written by hand, and a step costs the same.
#include "family_model.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "block_module.h"

namespace tenon::family {
namespace {

// Returns which of a block's ropes is the first that holds, counted from 1; 0 for none.
uint32_t rope_choice(const Block& block, const Scope& scope) {
  for (uint32_t i = 0; i < block.rope.size(); ++i) {
    if (!block.rope[i].when || scope.holds(*block.rope[i].when)) return i + 1;
  }
  return 0;
}

// A layer with attention sees by its window and its rope_choice(). One that shares a cache reads that of the last layer
// before it that has its own and sees alike.
using Sight = std::pair<uint32_t, uint32_t>;
using CacheOwners = std::map<Sight, LayerId>;

Sight sight_of(const Block& block, const Scope& scope) {
  return {block.window ? scope.count(*block.window) : 0, rope_choice(block, scope)};
}

bool shares_cache(const Block& block, const Scope& scope) {
  return block.shares_cache && scope.holds(*block.shares_cache);
}

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
                         // Angles are computed in single precision, as the models were trained with.
                         for (size_t row = 0; row * 2 * f.size() < table.size(); ++row) {
                           for (size_t i = 0; i < f.size(); ++i) {
                             const float angle = static_cast<float>(row) * static_cast<float>(f[i]);
                             table[(row * f.size() + i) * 2] = std::cos(angle) * scale;
                             table[(row * f.size() + i) * 2 + 1] = std::sin(angle) * scale;
                           }
                         }
                       });
}

class SelfAttention : public BlockModule {
 public:
  SelfAttention(const Building& b, const BlockPlace& at, CacheOwners& owners) : BlockModule(b, at) {
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
    const Sight sight = sight_of(block, b.scope);
    const bool shares = shares_cache(block, b.scope), fused = b.family.fused(block);
    if (shares) attention.cache_of = owner_of(b, sight, owners);
    if (fused) {
      attention.q = attention.k = attention.v = product(kFusedAttention, m.heads + (shares ? 0 : 2 * m.kv_heads), {});
    } else {
      attention.q = product("q", m.heads, block.q_after);
    }
    if (!fused && !shares) {
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
    attention.window = sight.first;
    attention.scale = block.scale ? static_cast<float>(b.scope.value(*block.scale))
                                  : 1.0f / std::sqrt(static_cast<float>(m.head_dim));
    attention.softcap = static_cast<float>(b.number(block.softcap, 0));
    attention_ = b.declare.attention(std::move(attention));
    if (!shares) owners[sight] = attention_;
    o_ = last(b, at, linear(b, at, "o", m.width, int64_t{m.heads} * m.head_dim));
  }
  tenon_tid add(StepBuilder& b, tenon_tid x, tenon_tid to) const override {
    return project(b, b.attention(attention_, x), to);
  }
  // These are the two parts of add() where rows are picked between them.
  tenon_tid attend(StepBuilder& b, tenon_tid x) const { return b.attention_of_out_rows(attention_, x); }
  tenon_tid project(StepBuilder& b, tenon_tid attended, tenon_tid to) const { return b.linear(o_, attended, {to}); }

 private:
  std::optional<LayerId> owner_of(const Building& b, const Sight& sight, const CacheOwners& owners) const {
    const auto found = owners.find(sight);
    if (found != owners.end()) return found->second;
    b.declare.refuse(path() + " shares the cache of an earlier layer, as " + b.family.file.string() +
                     " says, and none before it has its window and rope and a cache of its own");
    return {};
  }
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

// Computes down(activation(gate(x), up(x))), or without a gate down(activation(up(x))).
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

class FamilyModel : public Model {
 public:
  FamilyModel(const Family& family, const Weights& weights, Declarations& declare)
      : config_(read_config(family, weights)) {
    const uint32_t all = config_.info.layers;
    range_ = declare.layer_range(all);
    config_.info.layers = range_.layers;
    Building b{family, config_, weights, declare, SourceTensors(family, weights, declare)};
    config_.define(b.scope);
    declare_ends(b, all);
    CacheOwners owners;
    for (uint32_t layer = range_.first; layer < range_.first + range_.layers; ++layer) {
      config_.define(b.scope, layer);
      for (const Block& block : family.blocks) {
        if (block.when && !b.scope.holds(*block.when)) continue;
        const char* name = block.attention ? "attention" : block.experts ? "experts" : "mlp";
        const BlockPlace at{block, layer, layer_path(layer, name)};
        if (block.attention) {
          auto attention = std::make_unique<SelfAttention>(b, at, owners);
          last_attention_ = attention.get();
          modules_.push_back(std::move(attention));
        } else if (block.experts) {
          modules_.push_back(make_experts(b, at));
        } else {
          modules_.push_back(std::make_unique<Mlp>(b, at));
        }
      }
    }
  }

  const ModelInfo& info() const override { return config_.info; }

  tenon_tid record(StepBuilder& b) const override {
    tenon_tid x = range_.embeds ? b.embed(embedding_) : b.handed_in(config_.info.width), taken = x;
    const bool early = b.picks_early() && last_attention_ != nullptr;
    for (const auto& module : modules_) {
      if (!module->parallel()) taken = x;
      if (!early || module.get() != last_attention_) {
        x = module->add(b, taken, x);
        continue;
      }
      const tenon_tid attended = last_attention_->attend(b, taken), to = b.out_rows(x);
      if (to == 0) return 0;
      taken = taken == x ? to : b.out_rows(taken);
      x = last_attention_->project(b, attended, to);
    }
    if (!early) x = b.out_rows(x);
    return range_.head ? b.linear(head_, x) : x;
  }

 private:
  // Declares the embedding, the ropes and the head. all: the layers that the weights have.
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
      if (layer < range_.first || layer >= range_.first + range_.layers) b.source.leave_out(layer);
    }
    if (!range_.embeds) b.source.leave_out("embedding");
    if (!range_.head) b.source.leave_out("lm_head");
    if (m.tied) {
      if (!range_.embeds && !range_.head) return;
      if (range_.embeds && range_.head) b.source.check_tied_head();
      // One store for both uses, under the head's name: it decides what most of the bytes are read for.
      embedding.matrix.path = "lm_head";
      embedding.before = before_head;
      embedding.after = after_head;
      embedding_ = head_ = b.declare.linear(std::move(embedding));
      return;
    }
    embedding.product = false;
    if (range_.embeds) embedding_ = b.declare.linear(std::move(embedding));
    if (!range_.head) return;
    LinearDecl head{.matrix = b.source.matrix("lm_head", m.vocab), .columns = m.width, .before = before_head};
    head.after = after_head;
    head_ = b.declare.linear(std::move(head));
  }

  Config config_;
  LayerRange range_;
  LinearId embedding_ = 0, head_ = 0;
  std::vector<std::unique_ptr<BlockModule>> modules_;
  const SelfAttention* last_attention_ = nullptr;  // one of the modules; nullptr: none attends
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
      const auto [window, rope] = sight_of(b, scope);
      facts.push_back(window < config.info.context ? window : 0);
      facts.push_back(rope);
      facts.push_back(shares_cache(b, scope) ? 1 : 0);
    }
  }
  return all;
}

}  // namespace tenon::family
