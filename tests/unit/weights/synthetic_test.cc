// These tests read models that are made up from their names: shapes, values, and that both are always the same.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "expect_error.h"
#include "tenon/core/weights.h"

namespace tenon {
namespace {

using testing::expect_error;

std::vector<std::byte> bytes_of(const Weights& model, const std::string& name, uint64_t offset, size_t size) {
  std::vector<std::byte> out(size);
  model.read(*model.find(name), offset, out);
  return out;
}

std::vector<float> floats_of(const Weights& model, const std::string& name, size_t count) {
  const std::vector<std::byte> raw = bytes_of(model, name, 0, count * sizeof(float));
  std::vector<float> values(count);
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

float from_half(uint16_t bits, uint32_t format) {
  if (format == TENON_BF16) return std::bit_cast<float>(uint32_t{bits} << 16);
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(bits >> 15 ? -size : size);
}

uint64_t total_elements(const Weights& model) {
  uint64_t total = 0;
  for (const WeightTensor& t : model.tensors()) {
    total += static_cast<uint64_t>(
        std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; }));
  }
  return total;
}

// Parameter counts that the publishers state or that follow from their checkpoints.
TEST(Synthetic, HasTheRightNumberOfParameters) {
  const std::pair<const char*, uint64_t> models[] = {
      {"llama-7b", 6738415616},       {"llama-13b", 13015864320},       {"llama-30b", 32528943616},
      {"llama-2-7b", 6738415616},     {"llama-2-13b", 13015864320},     {"llama-2-70b", 68976648192},
      {"codellama-7b", 6738415616},   {"codellama-34b", 33743970304},   {"mistral-7b", 7241732096},
      {"mixtral-8x7b", 46702792704},  {"stories15m", 15191712},         {"stories110m", 109529856},
      {"llama-3-8b", 8030261248},     {"llama-3-70b", 70553706496},     {"llama-3.1-8b", 8030261248},
      {"llama-3.1-70b", 70553706496}, {"llama-3.1-405b", 405853388800}, {"llama-3.2-1b", 1235814400},
      {"llama-3.2-3b", 3212749824},   {"smollm2-135m", 134515008}};
  for (const auto& [name, parameters] : models) {
    const auto model = open_weights(std::string("synthetic:") + name);
    EXPECT_EQ(total_elements(*model), parameters) << name;
    uint64_t end = 0;
    for (const WeightTensor& t : model->tensors()) {
      EXPECT_EQ(t.offset, end);
      end += t.bytes;
    }
    EXPECT_EQ(end, 2 * parameters) << name;
  }
}

TEST(Synthetic, StatesWhatConfigJsonWould) {
  const auto model = open_weights("synthetic:llama-3.2-1b");
  EXPECT_EQ(model->convention(), "huggingface");
  EXPECT_TRUE(model->files().empty());
  EXPECT_EQ(metadata_text(*model, "model_type"), "llama");
  EXPECT_EQ(std::get<std::vector<std::string>>(*model->metadata("architectures")).at(0), "LlamaForCausalLM");
  const std::pair<const char*, int64_t> integers[] = {{"hidden_size", 2048},
                                                      {"intermediate_size", 8192},
                                                      {"num_hidden_layers", 16},
                                                      {"num_attention_heads", 32},
                                                      {"num_key_value_heads", 8},
                                                      {"head_dim", 64},
                                                      {"vocab_size", 128256},
                                                      {"max_position_embeddings", 131072},
                                                      {"bos_token_id", 128000},
                                                      {"eos_token_id", 128001},
                                                      {"rope_scaling.original_max_position_embeddings", 8192}};
  for (const auto& [key, value] : integers) EXPECT_EQ(metadata_int(*model, key), value) << key;
  EXPECT_EQ(metadata_real(*model, "rope_theta"), 5e5);
  EXPECT_EQ(metadata_real(*model, "rms_norm_eps"), 1e-5);
  EXPECT_EQ(metadata_real(*model, "rope_scaling.factor"), 32);
  EXPECT_EQ(metadata_real(*model, "rope_scaling.low_freq_factor"), 1);
  EXPECT_EQ(metadata_real(*model, "rope_scaling.high_freq_factor"), 4);
  EXPECT_EQ(metadata_text(*model, "rope_scaling.rope_type"), "llama3");
  EXPECT_EQ(metadata_text(*model, "torch_dtype"), "bfloat16");
  EXPECT_EQ(metadata_bool(*model, "tie_word_embeddings"), true);
  EXPECT_EQ(model->find("lm_head.weight"), nullptr);

  const auto untied = open_weights("synthetic:llama-2-70b");
  EXPECT_EQ(untied->metadata("rope_scaling.factor"), nullptr);
  EXPECT_EQ(untied->find("lm_head.weight")->shape, (std::vector<int64_t>{32000, 8192}));
  EXPECT_EQ(untied->find("model.layers.79.self_attn.k_proj.weight")->shape, (std::vector<int64_t>{1024, 8192}));
  EXPECT_EQ(untied->find("model.layers.79.mlp.down_proj.weight")->shape, (std::vector<int64_t>{8192, 28672}));
  EXPECT_EQ(metadata_text(*open_weights("synthetic:mixtral-8x7b"), "model_type"), "mixtral");
  EXPECT_EQ(metadata_int(*open_weights("synthetic:mixtral-8x7b"), "num_local_experts"), 8);
  EXPECT_EQ(metadata_text(*open_weights("synthetic:mistral-7b"), "model_type"), "mistral");
}

TEST(Synthetic, SameSeedSameWeights) {
  const std::string name = "model.layers.3.mlp.up_proj.weight";
  const auto one = open_weights("synthetic:stories15m", {.seed = 5});
  const auto same = open_weights("synthetic:stories15m", {.seed = 5});
  const auto other = open_weights("synthetic:stories15m", {.seed = 6});
  EXPECT_EQ(bytes_of(*one, name, 0, 4096), bytes_of(*same, name, 0, 4096));
  EXPECT_NE(bytes_of(*one, name, 0, 4096), bytes_of(*other, name, 0, 4096));
  EXPECT_NE(bytes_of(*one, name, 0, 4096), bytes_of(*one, "model.layers.4.mlp.up_proj.weight", 0, 4096));
}

// This pins the values, which must not change between releases or machines.
TEST(Synthetic, ValuesAreFixed) {
  const auto model = open_weights("synthetic:stories15m", {.seed = 1, .format = TENON_F32});
  const std::vector<float> values = floats_of(*model, "model.embed_tokens.weight", 4);
  const int sums[] = {95, -381, -219, -236};  // sums of four bytes less 510, by another program
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], static_cast<float>(sums[i]) * (0.02F / 147.80F)) << i;
  }
}

TEST(Synthetic, AnyRangeCanBeReadAlone) {
  for (const uint32_t format : {TENON_F32, TENON_F16, TENON_BF16}) {
    const auto model = open_weights("synthetic:stories15m", {.seed = 9, .format = format});
    const std::string name = "model.layers.0.self_attn.q_proj.weight";
    const WeightTensor& tensor = *model->find(name);
    const std::vector<std::byte> whole = bytes_of(*model, name, 0, tensor.bytes);
    for (const uint64_t offset : {0, 1, 2, 3, 5, 7, 8, 4095, 4097, 100003}) {
      for (const size_t size : {0, 1, 2, 3, 9, 4096, 5001}) {
        const auto at = whole.begin() + static_cast<ptrdiff_t>(offset);
        EXPECT_EQ(bytes_of(*model, name, offset, size), std::vector<std::byte>(at, at + static_cast<ptrdiff_t>(size)));
      }
    }
    EXPECT_EQ(model->mapped(tensor), nullptr);
    expect_error(ErrorCode::kInternal, {name}, [&] { bytes_of(*model, name, tensor.bytes - 3, 4); });
  }
}

TEST(Synthetic, MatricesAreNearNormalAndNormsNearOne) {
  const auto model = open_weights("synthetic:stories15m", {.seed = 2, .format = TENON_F32});
  const size_t count = 288 * 288;
  const std::vector<float> values = floats_of(*model, "model.layers.1.self_attn.v_proj.weight", count);
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  for (size_t i = 0; i < count; ++i) {
    const double v = values[i];
    sum += v;
    squares += v * v;
    fourths += v * v * v * v;
    neighbours += v * static_cast<double>(values[(i + 1) % count]);
  }
  const double variance = squares / count;
  EXPECT_NEAR(sum / count, 0, 3e-4);
  EXPECT_NEAR(std::sqrt(variance), 0.02, 3e-4);
  EXPECT_NEAR(fourths / count / (variance * variance), 2.7, 0.1);  // a normal distribution has 3, four uniform ones 2.7
  EXPECT_NEAR(neighbours / squares, 0, 0.015);
  for (const float v : floats_of(*model, "model.norm.weight", 288)) EXPECT_NEAR(v, 1, 0.07);
}

TEST(Synthetic, FormatsHoldTheSameNumbersRounded) {
  const std::string name = "model.layers.0.mlp.gate_proj.weight";
  const auto wide = floats_of(*open_weights("synthetic:stories15m", {.format = TENON_F32}), name, 4096);
  for (const uint32_t format : {TENON_F16, TENON_BF16}) {
    const auto raw = bytes_of(*open_weights("synthetic:stories15m", {.format = format}), name, 0, 8192);
    const float tolerance = format == TENON_F16 ? 0x1p-11F : 0x1p-8F;
    for (size_t i = 0; i < wide.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, raw.data() + 2 * i, 2);
      ASSERT_NEAR(from_half(bits, format), wide[i], std::abs(wide[i]) * tolerance) << i;
    }
  }
}

TEST(Synthetic, UnknownNamesListTheKnown) {
  expect_error(ErrorCode::kModel, {"\"llama-2-7\"", "did you mean \"llama-2-7b\"?", "smollm2-135m", "llama-3.1-405b"},
               [] { open_weights("synthetic:llama-2-7"); });
  expect_error(ErrorCode::kModel, {"no synthetic model \"\"", "llama-2-7b"}, [] { open_weights("synthetic:"); });
  expect_error(ErrorCode::kConfig, {"bf16, f16 or f32", "q4_0"},
               [] { open_weights("synthetic:stories15m", {.format = TENON_Q4_0}); });
}

}  // namespace
}  // namespace tenon
