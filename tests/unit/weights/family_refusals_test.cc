// Each shipped family must refuse these descriptions: they say what its file does not compute. One key of a
// checkpoint's config.json gets another value, and the message names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "model/family/family.h"
#include "support/weights_writer.h"
#include "tenon/core/error.h"
#include "tenon/core/module.h"

namespace tenon::family {
namespace {

using ::testing::HasSubstr;
using testing::ScratchFolder;
namespace fs = std::filesystem;

// `value` is JSON.
struct Mutation {
  const char *checkpoint, *key, *value, *message;
};
void PrintTo(const Mutation& m, std::ostream* out) {
  *out << m.checkpoint << " " << m.key << " = " << m.value;
}

class Refused : public ::testing::TestWithParam<Mutation> {
 protected:
  // Returns the error of a model whose config.json has the value.
  static std::string error_of(const Mutation& m) {
    const ScratchFolder scratch;
    const fs::path folder = fs::path(TENON_SOURCE_DIR) / "tests/golden/data" / m.checkpoint;
    fs::copy(folder, scratch.path(), fs::copy_options::recursive);
    std::ifstream in(folder / "config.json");
    boost::json::object config = boost::json::parse(std::string(std::istreambuf_iterator<char>(in), {})).as_object();
    config[m.key] = boost::json::parse(m.value);
    scratch.put("config.json", boost::json::serialize(config));
    try {
      const auto model = open_weights(scratch.path().string());
      model_kind_for(*model)->translate(*model, {});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kModel);
      return e.what();
    }
    return "no error";
  }
};

TEST_P(Refused, BecauseTheFamilyComputesNothingOfTheKind) {
  EXPECT_THAT(error_of(GetParam()), HasSubstr(GetParam().message));
}

constexpr char kYarn[] = R"({"rope_type": "yarn", "factor": 2.0})";
constexpr char kSu[] = R"({"rope_type": "su", "short_factor": [1, 1, 1, 1, 1, 1], "long_factor": [1, 1, 1, 1, 1, 1]})";

const Mutation kMutations[] = {
    {"tiny-gqa-untied", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-gqa-untied", "rope_interleaved", "true", "\"rope_interleaved\": found true"},
    {"tiny-gqa-untied", "num_key_value_heads", "3", "4 query heads are no multiple of 3"},
    {"tiny-gqa-untied", "sliding_window", "24", "key \"sliding_window\", found 24"},
    {"tiny-gqa-untied", "layer_types", R"(["full_attention", "linear_attention"])", "found \"linear_attention\""},
    {"tiny-mistral", "attention_bias", "true", "\"attention_bias\": found true"},
    {"tiny-mistral", "mlp_bias", "true", "\"mlp_bias\": found true"},
    {"tiny-mistral", "layer_types", R"(["sliding_attention"])", "expected a list of 2 texts"},
    {"tiny-mistral", "attn_logit_softcapping", "30.0", "key \"attn_logit_softcapping\""},
    {"tiny-qwen2", "hidden_act", "\"relu\"", "\"hidden_act\": found the text \"relu\""},
    {"tiny-qwen2", "layer_types", R"(["full_attention", "sliding_attention"])", "found \"sliding_attention\""},
    {"tiny-qwen2", "num_experts", "8", "key \"num_experts\", found 8"},
    {"tiny-qwen3", "layer_types", R"(["full_attention", "chunked_attention"])", "found \"chunked_attention\""},
    {"tiny-qwen3", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-qwen3", "mlp_only_layers", "[0]", "key \"mlp_only_layers\""},
    {"tiny-gemma2", "hidden_activation", "\"gelu\"", "\"hidden_activation\": found the text \"gelu\""},
    {"tiny-gemma2", "use_bidirectional_attention", "true", "\"use_bidirectional_attention\": found true"},
    {"tiny-gemma2", "layer_types", R"(["full_attention"])", "expected a list of 3 texts"},
    {"tiny-gemma3", "layer_types", R"(["full_attention"])", "expected a list of 7 texts"},
    {"tiny-gemma3", "hidden_activation", "\"silu\"", "\"hidden_activation\": found the text \"silu\""},
    {"tiny-gemma3", "use_bidirectional_attention", "true", "\"use_bidirectional_attention\": found true"},
    {"tiny-granite", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-granite", "position_embedding_type", "\"nope\"", "key \"position_embedding_type\""},
    {"tiny-granite", "num_local_experts", "4", "key \"num_local_experts\", found 4"},
    {"tiny-olmo2", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-olmo2", "clip_qkv", "8.0", "key \"clip_qkv\""},
    {"tiny-olmo2", "layer_types", R"(["full_attention", "sliding_attention"])", "key \"layer_types\""},
    {"tiny-stablelm", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-stablelm", "partial_rotary_factor", "1.5", "\"partial_rotary_factor\": found"},
    {"tiny-stablelm", "qk_layernorm", "true", "\"qk_layernorm\": found true"},
    {"tiny-phi3", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-phi3", "attention_bias", "true", "\"attention_bias\": found true"},
    {"tiny-phi3", "rope_parameters", kYarn, "rope scaling \"yarn\" is not supported; supported: longrope"},
    {"tiny-phi3", "rope_parameters", kSu, "rope scaling \"su\" is not supported; supported: longrope"},
    {"tiny-phi3-longrope", "partial_rotary_factor", "0.25", "\"partial_rotary_factor\": found"},
    {"tiny-starcoder2", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-starcoder2", "norm_type", "\"rms_norm\"", "\"norm_type\": found the text \"rms_norm\""},
    {"tiny-starcoder2", "mlp_type", "\"gated\"", "\"mlp_type\": found the text \"gated\""},
    {"tiny-mixtral", "attention_bias", "true", "\"attention_bias\": found true"},
    {"tiny-mixtral", "num_experts", "4", "key \"num_local_experts\""},
    {"tiny-mixtral", "layer_types", R"(["full_attention", "sliding_attention"])", "key \"layer_types\""},
    {"tiny-qwen3-moe", "decoder_sparse_step", "2", "\"decoder_sparse_step\": found 2"},
    {"tiny-qwen3-moe", "mlp_only_layers", "[0]", "\"mlp_only_layers\": found a list of 1 integers"},
    {"tiny-qwen3-moe", "shared_expert_intermediate_size", "40", "key \"shared_expert_intermediate_size\""},
    {"tiny-olmoe", "clip_qkv", "8.0", "\"clip_qkv\": found the number 8"},
    {"tiny-olmoe", "layer_types", R"(["full_attention", "sliding_attention"])", "found \"sliding_attention\""},
    {"tiny-olmoe", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-gpt-oss", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
    {"tiny-gpt-oss", "attention_bias", "false", "\"attention_bias\": found false"},
    {"tiny-gpt-oss", "experts_per_token", "3", "\"experts_per_token\": found 3, expected 2"},
    {"tiny-gpt-oss", "num_local_experts", "4", "experts.down_proj.4.weight"},
    {"tiny-gpt-oss", "num_local_experts", "6", "experts.gate_up_proj.5.gate.weight\" is missing"},
    {"tiny-gpt-oss", "num_shared_experts", "1", "key \"num_shared_experts\""},
    {"tiny-gpt-oss", "layer_types", R"(["full_attention", "full_attention", "chunked_attention"])",
     "found \"chunked_attention\""},
    {"tiny-gpt-oss", "sliding_window", "null", "\"sliding_window\": found null"},
    {"tiny-gpt-oss", "swiglu_limit", "0", "\"swiglu_limit\": found 0"},
    {"tiny-smollm3", "no_rope_layers", "[1, 0]", "expected a list of 4 whole numbers"},
    {"tiny-smollm3", "layer_types", R"(["full_attention", "sliding_attention", "full_attention", "full_attention"])",
     "found \"sliding_attention\""},
    {"tiny-smollm3", "hidden_act", "\"gelu\"", "\"hidden_act\": found the text \"gelu\""},
};
INSTANTIATE_TEST_SUITE_P(Families, Refused, ::testing::ValuesIn(kMutations));

TEST(Refusals, EveryFamilyHasSome) {
  std::map<std::string, size_t> mutations;
  for (const Mutation& m : kMutations) {
    const fs::path folder = fs::path(TENON_SOURCE_DIR) / "tests/golden/data" / m.checkpoint;
    ++mutations[family_for(*open_weights(folder.string()))->name];
  }
  for (const ModelFamily& f : model_families({})) {
    EXPECT_GE(mutations[f.name], 3U) << f.name;
  }
}

// A file in which GGUF's architecture of gpt-oss says something else is refused, too.
TEST(Refusals, OfGptOssInGguf) {
  const fs::path file = fs::path(TENON_SOURCE_DIR) / "tests/golden/data/tiny-gpt-oss/tiny-gpt-oss.gguf";
  std::ifstream in(file, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) changed.replace(at, to.size(), to);
    const ScratchFolder scratch;
    try {
      const auto model = open_weights(scratch.put("m.gguf", changed));
      model_kind_for(*model)->translate(*model, {});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal("gpt-oss.expert_used_count", "gpt-oss.expert_makes_coun"),
              HasSubstr("expert_used_count\" is missing"));
  EXPECT_THAT(refusal("gpt-oss.attention.value_length", "gpt-oss.attention.other_length"), HasSubstr("other_length"));
  EXPECT_THAT(refusal("gpt-oss.rope.scaling.type", "gpt-oss.rope.scaling.tipe"), HasSubstr("rope.scaling.t"));
  EXPECT_EQ(refusal("GGUF", "GGUF"), "no error");
}

}  // namespace
}  // namespace tenon::family
