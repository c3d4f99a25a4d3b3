// config.json and GGUF describe rope: frequencies are held against the formulas of the papers. What is wrong is
// refused.
#include "model/family/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "expect_error.h"
#include "model/family/family_config.h"
#include "support/weights_writer.h"

namespace tenon::family {
namespace {

using testing::expect_error;
using testing::ScratchFolder;

constexpr size_t kPairs = 8;  // a head of 16 dimensions has so many
constexpr double kTheta = 10000;

// Only the description of this model is there. `group` stands in config.json beside its counts.
std::string config_json(const std::string& group) {
  return R"({"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_size": 64,
    "intermediate_size": 72, "vocab_size": 260, "max_position_embeddings": 4096)" +
         (group.empty() ? "" : ", " + group) + "}";
}

Rope rope_of(const std::string& group) {
  const ScratchFolder folder;
  folder.put("config.json", config_json(group));
  folder.put("model.safetensors", testing::SafetensorsWriter().tensor("x", "F32", {1}, "1234").bytes());
  const auto weights = open_weights(folder.path().string());
  return read_config(*family_for(*weights), *weights).ropes.front();
}

void expect_refused(const std::string& group, const std::vector<std::string>& parts) {
  expect_error(ErrorCode::kModel, parts, [&] { rope_of(group); });
}

double plain(size_t i, double theta = kTheta) {
  return 1 / std::pow(theta, static_cast<double>(2 * i) / (2 * kPairs));
}

void expect_frequencies(const Rope& rope, uint32_t positions, const std::function<double(size_t)>& expected) {
  const std::vector<double> found = frequencies(rope, positions);
  ASSERT_EQ(found.size(), kPairs);
  for (size_t i = 0; i < kPairs; ++i) EXPECT_NEAR(found[i] / expected(i), 1, 1e-12) << "pair " << i;
}

TEST(Rope, WithoutScaling) {
  for (const char* group : {"", R"("rope_scaling": null)", R"("rope_scaling": {"rope_type": "default"})",
                            R"("rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"})",
                            R"("rope_parameters": {"rope_theta": 10000}, "rope_theta": 10000)"}) {
    const Rope rope = rope_of(group);
    expect_frequencies(rope, 9999, [](size_t i) { return plain(i); });
    EXPECT_EQ(rope.attention_factor, 1) << group;
  }
}

TEST(Rope, Linear) {
  for (const char* group : {R"("rope_scaling": {"type": "linear", "factor": 4})",
                            R"("rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0})"}) {
    expect_frequencies(rope_of(group), 100, [](size_t i) { return plain(i) / 4; });
  }
}

// It is theta' = theta * (s l / L - (s - 1)) ^ (d / (d - 2)) for a length l beyond the context L.
TEST(Rope, DynamicGrowsThetaBeyondTheContext) {
  const Rope rope = rope_of(R"("rope_scaling": {"rope_type": "dynamic", "factor": 3})");
  expect_frequencies(rope, 4096, [](size_t i) { return plain(i); });
  const double theta = kTheta * std::pow(3.0 * 10240 / 4096 - 2, 16.0 / 14);
  EXPECT_NEAR(theta, 10000 * std::pow(5.5, 8.0 / 7), 1e-6);
  expect_frequencies(rope, 10240, [&](size_t i) { return plain(i, theta); });
}

// A pair that turns more than 32 times within the original context keeps its frequency, one that turns less than once
// is interpolated. For d = 16, theta = 10000 and a context of 1024 these are the pairs 1.41 and 4.42, rounded to 1
// and 5.
TEST(Rope, YarnKeepsFastPairs) {
  const Rope rope = rope_of(
      R"("rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "finetuned": true})");
  const auto slow = [](size_t i) { return std::min(1.0, std::max(0.0, (static_cast<double>(i) - 1) / 4)); };
  expect_frequencies(rope, 4096, [&](size_t i) { return plain(i) / 4 * slow(i) + plain(i) * (1 - slow(i)); });
  EXPECT_NEAR(rope.attention_factor, 1.1386294361119891, 1e-15);  // 0.1 ln 4 + 1
}

TEST(Rope, YarnTakesItsBoundsAndFactorsFromTheDescription) {
  const Rope rope = rope_of(R"("original_max_position_embeddings": 512, "rope_parameters": {"rope_type": "yarn",
    "rope_theta": 10000.0, "factor": 8, "beta_fast": 16, "beta_slow": 2, "truncate": false, "mscale": 0.7,
    "mscale_all_dim": 0.5})");
  const auto pair = [](double turns) {
    return 16 * std::log(512 / (turns * 2 * std::numbers::pi)) / (2 * std::log(kTheta));
  };
  const double first = pair(16), last = pair(2);
  const auto slow = [&](size_t i) { return std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0); };
  expect_frequencies(rope, 4096, [&](size_t i) { return plain(i) / 8 * slow(i) + plain(i) * (1 - slow(i)); });
  EXPECT_NEAR(rope.attention_factor, (0.07 * std::log(8) + 1) / (0.05 * std::log(8) + 1), 1e-15);
  EXPECT_EQ(rope_of(R"("rope_scaling": {"rope_type": "yarn", "factor": 8, "attention_factor": 0.9})").attention_factor,
            0.9);
}

TEST(Rope, LongropeHasDivisorsForShortAndForLongContexts) {
  const Rope rope = rope_of(R"("original_max_position_embeddings": 1024, "rope_scaling": {"type": "longrope",
    "short_factor": [1, 1, 1, 1, 1, 1, 1, 2], "long_factor": [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]})");
  expect_frequencies(rope, 1024, [](size_t i) { return plain(i) / (i == 7 ? 2 : 1); });
  expect_frequencies(rope, 1025, [](size_t i) { return plain(i) / (1 + 0.5 * static_cast<double>(i)); });
  EXPECT_NEAR(rope.attention_factor, std::sqrt(1.2), 1e-15);  // 1 + ln 4 / ln 1024
}

// Wavelengths above L / 1 are interpolated, those below L / 4 kept, those between blended.
TEST(Rope, Llama3) {
  const Rope rope = rope_of(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
    "high_freq_factor": 4, "original_max_position_embeddings": 256})");
  expect_frequencies(rope, 4096, [](size_t i) {
    const double wavelength = 2 * std::numbers::pi / plain(i);
    if (wavelength > 256) return plain(i) / 8;
    if (wavelength < 64) return plain(i);
    const double smooth = (256 / wavelength - 1) / 3;
    return (1 - smooth) * plain(i) / 8 + smooth * plain(i);
  });
}

TEST(Rope, WhatIsNotComputedIsRefusedByName) {
  expect_refused(R"("rope_scaling": {"rope_type": "proportional", "factor": 2})",
                 {"config.json",
                  "rope scaling \"proportional\" is not supported; supported: linear, dynamic, yarn, "
                  "longrope, llama3"});
  expect_refused(R"("rope_scaling": {"factor": 2})",
                 {"key \"rope_scaling.factor\": found 2, but rope_scaling has no rope_type; expected one of linear"});
  expect_refused(R"("rope_scaling": "linear")",
                 {"key \"rope_scaling\": found the text \"linear\", expected an object or null"});
  expect_refused(R"("rope_scaling": [1, 2])", {"key \"rope_scaling\": found a list of 2 integers"});
  expect_refused(R"("rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6}})",
                 {"key \"rope_parameters.full_attention.rope_theta\"", "expected one rope for all layers"});
  expect_refused(R"("rope_parameters": {"rope_type": "linear", "factor": 2}, "rope_scaling": {"type": "linear"})",
                 {"found rope_scaling and rope_parameters, expected one of them"});
  expect_refused(R"("rope_parameters": {"rope_theta": 5e5}, "rope_theta": 10000)",
                 {"\"rope_parameters.rope_theta\" and \"rope_theta\": found 500000 and 10000"});
  expect_refused(R"("rope_scaling": {"rope_type": "linear", "factor": 2, "alpha": 3})",
                 {"key \"rope_scaling.alpha\": found 3, which a rope of type \"linear\" does not have"});
  expect_refused(R"("rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 2})",
                 {"key \"rope_scaling.type\": found dynamic, expected the same as rope_type, linear"});
  expect_refused(R"("rope_scaling": {"rope_type": "longrope", "short_factor": [1], "factor": 2})",
                 {"\"rope_scaling.short_factor\": found a list of 1 integers, expected a list of 8 positive numbers",
                  "\"rope_scaling.long_factor\": found none"});
  expect_refused(
      R"("rope_scaling": {"rope_type": "llama3", "factor": 2})",
      {"key \"rope_scaling.low_freq_factor\" is missing", "key \"rope_scaling.high_freq_factor\" is missing"});
}

// The models of transformers ignore the factor with the default rope and fail with the other types.
TEST(Rope, HeadsAreTurnedAsAWhole) {
  for (const char* group : {R"("partial_rotary_factor": 0.5)", R"("rope_scaling": {"partial_rotary_factor": 0.5})"}) {
    expect_refused(group, {"key \"partial_rotary_factor\": found 0.500000, expected 1"});
  }
  EXPECT_EQ(rope_of(R"("partial_rotary_factor": 1.0)").rotated, 16U);
}

TEST(Rope, NullIsAbsentOnlyWhereTransformersTakesIt) {
  EXPECT_EQ(
      rope_of(R"("rope_scaling": {"type": "yarn", "factor": null, "original_max_position_embeddings": 1024})").factor,
      4);
  expect_refused(R"("rope_scaling": {"type": "yarn", "original_max_position_embeddings": 1024})",
                 {"key \"rope_scaling.factor\" is missing"});
  expect_refused(R"("rope_scaling": {"type": "yarn", "factor": 4, "truncate": null})",
                 {"key \"rope_scaling.truncate\": found null"});
  expect_refused(R"("rope_scaling": {"type": "linear", "factor": null})", {"key \"rope_scaling.factor\": found null"});
  expect_refused(R"("rope_scaling": {"rope_type": null})", {"key \"rope_scaling.rope_type\": found null"});
  expect_refused(R"("rope_scaling": {"rope_type": ""})", {"key \"rope_scaling.rope_type\": found \"\""});
  expect_refused(R"("rope_theta": null)", {"key \"rope_theta\": found null"});
  EXPECT_EQ(rope_of(R"("rope_scaling": {})").scaling, RopeScaling::kNone);
}

TEST(Rope, TheFirstContextIsAWholeNumber) {
  const std::string lists = R"("short_factor": [1,1,1,1,1,1,1,1], "long_factor": [2,2,2,2,2,2,2,2])";
  for (const char* context : {"1.75", "1", "0.5"}) {
    expect_refused(R"("rope_scaling": {"type": "longrope", "original_max_position_embeddings": )" +
                       std::string(context) + ", " + lists + "}",
                   {"key \"rope_scaling.original_max_position_embeddings\": found", "a whole number, at least 2"});
  }
}

TEST(Rope, FrequenciesThatMeanNothingAreRefused) {
  expect_refused(R"("rope_theta": 1e-30)", {"rope with rope_theta 1e-30 turns a pair", "radians a position"});
  expect_refused(R"("rope_scaling": {"type": "linear", "factor": 1e-30})",
                 {"rope_scaling.factor 1e-30 turns a pair of dimensions by 1e+30 radians"});
}

// A key with a dot is not the path of another, and no key stands for the list of those that are null.
TEST(Rope, KeysThatLookLikePathsAreNone) {
  const std::string dotted =
      R"("rope_scaling.rope_type": "linear", "rope_scaling.factor": 2, "null_keys": ["rope_theta"])";
  const ScratchFolder folder;
  folder.put("config.json", config_json(dotted));
  folder.put("model.safetensors", testing::SafetensorsWriter().tensor("x", "F32", {1}, "1234").bytes());
  const auto weights = open_weights(folder.path().string());
  EXPECT_EQ(read_config(*family_for(*weights), *weights).ropes.front().scaling, RopeScaling::kNone);
  EXPECT_EQ(metadata_int(*weights, "rope_scaling\\.factor"), 2);
}

TEST(Rope, NumbersArePositiveAndFinite) {
  expect_refused(
      R"("rope_theta": 0, "rms_norm_eps": 1e-60, "rope_scaling": {"type": "linear", "factor": -2})",
      {"key \"rope_theta\": found 0, expected a positive number", "key \"rms_norm_eps\" is no positive number in f32",
       "key \"rope_scaling.factor\": found -2, expected a positive number"});
  expect_refused(R"("rms_norm_eps": "small", "rope_theta": 1e999)", {"\"rms_norm_eps\" is the text \"small\""});
  expect_refused(R"("rope_theta": {"a": 1})", {"key \"rope_theta\": found an object, expected a number"});
  expect_refused(R"("rope_parameters": {"rope_theta": {"a": 1}})",
                 {"key \"rope_parameters.rope_theta\": found an object, expected a number"});
}

// These are the longest forms that llama.cpp writes.
testing::GgufWriter gguf_model() {
  testing::GgufWriter gguf;
  gguf.add("general.architecture", "llama").add("llama.block_count", uint32_t{1});
  gguf.add("llama.attention.head_count", uint32_t{4}).add("llama.embedding_length", uint32_t{64});
  gguf.add("llama.feed_forward_length", uint32_t{72}).add("llama.context_length", uint32_t{4096});
  gguf.add("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  gguf.tensor("token_embd.weight", 0, {260, 64}, std::string(size_t{260} * 64 * 4, '\0'));
  return gguf;
}

Rope rope_of(const testing::GgufWriter& gguf) {
  const ScratchFolder folder;
  const auto weights = open_weights(folder.put("m.gguf", gguf.bytes()));
  return read_config(*family_for(*weights), *weights).ropes.front();
}

TEST(GgufRope, Yarn) {
  testing::GgufWriter gguf = gguf_model();
  gguf.add("llama.rope.scaling.type", "yarn").add("llama.rope.scaling.factor", 4.0F);
  gguf.add("llama.rope.scaling.original_context_length", uint32_t{1024});
  const Rope rope = rope_of(gguf),
             same =
                 rope_of(R"("rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024})");
  expect_frequencies(rope, 4096, [&](size_t i) { return frequencies(same, 4096)[i]; });
  EXPECT_EQ(rope.attention_factor, same.attention_factor);
}

TEST(GgufRope, LongropeHasItsDivisorsInTensors) {
  testing::GgufWriter gguf = gguf_model();
  gguf.add("llama.rope.scaling.type", "longrope").add("llama.rope.scaling.attn_factor", 1.25F);
  gguf.add("llama.rope.scaling.original_context_length", uint32_t{1024});
  gguf.tensor("rope_factors_long.weight", 0, {8}, testing::bytes_of(std::vector<float>{2, 2, 2, 2, 2, 2, 2, 4}));
  expect_error(ErrorCode::kModel, {"expected the tensors rope_factors_short.weight"}, [&] { rope_of(gguf); });
  gguf.tensor("rope_factors_short.weight", 0, {8}, testing::bytes_of(std::vector<float>(8, 1)));
  const Rope rope = rope_of(gguf);
  expect_frequencies(rope, 1025, [](size_t i) { return plain(i) / (i == 7 ? 4 : 2); });
  EXPECT_EQ(rope.attention_factor, 1.25);
}

TEST(GgufRope, WhatIsWrongIsNamed) {
  testing::GgufWriter factor = gguf_model();
  factor.add("llama.rope.scaling.factor", 4.0F);
  expect_error(ErrorCode::kModel, {"\"llama.rope.scaling.factor\" is there without \"llama.rope.scaling.type\""},
               [&] { rope_of(factor); });
  testing::GgufWriter type = gguf_model();
  type.add("llama.rope.scaling.type", "ntk").add("llama.rope.freq_base", std::nanf(""));
  type.tensor("rope_freqs.weight", 0, {8}, testing::bytes_of(std::vector<float>{1, 1, 1, 0, 1, 1, 1, 1}));
  expect_error(ErrorCode::kModel,
               {"found \"ntk\", expected none, linear, yarn or longrope",
                "key \"llama.rope.freq_base\": found nan, expected a positive number",
                "tensor \"rope_freqs.weight\": element 3 is 0.000000, expected a positive number"},
               [&] { rope_of(type); });
  testing::GgufWriter length = gguf_model();
  length.tensor("rope_freqs.weight", 0, {7}, testing::bytes_of(std::vector<float>(7, 1)));
  expect_error(ErrorCode::kModel, {"tensor \"rope_freqs.weight\" is f32 (7), expected f32 (8)"},
               [&] { rope_of(length); });
}

}  // namespace
}  // namespace tenon::family
