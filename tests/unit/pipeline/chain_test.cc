// A model states chains of anybody's ops, claimed or not; this also tests what is said of those that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "made_model.h"
#include "tenon/core/error.h"

namespace tenon::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 32, kVocab = 48;
const std::vector<int32_t> kPrompt = {3, 7, 11, 40, 2, 2, 19};

// This is y = after(rms_norm(x) W^T) of an embedding's rows.
MadeModel one_product(Chain after, Chain before = {}) {
  MadeModel m;
  m.info.vocab = kVocab;
  m.info.width = kWidth;
  m.info.context = 64;
  m.declare = [after, before](MadeWeights& w, Declarations& declare) -> Record {
    LinearDecl embedding{.matrix = w.matrix("embedding", "embedding", kVocab, kWidth), .columns = kWidth};
    LinearDecl head{.matrix = w.matrix("lm_head", "head", kVocab, kWidth), .columns = kWidth};
    embedding.product = false;
    embedding.lookup = true;
    head.before = before;
    head.after = after;
    if (before.empty()) {
      head.before = {{.name = "rms_norm",
                      .vectors = {{"weight", declare.vector("norm", {w.add("norm", {kWidth})}, kWidth)}},
                      .numbers = {{"eps", 1e-5}}}};
    }
    const LinearId rows = declare.linear(embedding), product = declare.linear(head);
    return [=](StepBuilder& b) { return b.linear(product, b.out_rows(b.embed(rows))); };
  };
  return m;
}

OpCall clamp(double low, double high) {
  return {.name = "acme.clamp", .numbers = {{"low", low}, {"high", high}}};
}

TEST(Chain, AnOpThatNobodyKnowsRunsByItself) {
  MadeModel plain = one_product({}), clamped = one_product({clamp(-0.5, 0.25)});
  std::vector<Values> expected = logits_of(plain, kPrompt, 3);
  for (Values& row : expected) {
    for (float& v : row) v = std::clamp(v, -0.5F, 0.25F);
  }
  EXPECT_EQ(logits_of(clamped, kPrompt, 3), expected);
}

TEST(Chain, OpsAfterOneThatNobodyKnowsRunToo) {
  MadeModel plain = one_product({}),
            both = one_product({clamp(-0.5, 0.25), {.name = "scale", .numbers = {{"factor", 4}}}});
  std::vector<Values> expected = logits_of(plain, kPrompt, 3);
  for (Values& row : expected) {
    for (float& v : row) v = 4 * std::clamp(v, -0.5F, 0.25F);
  }
  EXPECT_EQ(logits_of(both, kPrompt, 3), expected);
}

// The head's norm stands by itself, on fewer rows than the step has.
TEST(Chain, ASchemeThatClaimsNothingGivesTheSame) {
  MadeModel m = one_product({});
  const std::vector<Values> claimed = logits_of(m, kPrompt, 2);
  const std::vector<Values> visible = logits_of(m, kPrompt, 2, {"quantization.use=plain"});
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_THAT(visible[r], testing::Pointwise(testing::FloatNear(1e-5F), claimed[r])) << r;
  }
}

TEST(Chain, AnUnknownOpIsNamedAndWhatIsThereListed) {
  EXPECT_THAT(error_of(one_product({{.name = "gelu_mull"}})),
              AllOf(HasSubstr("no op named \"gelu_mull\""), HasSubstr("gelu_mul"), HasSubstr("installed:"),
                    HasSubstr("rms_norm")));
}

TEST(Chain, ArgumentsAreChecked) {
  EXPECT_THAT(error_of(one_product({{.name = "acme.clamp", .numbers = {{"low", 0}}}})),
              HasSubstr("lm_head: op.acme.clamp: the model gives no \"high\""));
  EXPECT_THAT(error_of(one_product({{.name = "scale", .numbers = {{"factor", 1}, {"by", 1}}}})),
              HasSubstr("has no argument \"by\"; it has factor"));
  MadeModel short_norm = one_product({});
  short_norm.declare = [](MadeWeights& w, Declarations& declare) -> Record {
    LinearDecl head{.matrix = w.matrix("lm_head", "head", kVocab, kWidth), .columns = kWidth};
    head.before = {{.name = "rms_norm",
                    .vectors = {{"weight", declare.vector("short", {w.add("short", {kWidth - 1})}, kWidth - 1)}},
                    .numbers = {{"eps", 1e-5}}}};
    declare.linear(head);
    return {};
  };
  EXPECT_THAT(error_of(std::move(short_norm)), HasSubstr("short has 31 elements for 32 columns"));
  EXPECT_THAT(error_of(one_product({{.name = "rope", .vectors = {}, .numbers = {{"rotated", 8}}}})),
              HasSubstr("op.rope: the model gives no"));
}

// This is a path of three products: gate and up together, then down.
MadeModel gated(const std::string& activation) {
  MadeModel m;
  m.info.vocab = kVocab;
  m.info.width = kWidth;
  m.info.context = 64;
  m.declare = [activation](MadeWeights& w, Declarations& declare) -> Record {
    const auto linear = [&](const std::string& name, int64_t rows, int64_t columns, bool bias) {
      LinearDecl d{.matrix = w.matrix("mlp." + name, name, rows, columns), .columns = columns};
      if (bias) {
        const VectorId b = declare.vector("mlp." + name + ".bias", {w.add(name + ".bias", {rows})}, rows);
        d.after = {{.name = "bias", .vectors = {{"bias", b}}}};
      }
      return d;
    };
    LinearDecl embedding = linear("embedding", kVocab, kWidth, false);
    embedding.product = false;
    embedding.lookup = true;
    const LinearId rows = declare.linear(embedding);
    const LinearId gate = declare.linear(linear("gate", 40, kWidth, true));
    const LinearId up = declare.linear(linear("up", 40, kWidth, true));
    const JoinedId both = declare.joined({.linears = {gate, up}, .after = {{.name = activation}}});
    const LinearId head = declare.linear(linear("head", kVocab, 40, false));
    return [=](StepBuilder& b) { return b.linear(head, b.joined(both, b.out_rows(b.embed(rows)))); };
  };
  return m;
}

TEST(Joined, GateAndUpAreOneSiteWithOneBias) {
  MadeModel m = gated("silu_mul");
  const auto pipeline = build(m, 4, 1);
  const auto& decisions = pipeline->decisions();
  const auto site = std::find_if(decisions.begin(), decisions.end(), [](auto& d) { return d.path == "mlp.gate_up"; });
  ASSERT_NE(site, decisions.end());
  EXPECT_EQ(site->text, "quantization.none from f32, in place, does bias, silu_mul");
}

TEST(Joined, ASiteThatIsCutGivesTheSame) {
  for (const char* activation : {"silu_mul", "gelu_mul"}) {
    MadeModel m = gated(activation);
    const std::vector<Values> whole = logits_of(m, kPrompt, 2);
    const std::vector<Values> cut =
        logits_of(m, kPrompt, 2, {"quantization.override=[{match=\"mlp.up\", use=\"plain\"}]"});
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_THAT(cut[r], testing::Pointwise(testing::FloatNear(1e-4F), whole[r])) << activation << r;
    }
  }
}

TEST(Joined, ProductsOfDifferentInputsAreRefused) {
  MadeModel m = gated("silu_mul");
  m.declare = [](MadeWeights& w, Declarations& declare) -> Record {
    LinearDecl a{.matrix = w.matrix("a", "gate", 40, kWidth), .columns = kWidth};
    LinearDecl b{.matrix = w.matrix("b", "gate", 40, kWidth), .columns = kWidth};
    b.before = {{.name = "scale", .numbers = {{"factor", 2}}}};
    const LinearId first = declare.linear(a), second = declare.linear(b);
    declare.joined({.linears = {first, second}});
    return {};
  };
  EXPECT_THAT(error_of(std::move(m)), HasSubstr("b and a stand side by side and are not of the same x"));
}

}  // namespace
}  // namespace tenon::test
