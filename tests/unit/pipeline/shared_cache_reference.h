// Models of nothing but attention, some of whose layers read what an earlier one has cached, and what they answer in
// float64 under a cache's policy.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "made_model.h"
#include "support/evicting_rule.h"

namespace tenon::test::shared_cache {

using Row = std::vector<double>;

inline constexpr uint32_t kKDim = 16, kVDim = 32, kRotated = 8, kWidth = 32, kVocab = 40, kTokens = 60, kPage = 16;
inline constexpr float kScale = 0.25F;
inline constexpr double kEps = 1e-5;

struct Layer {
  std::optional<uint32_t> cache_of;
  uint32_t q_heads = 4, window = 0, kv_heads = 2;
  float theta = 1;  // angles are multiplied by it
};
inline const std::vector<Layer> kSharing = {{{}}, {{}, 4, 8}, {0, 2}, {1, 4, 8}, {0, 4}};

inline std::string path_of(size_t layer) {
  return "layers." + std::to_string(layer) + ".attention";
}

inline float angle(uint32_t index, uint32_t pair, float theta) {
  return theta * static_cast<float>(index) * (pair == 0 ? 1.0F : 0.3F / static_cast<float>(pair));
}

inline void fill_rope(std::span<float> table, float theta) {
  for (uint32_t i = 0; i < table.size() / 2; ++i) {
    const float a = angle(i / (kRotated / 2), i % (kRotated / 2), theta);
    table[2 * i] = std::cos(a);
    table[2 * i + 1] = std::sin(a);
  }
}

// This declares a model of nothing but attention, layer by layer.
class Declaring {
 public:
  Declaring(MadeWeights& weights, Declarations& declare) : w_(weights), declare_(declare) {}

  LinearDecl linear(const std::string& path, int32_t layer, uint32_t rows, uint32_t columns) {
    return {.matrix = w_.matrix(path, path, rows, columns), .layer = layer, .columns = columns};
  }
  LayerId attention(const Layer& l, size_t number) {
    AttentionDecl a{.path = path_of(number), .layer = static_cast<int32_t>(number)};
    const auto product = [&](const char* name, uint32_t rows) {
      return declare_.linear(linear(a.path + "." + name, a.layer, rows, kWidth));
    };
    const auto norm = [&](const char* name) {
      const std::string path = a.path + "." + name;
      return declare_.vector(path, {w_.add(path, {kKDim})}, kKDim);
    };
    a.q = product("q", l.q_heads * kKDim);
    if (!l.cache_of) {
      a.k = product("k", l.kv_heads * kKDim);
      a.v = product("v", l.kv_heads * kVDim);
    }
    a.q_heads = l.q_heads;
    a.kv_heads = l.kv_heads;
    a.k_dim = kKDim;
    a.v_dim = kVDim;
    a.window = l.window;
    a.scale = kScale;
    a.cache_of = l.cache_of;
    const VectorId q_norm = norm("q_norm"), k_norm = l.cache_of ? q_norm : norm("k_norm");
    a.heads = {{.name = "qk_norm", .vectors = {{"q_weight", q_norm}, {"k_weight", k_norm}}, .numbers = {{"eps", kEps}}},
               {.name = "rope",
                .vectors = {{"table", rope(l.theta)}},
                .numbers = {{"rotated", kRotated}, {"interleaved", 0}}}};
    return declare_.attention(std::move(a));
  }
  LinearId output(const Layer& l, size_t number) {
    LinearDecl o = linear(path_of(number) + ".o", static_cast<int32_t>(number), kWidth, l.q_heads * kVDim);
    o.after = {{.name = "add"}};
    return declare_.linear(std::move(o));
  }

 private:
  VectorId rope(float theta) {
    const auto found = ropes_.find(theta);
    if (found != ropes_.end()) return found->second;
    return ropes_[theta] = declare_.table("rope" + std::to_string(ropes_.size()), declare_.capacity(), kRotated,
                                          [theta](std::span<float> table) { fill_rope(table, theta); });
  }

  MadeWeights& w_;
  Declarations& declare_;
  std::map<float, VectorId> ropes_;
};

inline MadeModel model_of(const std::vector<Layer>& layers) {
  MadeModel m;
  m.info.vocab = kVocab;
  m.info.width = kWidth;
  m.info.context = 64;
  m.info.layers = static_cast<uint32_t>(layers.size());
  m.declare = [layers](MadeWeights& w, Declarations& declare) -> Record {
    Declaring d(w, declare);
    LinearDecl rows = d.linear("embedding", -1, kVocab, kWidth);
    rows.product = false;
    rows.lookup = true;
    const LinearId embedding = declare.linear(std::move(rows));
    std::vector<std::pair<LayerId, LinearId>> made;
    for (size_t l = 0; l < layers.size(); ++l) {
      const LayerId attention = d.attention(layers[l], l);
      made.emplace_back(attention, d.output(layers[l], l));
    }
    const LinearId head = declare.linear(d.linear("head", -1, kVocab, kWidth));
    return [=](StepBuilder& b) {
      tenon_tid x = b.embed(embedding);
      for (const auto& [attention, output] : made) x = b.linear(output, b.attention(attention, x), {x});
      return b.linear(head, b.out_rows(x));
    };
  };
  return m;
}

// This is what a cache lets a row see of its past.
struct Policy {
  uint32_t sinks = 0, window = 0;  // the first tokens, and the newest ones; window 0: all
  bool renumbered = false;         // angles are those of places among what is kept
  uint32_t pages = 0;              // so many pages of layers without a window are read; 0: all
  // Each KV head of a layer keeps what its own rows lean on, and other layers read that.
  std::optional<EvictingRule> evicts = {};
};

// A text in float64, of which rows[i] came in steps of so many.
class Reference {
 public:
  Reference(const MadeWeights& weights, std::vector<int32_t> tokens, std::vector<uint32_t> rows, Policy policy)
      : w_(weights), rows_(std::move(rows)), policy_(policy) {
    std::vector<Row> x;
    for (const int32_t token : tokens) {
      const auto row = w_.values("embedding.weight").begin() + token * static_cast<int64_t>(kWidth);
      x.emplace_back(row, row + kWidth);
    }
    for (size_t l = 0; l < kSharing.size(); ++l) add_attention(l, x);
    for (const Row& row : x) logits.push_back(product("head", row));
  }
  std::vector<Row> logits;

 private:
  struct Cached {
    std::vector<Row> keys, values;              // keys before rope
    std::vector<KeptTokens> kept = {};          // by KV head, if the policy evicts
    std::vector<std::set<uint32_t>> seen = {};  // by row and KV head: these positions and no others
  };

  Row product(const std::string& name, const Row& x) const {
    const Values& matrix = w_.values(name + ".weight");
    Row y(matrix.size() / x.size());
    for (size_t i = 0; i < matrix.size(); ++i) y[i / x.size()] += static_cast<double>(matrix[i]) * x[i % x.size()];
    return y;
  }
  Row normed(Row x, const std::string& weight) const {
    for (size_t h = 0; h < x.size(); h += kKDim) {
      double sum = 0;
      for (size_t i = 0; i < kKDim; ++i) sum += x[h + i] * x[h + i];
      for (size_t i = 0; i < kKDim; ++i) {
        x[h + i] *= static_cast<double>(w_.values(weight)[i]) / std::sqrt(sum / kKDim + kEps);
      }
    }
    return x;
  }
  // Returns a head, turned.
  static Row turned(const Row& x, size_t head, uint32_t index) {
    Row y(x.begin() + static_cast<ptrdiff_t>(head * kKDim), x.begin() + static_cast<ptrdiff_t>((head + 1) * kKDim));
    for (uint32_t i = 0; i < kRotated / 2; ++i) {
      const double a = static_cast<double>(angle(index, i, 1)), u = y[i], v = y[i + kRotated / 2];
      y[i] = u * std::cos(a) - v * std::sin(a);
      y[i + kRotated / 2] = u * std::sin(a) + v * std::cos(a);
    }
    return y;
  }
  static double dot(const Row& a, const Row& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

  uint32_t index_of(uint32_t position, uint32_t reader) const {
    const uint32_t kept = policy_.sinks + policy_.window, shift = reader + 1 > kept ? reader + 1 - kept : 0;
    return !policy_.renumbered || position < policy_.sinks ? position : position - shift;
  }

  // Returns whether pages of a KV head are read by the queries of a row (Quest, arXiv:2406.10774).
  std::vector<bool> pages_read(const Cached& cached, size_t kv_head, const std::vector<Row>& queries,
                               uint32_t n) const {
    const uint32_t own = n / kPage, before = own == 0 ? 0 : own - 1;
    std::vector<bool> read(own + 1, true);
    if (policy_.pages == 0 || rows_[n] > 16 || before + 2 <= policy_.pages) return read;
    Row bound(before);
    for (uint32_t page = 0; page < before; ++page) {
      for (size_t d = 0; d < kKDim; ++d) {
        double least = INFINITY, greatest = -INFINITY;
        for (uint32_t p = page * kPage; p < (page + 1) * kPage; ++p) {
          const double key = turned(cached.keys[p], kv_head, p)[d];
          least = std::min(least, key);
          greatest = std::max(greatest, key);
        }
        for (const Row& q : queries) bound[page] += std::max(q[d] * least, q[d] * greatest);
      }
    }
    std::vector<uint32_t> order(before);
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return bound[a] > bound[b]; });
    for (size_t i = policy_.pages - 2; i < order.size(); ++i) read[order[i]] = false;
    return read;
  }

  // Begins a step whose first row is at position n.
  void evict(Cached& cached, uint32_t n) const {
    for (uint32_t row = 0; row < rows_[n]; ++row) {
      for (KeptTokens& kept : cached.kept) {
        if (row == 0) kept.step(*policy_.evicts, n, rows_[n]);
        std::set<uint32_t>& seen = cached.seen.emplace_back();
        for (const auto& [position, score] : kept.score) seen.insert(position);
      }
    }
  }
  // The row at position n, the last but so many of its step, leans on what is kept.
  void lean(Cached& cached, uint32_t n, uint32_t from_end, const std::vector<Row>& weights) const {
    if (policy_.evicts->observe != 0 && from_end >= policy_.evicts->observe) return;
    for (size_t kv = 0; kv < weights.size(); ++kv) {
      KeptTokens& kept = cached.kept[kv];
      for (const auto& [position, score] : kept.score) {
        if (position <= n) kept.pending[position] += weights[kv][position];
      }
    }
  }

  // Returns the heads of a row, and adds its softmax weights to `weights`, which are by KV head and position.
  Row attend(const Layer& l, const Cached& cached, const Row& q, uint32_t n, std::vector<Row>& weights) const {
    Row out;
    const uint32_t group = l.q_heads / l.kv_heads;
    for (uint32_t kv = 0; kv < l.kv_heads; ++kv) {
      std::vector<Row> queries;
      for (uint32_t g = 0; g < group; ++g) queries.push_back(turned(q, kv * group + g, index_of(n, n)));
      const std::vector<bool> pages = l.window == 0 ? pages_read(cached, kv, queries, n) : std::vector<bool>();
      for (const Row& query : queries) {
        Row mean(kVDim), shares(n + 1);
        double sum = 0;
        for (uint32_t p = 0; p <= n; ++p) {
          if (l.window != 0 && p + l.window <= n) continue;
          if (policy_.window != 0 && p >= policy_.sinks && p + policy_.window <= n) continue;
          if (l.window == 0 && !pages[p / kPage]) continue;
          if (policy_.evicts && !cached.seen[n * l.kv_heads + kv].contains(p)) continue;
          const double weight =
              std::exp(dot(query, turned(cached.keys[p], kv, index_of(p, n))) * static_cast<double>(kScale));
          sum += weight;
          shares[p] = weight;
          for (size_t d = 0; d < kVDim; ++d) mean[d] += weight * cached.values[p][kv * kVDim + d];
        }
        for (const double m : mean) out.push_back(m / sum);
        for (uint32_t p = 0; p <= n; ++p) weights[kv][p] += shares[p] / sum;
      }
    }
    return out;
  }

  void add_attention(size_t number, std::vector<Row>& x) {
    const Layer& l = kSharing[number];
    const std::string path = path_of(number);
    if (!l.cache_of) {
      Cached& mine = cached_[number];
      for (const Row& row : x) {
        mine.keys.push_back(normed(product(path + ".k", row), path + ".k_norm"));
        mine.values.push_back(product(path + ".v", row));
      }
      mine.kept.resize(l.kv_heads);
    }
    Cached& cached = cached_.at(l.cache_of.value_or(static_cast<uint32_t>(number)));
    const bool decides = policy_.evicts && !l.cache_of;
    uint32_t end = 0;  // of the row's step
    for (uint32_t n = 0; n < x.size(); ++n) {
      if (decides && n == end) evict(cached, n);
      if (n == end) end += rows_[n];
      std::vector<Row> weights(l.kv_heads, Row(n + 1));
      const Row q = normed(product(path + ".q", x[n]), path + ".q_norm");
      const Row o = product(path + ".o", attend(l, cached, q, n, weights));
      if (decides) lean(cached, n, end - 1 - n, weights);
      for (size_t i = 0; i < kWidth; ++i) x[n][i] += o[i];
    }
  }

  const MadeWeights& w_;
  std::vector<uint32_t> rows_;
  Policy policy_;
  std::map<size_t, Cached> cached_;  // by layer
};

}  // namespace tenon::test::shared_cache
