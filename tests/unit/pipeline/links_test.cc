// Between two products activations may have a format that only these two know: which products are so linked, and what
// their schemes agree on. Nothing is computed.
#include <gtest/gtest.h>

#include "../../../core/src/pipeline/negotiation.h"
#include "../../../core/src/pipeline/product_links.h"
#include "made_model.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/linked_rows.h"

namespace tenon::test {
namespace {

constexpr int64_t kWidth = 32, kInner = 512, kVocab = 40;

// These may stand in the way of a link.
struct Between {
  bool read_twice = false, normed = false, routed = false, observed = false;
};

LinearDecl linear(MadeWeights& w, const std::string& path, int64_t rows, int64_t columns) {
  return {.matrix = w.matrix(path, path, rows, columns), .columns = columns};
}
LinearDecl inner(MadeWeights& w, const Between& between, const std::string& path, int64_t rows, int64_t columns) {
  LinearDecl d = linear(w, path, rows, columns);
  if (between.routed) d.experts = {d.matrix, d.matrix};
  return d;
}

// This makes what `down` takes, of x (columns kWidth) and the rows' experts.
using First = std::function<tenon_tid(StepBuilder&, tenon_tid x, tenon_tid expert)>;
// This is logits = head(down(first(x))), x the embedding.
MadeModel model_of(const Between& between, const std::function<First(MadeWeights&, Declarations&)>& declare_first) {
  MadeModel m;
  m.info.vocab = kVocab;
  m.info.width = kWidth;
  m.info.context = 64;
  m.declare = [between, declare_first](MadeWeights& w, Declarations& declare) -> Record {
    LinearDecl embedding = linear(w, "embedding", kVocab, kWidth);
    embedding.product = false;
    embedding.lookup = true;
    const LinearId rows = declare.linear(embedding);
    const First first = declare_first(w, declare);
    LinearDecl last = inner(w, between, "down", kWidth, kInner);
    if (between.normed) {
      const VectorId weight = declare.vector("norm", {w.add("norm.weight", {kInner})}, kInner);
      last.before = {{.name = "rms_norm", .vectors = {{"weight", weight}}, .numbers = {{"eps", 1e-5}}}};
    }
    const LinearId down = declare.linear(last), head = declare.linear(linear(w, "lm_head", kVocab, kWidth));
    return [=](StepBuilder& b) {
      const tenon_tid expert = between.routed ? b.tokens() : 0;
      tenon_tid y = first(b, b.embed(rows), expert);
      if (b.picks_early()) y = b.out_rows(y);
      tenon_tid z = b.linear(down, y, {}, expert);
      if (between.read_twice) z = b.linear(down, y, {}, expert);
      return b.linear(head, b.picks_early() ? z : b.out_rows(z));
    };
  };
  return m;
}

// Its first part is silu(gate x) * up x.
MadeModel mlp(const Between& between) {
  return model_of(between, [between](MadeWeights& w, Declarations& declare) -> First {
    const LinearId gate = declare.linear(inner(w, between, "gate", kInner, kWidth)),
                   up = declare.linear(inner(w, between, "up", kInner, kWidth));
    const JoinedId gated = declare.joined({.linears = {gate, up}, .after = {{.name = "silu_mul"}}});
    return [=](StepBuilder& b, tenon_tid x, tenon_tid expert) { return b.joined(gated, x, {}, expert); };
  });
}

// Its first part is attention.
MadeModel attention_and_product(const Between& between) {
  return model_of(between, [](MadeWeights& w, Declarations& declare) -> First {
    AttentionDecl a{.path = "layers.0.attention", .layer = 0};
    a.q_heads = a.kv_heads = 8;
    a.k_dim = a.v_dim = kInner / 8;
    a.scale = 1;
    a.q = declare.linear(linear(w, "q", kInner, kWidth));
    a.k = declare.linear(linear(w, "k", kInner, kWidth));
    a.v = declare.linear(linear(w, "v", kInner, kWidth));
    const LayerId layer = declare.attention(a);
    return [=](StepBuilder& b, tenon_tid x, tenon_tid) { return b.attention(layer, x); };
  });
}

// Returns the formats of what goes from gate and up, or from attention, to down, in steps of 16 rows, of many, and of
// many of which those that are wanted are picked in between; they are empty if these are not linked.
struct Agreed {
  std::vector<tenon_format> y, normed, attended;
};
Agreed negotiated(MadeModel model, const std::vector<std::string>& settings, const Between& between) {
  const PipelineConfig config = config_of(settings);
  StorageTable storages;
  Context context(config, registry(), {});
  Components components(config, context);
  Declared declared(model.weights, components, storages, 64, {});
  const ModelKind kind = kind_of(model);
  const std::unique_ptr<Model> built = kind.build(model.weights, declared);
  declared.make_sites();
  auto few = sdk::abi_struct<tenon_bounds>();
  few.seqs = few.out_rows = 1;
  few.rows = few.rows_per_seq = 16;
  tenon_bounds many = few;
  many.rows = many.rows_per_seq = 2048;
  const std::vector<ProgramShape> shapes = {{few}, {many}, {many, true}};
  Negotiation negotiation(true, "", components, declared, shapes);
  negotiation.run([&](const Site& site) { return between.observed && site.decl.path == "down"; },
                  {.late = product_links(*built, declared), .early = product_links(*built, declared, true)});
  Agreed formats;
  for (const AttentionLayer& layer : declared.layers) formats.attended = layer.out_formats;
  for (Site& site : declared.sites) {
    if (site.decl.mats.size() == 2) {
      formats.y = site.y_formats;
      formats.normed = site.normed_formats;
    }
    for (SiteGroup& group : site.groups) group.scheme->table().unbind(group.scheme->instance.self(), group.handle);
  }
  return formats;
}

Agreed between_products(const std::string& y, const std::string& x, const Between& between) {
  return negotiated(mlp(between),
                    {R"(quantization.override=[{match="[gu]*", use="acme.halves", y=")" + y +
                     R"("},{match="down", use="acme.halves", x=")" + x + R"("}])"},
                    between);
}
std::vector<tenon_format> agreed(const std::string& y, const std::string& x, const Between& between = {}) {
  return between_products(y, x, between).y;
}
std::vector<tenon_format> agreed_for_norm(const std::string& y, const std::string& x, const Between& between) {
  return between_products(y, x, between).normed;
}
// Returns the formats in which attention leaves its result for `down`.
std::vector<tenon_format> agreed_after_attention(const std::string& out, const std::string& x,
                                                 const Between& between = {}, const std::string& use = "acme.leaves") {
  std::vector<std::string> settings = {
      "attention.use=" + use, R"(quantization.override=[{match="down", use="acme.halves", x=")" + x + R"("}])"};
  if (use == "acme.leaves") settings.push_back("attention.out=" + out);
  return negotiated(attention_and_product(between), settings, between).attended;
}

// Rows that are picked in between are f32.
std::vector<tenon_format> both(tenon_format format) {
  return {format, format, TENON_F32};
}

TEST(ProductLinks, TwoSchemesAgreeOnAFormatThatBothHave) {
  EXPECT_EQ(agreed("bf16", "bf16"), both(TENON_BF16));
  EXPECT_EQ(agreed("f16", "f16"), both(TENON_F16));
  EXPECT_EQ(agreed("f8e4m3", "f8e4m3"), both(TENON_F8E4M3));
}

TEST(ProductLinks, OtherwiseActivationsAreF32) {
  EXPECT_EQ(agreed("bf16", "f32"), both(TENON_F32));
  EXPECT_EQ(agreed("f32", "bf16"), both(TENON_F32));
  EXPECT_EQ(agreed("f16", "bf16"), both(TENON_F32));
  EXPECT_EQ(agreed("f8e4m3", "f16"), both(TENON_F32));
}

TEST(ProductLinks, OpsBeforeTheSecondProductTakeF32) {
  EXPECT_EQ(agreed("bf16", "bf16", {.normed = true}), both(TENON_F32));
}

TEST(ProductLinks, ANormBetweenThemIsPassedByRowsBesideY) {
  const tenon_format rows = TENON_BF16 | sdk::kTiled | sdk::kNormed;
  EXPECT_EQ(agreed_for_norm("normed", "normed", {.normed = true}), both(rows));
  EXPECT_EQ(agreed("normed", "normed", {.normed = true}), both(TENON_F32));
  EXPECT_EQ(agreed_for_norm("normed", "normed", {.read_twice = true, .normed = true}), std::vector<tenon_format>());
  EXPECT_EQ(agreed_for_norm("normed", "normed", {.normed = true, .observed = true}), both(TENON_F32));
  EXPECT_EQ(agreed_for_norm("normed", "bf16", {.normed = true}), both(TENON_F32));
  EXPECT_EQ(agreed_for_norm("bf16", "normed", {.normed = true}), both(TENON_F32));
  EXPECT_EQ(agreed_for_norm("normed", "normed", {}), std::vector<tenon_format>());
}

TEST(ProductLinks, WhoeverObservesTheSecondProductSeesF32) {
  EXPECT_EQ(agreed("bf16", "bf16", {.observed = true}), both(TENON_F32));
}

TEST(ProductLinks, AResultThatIsReadTwiceIsNoLink) {
  EXPECT_EQ(agreed("bf16", "bf16", {.read_twice = true}), std::vector<tenon_format>());
}

TEST(ProductLinks, AttentionAndTheProductAfterItAgreeLikeTwoProducts) {
  EXPECT_EQ(agreed_after_attention("bf16", "bf16"), both(TENON_BF16));
  EXPECT_EQ(agreed_after_attention("f16", "f16"), both(TENON_F16));
  EXPECT_EQ(agreed_after_attention("bf16", "f16"), both(TENON_F32));
  EXPECT_EQ(agreed_after_attention("f32", "bf16"), both(TENON_F32));
  EXPECT_EQ(agreed_after_attention("bf16", "bf16", {.read_twice = true}), both(TENON_F32));
  EXPECT_EQ(agreed_after_attention("bf16", "bf16", {.normed = true}), both(TENON_F32));
  EXPECT_EQ(agreed_after_attention("bf16", "bf16", {.observed = true}), both(TENON_F32));
}

TEST(ProductLinks, AnAttentionThatKnowsNoLinksIsNotAskedForThem) {
  EXPECT_EQ(agreed_after_attention("", "bf16", {}, "reference"), both(TENON_F32));
}

TEST(ProductLinks, ProductsOfExpertsAreNoLink) {
  EXPECT_EQ(agreed("bf16", "bf16", {.routed = true}), std::vector<tenon_format>());
}

}  // namespace
}  // namespace tenon::test
