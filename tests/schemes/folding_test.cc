// Factors in the columns of x are folded into what stands before a product, and the model computes what it did.
#include <gtest/gtest.h>

#include <set>

#include "llama_reference.h"
#include "schemes.h"
#include "support/weights_writer.h"
#include "weights/expect_error.h"

namespace tenon::test {
namespace {

using tenon::testing::expect_error;
using tenon::testing::ScratchFolder;

struct FoldingCase {
  const char* model;
  std::set<std::string> changed;  // these tensors of the first layer change; all others stay as they are
};

std::ostream& operator<<(std::ostream& out, const FoldingCase& c) {
  return out << c.model;
}

class Folding : public ::testing::TestWithParam<FoldingCase> {};

// Returns a tensor of the model, or what was written of it.
Rows tensor(const Weights& model, const std::string& name) {
  const std::string floats = name.substr(0, name.rfind('.')) + ".floats";
  return rows_of(model, name.ends_with(".weight") && model.find(floats) != nullptr ? floats : name);
}

std::set<std::string> changed_in_first_layer(const Weights& source, const Weights& out) {
  std::set<std::string> changed;
  const std::string layer = "model.layers.0.";
  for (const WeightTensor& t : source.tensors()) {
    if (t.name.starts_with(layer) && tensor(source, t.name) != tensor(out, t.name)) {
      changed.insert(t.name.substr(layer.size()));
    }
  }
  return changed;
}

std::vector<Logprob> logprobs(const std::string& model) {
  EngineOptions options{.config = model,
                        .set = with({kExact.begin() + 2, kExact.end()}, {"quantization.use=folds"}),
                        .plugin_dirs = {TENON_SCHEME_TEST_PLUGINS, plugins()}};
  Request r = request(24);
  r.logprobs = true;
  const Result result = Engine::open(options)->generate(r);
  return {result.logprobs.begin(), result.logprobs.end()};
}

TEST_P(Folding, ChangesWeightsAndNothingThatTheyCompute) {
  const FoldingCase& c = GetParam();
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::string folder = scratch.path() / "out";
  quantize_model(golden(c.model), folder, calibrated("folds", *registry));
  const auto source = open_weights(golden(c.model)), out = open_weights(folder);
  EXPECT_EQ(changed_in_first_layer(*source, *out), c.changed);
  const auto before = logprobs(golden(c.model)), after = logprobs(folder);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i].value, after[i].value, 2e-4) << "token " << i;
}

std::set<std::string> matrices(const std::set<std::string>& more = {}) {
  std::set<std::string> names = {"input_layernorm.weight",  "post_attention_layernorm.weight",
                                 "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                 "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                                 "mlp.gate_proj.weight",    "mlp.up_proj.weight",
                                 "mlp.down_proj.weight"};
  names.insert(more.begin(), more.end());
  return names;
}

// Names what changes of a mixture's layer: its second norm goes into a router and experts.
std::set<std::string> mixture() {
  std::set<std::string> names = {"input_layernorm.weight",      "post_attention_layernorm.weight",
                                 "self_attn.q_proj.weight",     "self_attn.k_proj.weight",
                                 "self_attn.v_proj.weight",     "self_attn.o_proj.weight",
                                 "block_sparse_moe.gate.weight"};
  for (const int expert : {0, 1, 2, 3, 4}) {
    for (const char* matrix : {".w1.weight", ".w2.weight", ".w3.weight"}) {
      names.insert("block_sparse_moe.experts." + std::to_string(expert) + matrix);
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    Families, Folding,
    ::testing::Values(
        FoldingCase{"tiny-gqa-untied", matrices()},  // two heads share a row of V
        FoldingCase{"tiny-linear-scaling", matrices({"self_attn.v_proj.bias"})},
        // Its norms are stored less one; those after attention and after the MLP are followed by no product.
        FoldingCase{"tiny-gemma3",
                    {"input_layernorm.weight", "pre_feedforward_layernorm.weight", "self_attn.q_proj.weight",
                     "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                     "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}},
        // There is one matrix of Q, K and V, and one of gate and up.
        FoldingCase{"tiny-phi3",
                    {"input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.qkv_proj.weight",
                     "self_attn.o_proj.weight", "mlp.gate_up_proj.weight", "mlp.down_proj.weight"}},
        // Attention and MLP take the same x.
        FoldingCase{"tiny-stablelm-parallel",
                    {"input_layernorm.weight", "input_layernorm.bias", "self_attn.q_proj.weight",
                     "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                     "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}},
        // There is no gate: nothing is before the last product that could be divided.
        FoldingCase{"tiny-starcoder2",
                    {"input_layernorm.weight", "input_layernorm.bias", "post_attention_layernorm.weight",
                     "post_attention_layernorm.bias", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                     "self_attn.v_proj.weight", "self_attn.v_proj.bias", "self_attn.o_proj.weight", "mlp.c_fc.weight"}},
        // Its norms come after products.
        FoldingCase{
            "tiny-olmo2",
            {"self_attn.v_proj.weight", "self_attn.o_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}},
        FoldingCase{"tiny-mixtral", mixture()}));

TEST(Foldings, LeaveOutExpertsWhoseRouterIsNamed) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  QuantizeOptions options = calibrated("folds", *registry);
  options.overrides = {{"*.block_sparse_moe.gate.weight", target("BF16", *registry)}};
  quantize_model(golden("tiny-mixtral"), scratch.path() / "out", options);
  const auto out = open_weights((scratch.path() / "out").string());
  EXPECT_EQ(out->find("model.layers.0.block_sparse_moe.gate.weight")->format, TENON_BF16);
  const auto changed = changed_in_first_layer(*open_weights(golden("tiny-mixtral")), *out);
  EXPECT_FALSE(changed.contains("post_attention_layernorm.weight"));
  EXPECT_TRUE(changed.contains("block_sparse_moe.experts.0.w2.weight"));
}

TEST(Foldings, LeaveOutExpertsThatAnotherSchemeWrites) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  QuantizeOptions options = calibrated("folds", *registry);
  options.overrides = {{"*.experts.*", target("F32", *registry)}};
  quantize_model(golden("tiny-mixtral"), scratch.path() / "out", options);
  const auto source = open_weights(golden("tiny-mixtral")), out = open_weights((scratch.path() / "out").string());
  EXPECT_EQ(changed_in_first_layer(*source, *out),
            (std::set<std::string>{"input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                   "self_attn.v_proj.weight", "self_attn.o_proj.weight"}));
}

// A matrix that another scheme writes has no factors, so what shares x with it has none either.
TEST(Foldings, LeaveOutWhatAnotherSchemeWrites) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  QuantizeOptions options = calibrated("folds", *registry);
  options.overrides = {{"*.k_proj.weight", target("int8wo", *registry)},
                       {"*.up_proj.weight", target("F16", *registry)}};
  quantize_model(golden(kTiny), scratch.path() / "out", options);
  const auto source = open_weights(golden(kTiny)), out = open_weights((scratch.path() / "out").string());
  const auto same = [&](const std::string& name) {
    return tensor(*source, "model.layers.0." + name) == tensor(*out, "model.layers.0." + name);
  };
  for (const char* name : {"input_layernorm.weight", "self_attn.q_proj.weight", "post_attention_layernorm.weight",
                           "mlp.gate_proj.weight", "mlp.down_proj.weight"}) {
    EXPECT_TRUE(same(name)) << name;
  }
  EXPECT_FALSE(same("self_attn.v_proj.weight"));  // its rows have changed
  EXPECT_FALSE(same("self_attn.o_proj.weight"));
}

TEST(Foldings, RefuseFactorsThatAreNone) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  expect_error(ErrorCode::kPlugin, {"folds", "column_factors layers.0.", "expected a number above 0"}, [&] {
    quantize_model(golden(kTiny), scratch.path() / "out", calibrated("folds", *registry, {{"spread", "0"}}));
  });
}

}  // namespace
}  // namespace tenon::test
