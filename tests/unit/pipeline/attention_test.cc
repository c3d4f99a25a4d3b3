// Attention whose keys and values have heads of different sizes, with biases on some of its products, is held against
// float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "made_model.h"

namespace tenon::test {
namespace {

using Row = std::vector<double>;

constexpr uint32_t kQHeads = 4, kKvHeads = 2, kKDim = 16, kVDim = 24, kRotated = 8, kWidth = 32, kVocab = 40;
constexpr float kScale = 0.25F;
const std::vector<int32_t> kPrompt = {3, 7, 11, 39, 2, 2, 19, 30, 5};

struct Biases {
  bool q, k, v;
};

float angle(int64_t position, uint32_t pair) {
  return static_cast<float>(position) * (pair == 0 ? 1.0F : 0.3F / static_cast<float>(pair));
}

void fill_rope(std::span<float> table) {
  for (size_t i = 0; i < table.size() / 2; ++i) {
    const float a = angle(static_cast<int64_t>(i / (kRotated / 2)), static_cast<uint32_t>(i % (kRotated / 2)));
    table[2 * i] = std::cos(a);
    table[2 * i + 1] = std::sin(a);
  }
}

MadeModel attending(const Biases& biases) {
  MadeModel m;
  m.info.vocab = kVocab;
  m.info.width = kWidth;
  m.info.context = 64;
  m.info.layers = 1;
  m.declare = [biases](MadeWeights& w, Declarations& declare) -> Record {
    const auto linear = [&](const std::string& name, uint32_t rows, uint32_t columns, bool bias) {
      LinearDecl d{
          .matrix = w.matrix("layers.0.attention." + name, name, rows, columns), .layer = 0, .columns = columns};
      if (bias) {
        const VectorId b = declare.vector(d.matrix.path + ".bias", {w.add(name + ".bias", {rows})}, rows);
        d.after = {{.name = "bias", .vectors = {{"bias", b}}}};
      }
      return d;
    };
    LinearDecl embedding = linear("embedding", kVocab, kWidth, false);
    embedding.product = false;
    embedding.lookup = true;
    const LinearId rows = declare.linear(embedding);
    AttentionDecl a{.path = "layers.0.attention", .layer = 0};
    a.q = declare.linear(linear("q", kQHeads * kKDim, kWidth, biases.q));
    a.k = declare.linear(linear("k", kKvHeads * kKDim, kWidth, biases.k));
    a.v = declare.linear(linear("v", kKvHeads * kVDim, kWidth, biases.v));
    a.q_heads = kQHeads;
    a.kv_heads = kKvHeads;
    a.k_dim = kKDim;
    a.v_dim = kVDim;
    a.scale = kScale;
    const VectorId q_norm = declare.vector("q_norm", {w.add("q_norm", {kKDim})}, kKDim);
    const VectorId k_norm = declare.vector("k_norm", {w.add("k_norm", {kKDim})}, kKDim);
    const VectorId table = declare.table("rope", declare.capacity(), kRotated, fill_rope);
    a.heads = {{.name = "qk_norm", .vectors = {{"q_weight", q_norm}, {"k_weight", k_norm}}, .numbers = {{"eps", 1e-5}}},
               {.name = "rope", .vectors = {{"table", table}}, .numbers = {{"rotated", kRotated}, {"interleaved", 0}}}};
    const LayerId layer = declare.attention(a);
    const LinearId head = declare.linear(linear("head", kVocab, kQHeads * kVDim, false));
    return [=](StepBuilder& b) { return b.linear(head, b.out_rows(b.attention(layer, b.embed(rows)))); };
  };
  return m;
}

Row product(const MadeWeights& w, const std::string& name, const Row& x, bool bias) {
  const Values& matrix = w.values(name + ".weight");
  Row y(matrix.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    if (bias) y[r] = static_cast<double>(w.values(name + ".bias")[r]);
    for (size_t i = 0; i < x.size(); ++i) y[r] += static_cast<double>(matrix[r * x.size() + i]) * x[i];
  }
  return y;
}

// Returns norm and rope of every head.
Row turned(const MadeWeights& w, Row x, const char* norm, int64_t position) {
  for (size_t h = 0; h < x.size(); h += kKDim) {
    double sum = 0;
    for (size_t i = 0; i < kKDim; ++i) sum += x[h + i] * x[h + i];
    const double scale = 1 / std::sqrt(sum / kKDim + 1e-5);
    for (size_t i = 0; i < kKDim; ++i) x[h + i] *= scale * static_cast<double>(w.values(norm)[i]);
    for (uint32_t i = 0; i < kRotated / 2; ++i) {
      const double a = static_cast<double>(angle(position, i)), u = x[h + i], v = x[h + i + kRotated / 2];
      x[h + i] = u * std::cos(a) - v * std::sin(a);
      x[h + i + kRotated / 2] = u * std::sin(a) + v * std::cos(a);
    }
  }
  return x;
}

Row attend(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values) {
  Row out;
  for (size_t h = 0; h < kQHeads; ++h) {
    const size_t kv = h / (kQHeads / kKvHeads);
    Row weights;
    double sum = 0;
    for (const Row& k : keys) {
      double dot = 0;
      for (size_t i = 0; i < kKDim; ++i) dot += q[h * kKDim + i] * k[kv * kKDim + i];
      weights.push_back(std::exp(dot * static_cast<double>(kScale)));
      sum += weights.back();
    }
    for (size_t d = 0; d < kVDim; ++d) {
      double y = 0;
      for (size_t t = 0; t < values.size(); ++t) y += weights[t] / sum * values[t][kv * kVDim + d];
      out.push_back(y);
    }
  }
  return out;
}

// Returns the logits of the last row.
Row expected(const MadeWeights& w, const Biases& biases) {
  std::vector<Row> keys, values;
  Row q;
  for (size_t t = 0; t < kPrompt.size(); ++t) {
    const auto row = w.values("embedding.weight").begin() + kPrompt[t] * static_cast<int64_t>(kWidth);
    const Row x(row, row + kWidth);
    const auto position = static_cast<int64_t>(t);
    q = turned(w, product(w, "q", x, biases.q), "q_norm", position);
    keys.push_back(turned(w, product(w, "k", x, biases.k), "k_norm", position));
    values.push_back(product(w, "v", x, biases.v));
  }
  return product(w, "head", attend(q, keys, values), false);
}

class UnequalHeads : public testing::TestWithParam<Biases> {};

TEST_P(UnequalHeads, EqualFloat64) {
  for (const char* attention : {"flash", "reference"}) {
    for (const char* scheme : {"[]", "[{match=\"layers.*.attention.k\", use=\"plain\"}]"}) {
      MadeModel m = attending(GetParam());
      const std::vector<Values> logits = logits_of(
          m, kPrompt, 1, {std::string("attention.use=") + attention, std::string("quantization.override=") + scheme});
      const Row wanted = expected(m.weights, GetParam());
      for (size_t i = 0; i < kVocab; ++i) {
        ASSERT_NEAR(static_cast<double>(logits[0][i]), wanted[i], 2e-4) << attention << ' ' << scheme << ' ' << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, UnequalHeads,
                         testing::Values(Biases{false, false, false}, Biases{true, true, true},
                                         Biases{true, false, true}));

}  // namespace
}  // namespace tenon::test
