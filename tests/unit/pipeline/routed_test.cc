// A pipeline has routed products: a model whose experts are chosen by the token is held against a dense reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "made_model.h"
#include "support/weight_rows.h"
#include "tenon/core/error.h"

namespace tenon::test {
namespace {

using ::testing::HasSubstr;
using Row = std::vector<double>;

constexpr int64_t kWidth = 32, kInner = 40, kVocab = 48;
constexpr int32_t kExperts = 5;
const std::vector<int32_t> kPrompt = {3, 0, 4, 4, 1, 2, 0};

std::string expert_name(int32_t expert, const std::string& matrix) {
  return "experts." + std::to_string(expert) + "." + matrix;
}

// This is logits = head(down_e(silu(gate_e x) * up_e x)), x the embedding of the token and e the token.
MadeModel mixture() {
  MadeModel m;
  m.info.vocab = kVocab;
  m.info.width = kWidth;
  m.info.context = 64;
  m.declare = [](MadeWeights& w, Declarations& declare) -> Record {
    const auto routed = [&](const std::string& name, int64_t rows, int64_t columns) {
      LinearDecl d{.matrix = {.path = "experts." + name, .name = "", .tensors = {}, .rows = rows}, .columns = columns};
      for (int32_t e = 0; e < kExperts; ++e) {
        d.experts.push_back(w.matrix(d.matrix.path, expert_name(e, name), rows, columns));
      }
      return declare.linear(d);
    };
    LinearDecl embedding{.matrix = w.matrix("embedding", "embedding", kVocab, kWidth), .columns = kWidth};
    embedding.product = false;
    embedding.lookup = true;
    const LinearId rows = declare.linear(embedding);
    const LinearId gate = routed("gate", kInner, kWidth), up = routed("up", kInner, kWidth);
    const JoinedId gated = declare.joined({.linears = {gate, up}, .after = {{.name = "silu_mul"}}});
    const LinearId down = routed("down", kWidth, kInner);
    const LinearId head = declare.linear({.matrix = w.matrix("lm_head", "head", kVocab, kWidth), .columns = kWidth});
    return [=](StepBuilder& b) {
      const tenon_tid expert = b.tokens(), x = b.embed(rows);
      return b.linear(head, b.out_rows(b.linear(down, b.joined(gated, x, {}, expert), {}, expert)));
    };
  };
  return m;
}

Row product(const MadeWeights& w, const std::string& name, const Row& x, bool int8) {
  Values matrix = w.values(name + ".weight");
  if (int8) {
    for (size_t at = 0; at < matrix.size(); at += x.size()) hold_as_int8(&matrix[at], x.size());
  }
  Row y(matrix.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    for (size_t i = 0; i < x.size(); ++i) y[r] += static_cast<double>(matrix[r * x.size() + i]) * x[i];
  }
  return y;
}

Row reference(const MadeWeights& w, int32_t token, bool int8) {
  const Values& embedding = w.values("embedding.weight");
  const auto begin = embedding.begin() + token * kWidth;
  const Row x(begin, begin + kWidth);
  const Row gate = product(w, expert_name(token, "gate"), x, int8), up = product(w, expert_name(token, "up"), x, int8);
  Row inner(gate.size());
  for (size_t i = 0; i < inner.size(); ++i) inner[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return product(w, "head", product(w, expert_name(token, "down"), inner, int8), false);
}

TEST(RoutedProducts, EqualADenseReference) {
  for (const char* scheme : {"none", "int8wo"}) {
    SCOPED_TRACE(scheme);
    MadeModel m = mixture();
    const std::string override = std::string("quantization.override=[{match=\"experts.*\", use=\"") + scheme + "\"}]";
    const std::vector<Values> got = logits_of(m, kPrompt, 3, {override});
    // int8wo may multiply x in 16 bits.
    const bool int8 = std::string(scheme) == "int8wo";
    const double within = int8 ? 6e-3 : 2e-4;
    for (size_t r = 0; r < got.size(); ++r) {
      const Row want = reference(m.weights, kPrompt[kPrompt.size() - got.size() + r], int8);
      ASSERT_EQ(got[r].size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(double{got[r][i]}, want[i], within) << r << ' ' << i;
    }
  }
}

// This is x + the sum of weight_e * down_e(silu(gate_e x) * up_e x) over the two experts with the highest scores of a
// router.
MadeModel two_experts() {
  MadeModel m = mixture();
  m.declare = [](MadeWeights& w, Declarations& declare) -> Record {
    const auto routed = [&](const std::string& name, int64_t rows, int64_t columns) {
      LinearDecl d{.matrix = {.path = "experts." + name, .name = "", .tensors = {}, .rows = rows}, .columns = columns};
      for (int32_t e = 0; e < kExperts; ++e) {
        d.experts.push_back(w.matrix(d.matrix.path, expert_name(e, name), rows, columns));
      }
      d.chosen = 2;
      return declare.linear(d);
    };
    const auto ops = [&](int64_t columns, OpCall call) {
      return declare.row_ops({.path = "experts.choice", .columns = columns, .ops = {std::move(call)}});
    };
    LinearDecl embedding{.matrix = w.matrix("embedding", "embedding", kVocab, kWidth), .columns = kWidth};
    embedding.product = false;
    embedding.lookup = true;
    const LinearId rows = declare.linear(embedding);
    const LinearId router =
        declare.linear({.matrix = w.matrix("router", "router", kExperts, kWidth), .columns = kWidth});
    const RowOpsId choose = ops(kExperts, {.name = "chosen_experts", .numbers = {{"chosen", 2}}});
    const RepeatedRows twice{.times = 2,
                             .repeat = ops(kWidth, {.name = "repeat", .numbers = {{"times", 2}}}),
                             .live_rows = ops(kWidth, {.name = "live_rows", .numbers = {{"times", 2}}})};
    const RowOpsId sum =
        ops(2 * kWidth, {.name = "expert_sum", .numbers = {{"chosen", 2}, {"renormalised", 1}, {"count", kExperts}}});
    const LinearId gate = routed("gate", kInner, kWidth), up = routed("up", kInner, kWidth);
    const JoinedId gated = declare.joined({.linears = {gate, up}, .after = {{.name = "silu_mul"}}});
    const LinearId down = routed("down", kWidth, kInner);
    const LinearId head = declare.linear({.matrix = w.matrix("lm_head", "head", kVocab, kWidth), .columns = kWidth});
    return [=](StepBuilder& b) {
      const tenon_tid x = b.embed(rows), scores = b.linear(router, x), chosen = b.row_ops(choose, scores);
      const tenon_tid repeated = b.repeat_rows(twice, x), expert = b.experts_of(b.as_rows(chosen));
      const tenon_tid made = b.linear(down, b.joined(gated, repeated, {}, expert), {}, expert);
      b.end_repeat();
      return b.linear(head, b.out_rows(b.row_ops(sum, b.as_rows(made), {chosen, scores, x})));
    };
  };
  return m;
}

Row reference_of_two(const MadeWeights& w, int32_t token) {
  const auto begin = w.values("embedding.weight").begin() + token * kWidth;
  const Row x(begin, begin + kWidth), scores = product(w, "router", x, false);
  std::vector<int32_t> order(kExperts);
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](int32_t e) { return scores[static_cast<size_t>(e)]; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
  Row y = x;
  for (size_t rank = 0; rank < 2; ++rank) {
    const Row gate = product(w, expert_name(order[rank], "gate"), x, false),
              up = product(w, expert_name(order[rank], "up"), x, false);
    Row inner(gate.size());
    for (size_t i = 0; i < inner.size(); ++i) inner[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    const Row down = product(w, expert_name(order[rank], "down"), inner, false);
    const double weight = 1 / (1 + std::exp(score(order[1 - rank]) - score(order[rank])));
    for (size_t i = 0; i < y.size(); ++i) y[i] += weight * down[i];
  }
  return product(w, "head", y, false);
}

TEST(RoutedProducts, SeveralExpertsOfARowAreOneProduct) {
  MadeModel m = two_experts();
  for (const std::vector<int32_t>& prompt : {kPrompt, std::vector<int32_t>{4}}) {
    const std::vector<Values> got = logits_of(m, prompt, static_cast<uint32_t>(prompt.size()));
    for (size_t r = 0; r < got.size(); ++r) {
      const Row want = reference_of_two(m.weights, prompt[r]);
      ASSERT_EQ(got[r].size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(double{got[r][i]}, want[i], 2e-4) << r << ' ' << i << " of " << prompt.size();
      }
    }
  }
}

// Ops around a routed product that the scheme does not claim run on all of its rows.
TEST(RoutedProducts, OfSchemesThatAreCutGiveTheSame) {
  MadeModel m = mixture();
  const std::vector<Values> whole = logits_of(m, kPrompt, 2);
  const std::vector<Values> cut =
      logits_of(m, kPrompt, 2, {"quantization.override=[{match=\"experts.up\", use=\"none\", dtype=\"fp32\"}]"});
  for (size_t r = 0; r < 2; ++r) EXPECT_THAT(cut[r], testing::Pointwise(testing::FloatNear(1e-4F), whole[r]));
}

TEST(RoutedProducts, AStepReadsTheExpertsThatItsRowsCanChoose) {
  MadeModel m = mixture();
  const auto pipeline = build(m, 8, 1);
  constexpr uint64_t kExpertBytes = 3 * kInner * kWidth * sizeof(float), kHeadBytes = kVocab * kWidth * sizeof(float);
  for (const uint32_t rows : {1U, 2U, 4U}) {
    EXPECT_EQ(pipeline->step_weight_bytes(rows), kHeadBytes + rows * kExpertBytes) << rows;
  }
  EXPECT_EQ(pipeline->step_weight_bytes(kExperts), kHeadBytes + kExperts * kExpertBytes);
  EXPECT_EQ(pipeline->step_weight_bytes(8), kHeadBytes + kExperts * kExpertBytes);
}

TEST(RoutedProducts, ASchemeThatHasNoneIsNamedWithWhatHas) {
  EXPECT_THAT(error_of(mixture(), {"quantization.override=[{match=\"experts.*\", use=\"plain\"}]"}),
              testing::AllOf(HasSubstr("quantization.plain refuses: expert matrices are not supported"),
                             HasSubstr("\"none\" holds it as it is stored")));
}

TEST(RoutedProducts, ExpertsMustBeStoredAlike) {
  MadeModel m = mixture();
  m.weights.add_bytes(expert_name(3, "gate") + ".weight", TENON_BF16, {kInner, kWidth},
                      std::vector<std::byte>(kInner * kWidth * 2));
  EXPECT_THAT(error_of(std::move(m)),
              ::testing::AllOf(
                  HasSubstr("matrices \"experts.0.gate\" and \"experts.3.gate\" of experts.gate are not stored alike"),
                  HasSubstr("must be: tensor \"experts.0.gate.weight\" is "),
                  HasSubstr(", and \"experts.3.gate.weight\" is bf16 (")));
}

}  // namespace
}  // namespace tenon::test
