// This computes what goes into the matrices of a small Llama in Hugging Face's form, in float64: the formulas of
// tests/golden/reference.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tenon/core/weights.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon::test {

using Rows = std::vector<std::vector<double>>;  // (rows, columns)

inline Rows rows_of(const Weights& weights, const std::string& name) {
  const WeightTensor& t = *weights.find(name);
  std::vector<std::byte> bytes(t.bytes);
  weights.read(t, 0, bytes);
  const auto columns = static_cast<size_t>(t.shape.back());
  const size_t rows = t.shape.size() == 1 ? 1 : static_cast<size_t>(t.shape.front());
  std::vector<float> w(rows * columns);
  sdk::unpack_row(t.format, bytes.data(), w.size(), w.data());
  Rows all;
  for (size_t r = 0; r < rows; ++r) {
    const auto first = w.begin() + static_cast<ptrdiff_t>(r * columns);
    all.emplace_back(first, first + static_cast<ptrdiff_t>(columns));
  }
  return all;
}

class LlamaReference {
 public:
  // `instead` has matrices by tensor name that stand in the place of the weights' own.
  explicit LlamaReference(const Weights& weights, std::map<std::string, Rows> instead = {})
      : weights_(weights),
        instead_(std::move(instead)),
        layers_(*metadata_int(weights, "num_hidden_layers")),
        heads_(static_cast<size_t>(*metadata_int(weights, "num_attention_heads"))),
        kv_heads_(static_cast<size_t>(*metadata_int(weights, "num_key_value_heads"))),
        head_dim_(static_cast<size_t>(*metadata_int(weights, "head_dim"))),
        epsilon_(*metadata_real(weights, "rms_norm_eps")),
        theta_(metadata_real(weights, "rope_parameters.rope_theta").value_or(10000)) {}

  // Returns the x of each matrix by its path: "layers.0.attention.q", "lm_head". Q, K and V have the same. The rows of an
  // expert are by the name of its tensor: "model.layers.0.block_sparse_moe.experts.1.w2".
  std::map<std::string, Rows> inputs(const std::vector<int32_t>& tokens) const {
    std::map<std::string, Rows> in;
    const Rows embedding = matrix("model.embed_tokens.weight");
    Rows x;
    for (const int32_t token : tokens) x.push_back(embedding[static_cast<size_t>(token)]);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + ".";
      const std::string path = "layers." + std::to_string(layer) + ".";
      const Rows h = norm(x, name + "input_layernorm.weight");
      for (const char* m : {"q", "k", "v"}) in[path + "attention." + m] = h;
      const Rows attended = attention(h, name + "self_attn.");
      in[path + "attention.o"] = attended;
      add(x, product(attended, name + "self_attn.o_proj.weight"));
      const Rows m = norm(x, name + "post_attention_layernorm.weight");
      if (weights_.find(name + "block_sparse_moe.gate.weight") != nullptr) {
        add(x, mixture(m, name + "block_sparse_moe.", in));
        continue;
      }
      in[path + "mlp.gate"] = in[path + "mlp.up"] = m;
      const Rows gated = silu_mul(product(m, name + "mlp.gate_proj.weight"), product(m, name + "mlp.up_proj.weight"));
      in[path + "mlp.down"] = gated;
      add(x, product(gated, name + "mlp.down_proj.weight"));
    }
    in["lm_head"] = norm(x, "model.norm.weight");
    return in;
  }

 private:
  Rows matrix(const std::string& name) const {
    const auto found = instead_.find(name);
    return found == instead_.end() ? rows_of(weights_, name) : found->second;
  }

  Rows product(const Rows& x, const std::string& name) const {
    const Rows w = matrix(name);
    Rows y;
    for (const auto& row : x) {
      y.emplace_back();
      for (const auto& of : w) {
        double sum = 0;
        for (size_t i = 0; i < row.size(); ++i) sum += row[i] * of[i];
        y.back().push_back(sum);
      }
    }
    return y;
  }

  Rows norm(const Rows& x, const std::string& name) const {
    const std::vector<double> weight = matrix(name).front();
    Rows y = x;
    for (auto& row : y) {
      double square = 0;
      for (const double v : row) square += v * v;
      const double scale = 1 / std::sqrt(square / static_cast<double>(row.size()) + epsilon_);
      for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * weight[i];
    }
    return y;
  }

  static Rows silu_mul(Rows gate, const Rows& up) {
    for (size_t r = 0; r < gate.size(); ++r) {
      for (size_t i = 0; i < gate[r].size(); ++i) gate[r][i] *= up[r][i] / (1 + std::exp(-gate[r][i]));
    }
    return gate;
  }

  // Mixtral's experts: those with the largest scores, by the softmax of these scores alone.
  Rows mixture(const Rows& x, const std::string& name, std::map<std::string, Rows>& in) const {
    const Rows scores = product(x, name + "gate.weight");
    const size_t experts = scores.front().size(), chosen = *metadata_int(weights_, "num_experts_per_tok");
    Rows y(x.size(), std::vector<double>(x.front().size()));
    for (size_t e = 0; e < experts; ++e) {
      Rows own;
      std::vector<std::pair<size_t, double>> of_row;  // the row, and the expert's share of it
      for (size_t r = 0; r < x.size(); ++r) {
        std::vector<double> best = scores[r];
        std::sort(best.rbegin(), best.rend());
        if (scores[r][e] < best[chosen - 1]) continue;
        double sum = 0;
        for (size_t i = 0; i < chosen; ++i) sum += std::exp(best[i] - best[0]);
        of_row.emplace_back(r, std::exp(scores[r][e] - best[0]) / sum);
        own.push_back(x[r]);
      }
      if (own.empty()) continue;
      const std::string expert = name + "experts." + std::to_string(e) + ".";
      in[expert + "w1"] = in[expert + "w3"] = own;
      const Rows gated = in[expert + "w2"] =
          silu_mul(product(own, expert + "w1.weight"), product(own, expert + "w3.weight"));
      const Rows down = product(gated, expert + "w2.weight");
      for (size_t i = 0; i < of_row.size(); ++i) {
        const auto [r, share] = of_row[i];
        for (size_t c = 0; c < y[r].size(); ++c) y[r][c] += share * down[i][c];
      }
    }
    return y;
  }

  static void add(Rows& x, const Rows& y) {
    for (size_t r = 0; r < x.size(); ++r) {
      for (size_t i = 0; i < x[r].size(); ++i) x[r][i] += y[r][i];
    }
  }

  // The two halves of a head turn together.
  void rotate(Rows& x) const {
    const size_t half = head_dim_ / 2;
    for (size_t r = 0; r < x.size(); ++r) {
      for (size_t begin = 0; begin < x[r].size(); begin += head_dim_) {
        for (size_t i = 0; i < half; ++i) {
          const double exponent = -2 * static_cast<double>(i) / static_cast<double>(head_dim_);
          const double angle = static_cast<double>(r) * std::pow(theta_, exponent);
          double &a = x[r][begin + i], &b = x[r][begin + half + i];
          const double before = a;
          a = before * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + before * std::sin(angle);
        }
      }
    }
  }

  Rows attention(const Rows& h, const std::string& name) const {
    Rows q = product(h, name + "q_proj.weight"), k = product(h, name + "k_proj.weight");
    const Rows v = product(h, name + "v_proj.weight");
    rotate(q);
    rotate(k);
    Rows out(h.size(), std::vector<double>(heads_ * head_dim_));
    for (size_t r = 0; r < h.size(); ++r) {
      for (size_t head = 0; head < heads_; ++head) {
        const size_t of_q = head * head_dim_, of_kv = head / (heads_ / kv_heads_) * head_dim_;
        double sum = 0;
        for (size_t c = 0; c <= r; ++c) {
          double score = 0;
          for (size_t i = 0; i < head_dim_; ++i) score += q[r][of_q + i] * k[c][of_kv + i];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(head_dim_)));
          sum += weight;
          for (size_t i = 0; i < head_dim_; ++i) out[r][of_q + i] += weight * v[c][of_kv + i];
        }
        for (size_t i = 0; i < head_dim_; ++i) out[r][of_q + i] /= sum;
      }
    }
    return out;
  }

  const Weights& weights_;
  std::map<std::string, Rows> instead_;
  int64_t layers_;
  size_t heads_, kv_heads_, head_dim_;
  double epsilon_, theta_;
};

}  // namespace tenon::test
