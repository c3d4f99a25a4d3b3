// Folders of int8wo and int4wo: what the files say, what is read back, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "expect_error.h"
#include "support/weights_writer.h"
#include "tenon/core/quantize.h"
#include "tenon/core/quantize_rows.h"
#include "tenon/core/weights.h"

namespace tenon {
namespace {

using testing::bytes_of;
using testing::expect_error;
using testing::SafetensorsWriter;
using testing::ScratchFolder;

constexpr char kName[] = "model.layers.0.mlp.up_proj.weight";

std::vector<float> some_weights(size_t n) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> w(n);
  for (float& v : w) v = normal(random);
  std::fill_n(w.begin(), std::min<size_t>(n, 40), 0.F);
  if (n > 100) w[90] = -30000.F, w[91] = 1e-40F;
  return w;
}

// A Hugging Face folder of one matrix and a norm.
std::string folder_of(const ScratchFolder& scratch, const std::vector<float>& w, uint64_t columns) {
  const std::string folder = scratch.path() / "in";
  std::filesystem::create_directory(folder);
  scratch.put("in/config.json", R"({"model_type": "llama", "hidden_size": 8, "eos_token_id": [2, 3]})");
  scratch.put("in/tokenizer.json", R"({"any": "text"})");
  scratch.put("in/README.md", "not of the model");
  scratch.put("in/model.safetensors", SafetensorsWriter()
                                          .tensor(kName, "F32", {w.size() / columns, columns}, bytes_of(w))
                                          .tensor("norm.weight", "BF16", {3}, "abcdef")
                                          .bytes());
  return folder;
}

std::vector<uint8_t> expected_rows(tenon_format format, const std::vector<float>& w, uint32_t columns) {
  std::vector<uint8_t> rows;
  std::vector<uint8_t> row(sdk::row_bytes(format, columns));
  for (size_t begin = 0; begin < w.size(); begin += columns) {
    const uint32_t group = sdk::int4_group(format);
    if (group == 0) {
      sdk::cpu::quantize_int8_row(w.data() + begin, columns, row.data());
    } else {
      EXPECT_TRUE(sdk::cpu::quantize_int4_row(w.data() + begin, columns, group, row.data()));
    }
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

std::vector<uint8_t> read_all(const Weights& model, const std::string& name) {
  const WeightTensor* t = model.find(name);
  if (t == nullptr) return {};
  std::vector<uint8_t> bytes(t->bytes);
  model.read(*t, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// What the tensors of the matrix hold of each row, put together as a row is defined.
std::vector<uint8_t> joined_rows(const Weights& model, tenon_format format, size_t rows, uint32_t columns) {
  const std::vector<uint8_t> weight = read_all(model, kName), scale = read_all(model, std::string(kName) + "_scale"),
                             zero = read_all(model, std::string(kName) + "_zero");
  const uint32_t group = sdk::int4_group(format);
  const size_t units = group == 0 ? rows : scale.size() / 2, header = group == 0 ? 4 : 2;
  const size_t codes = group == 0 ? columns : group / 2;
  std::vector<uint8_t> all;
  for (size_t i = 0; i < units; ++i) {
    all.insert(all.end(), &scale[i * header], &scale[i * header] + header);
    if (group != 0) all.insert(all.end(), &zero[2 * i], &zero[2 * i] + 2);
    all.insert(all.end(), &weight[i * codes], &weight[i * codes] + codes);
    if (group == 0) all.resize(sdk::int8_row_bytes(columns) * (i + 1));
  }
  return all;
}

class Formats : public ::testing::TestWithParam<std::tuple<tenon_format, uint32_t>> {};

TEST_P(Formats, AreWrittenToTheBit) {
  const auto [format, columns] = GetParam();
  const std::vector<float> w = some_weights(size_t{columns} * 17);
  const ScratchFolder scratch;
  quantize_model(folder_of(scratch, w, columns), scratch.path() / "out", {.format = format});
  const auto out = open_weights((scratch.path() / "out").string());
  EXPECT_EQ(out->find_under("model.layers.0.mlp.up_proj").size(), sdk::int4_group(format) == 0 ? 2U : 3U);
  EXPECT_EQ(joined_rows(*out, format, 17, columns), expected_rows(format, w, columns));
  const std::vector<uint8_t> norm = read_all(*out, "norm.weight");
  EXPECT_EQ(std::string(norm.begin(), norm.end()), "abcdef");
}

INSTANTIATE_TEST_SUITE_P(All, Formats,
                         ::testing::Combine(::testing::Values(sdk::kInt8Rows, sdk::int4_rows(32), sdk::int4_rows(64),
                                                              sdk::int4_rows(128), sdk::int4_rows(256)),
                                            ::testing::Values(1U, 31U, 64U, 300U)));

// A row is off by at most half a step: the bytes mean what the documentation says.
TEST(QuantizedRows, StandForTheWeights) {
  const std::vector<float> w = some_weights(300);
  const std::vector<float> tame(w.begin() + 100, w.end());
  const auto k = static_cast<uint32_t>(tame.size());
  const std::vector<uint8_t> int8 = expected_rows(sdk::kInt8Rows, tame, k),
                             int4 = expected_rows(sdk::int4_rows(32), tame, k);
  float scale = 0;
  std::memcpy(&scale, int8.data(), sizeof(scale));
  for (uint32_t i = 0; i < k; ++i) {
    EXPECT_NEAR(static_cast<float>(static_cast<int8_t>(int8[4 + i])) * scale, tame[i], 0.51F * scale) << i;
    const uint8_t* group = int4.data() + i / 32 * 20;
    const auto half = [&](size_t at) {
      return sdk::bf16_to_float(static_cast<uint16_t>(group[at] | group[at + 1] << 8));
    };
    const uint32_t j = i % 32, q = j < 16 ? group[4 + j] & 15 : group[4 + j - 16] >> 4;
    // The zero point is rounded to 8 bits as well.
    EXPECT_NEAR((static_cast<float>(q) - 8) * half(0) + half(2), tame[i], 1.1F * half(0)) << i;
  }
}

TEST(QuantizedFolder, HoldsWhatItTakesToRun) {
  const ScratchFolder scratch;
  const std::string in = folder_of(scratch, some_weights(640), 64);
  const QuantizeReport report = quantize_model(in, scratch.path() / "out", {.format = sdk::int4_rows(32)});
  EXPECT_EQ(report.tensors.at(sdk::int4_rows(32)), 1U);
  EXPECT_EQ(report.file_bytes, std::filesystem::file_size(scratch.path() / "out/model.safetensors"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path() / "out"), {}), 3);
  const auto out = open_weights((scratch.path() / "out").string());
  EXPECT_EQ(metadata_text(*out, "model_type"), "llama");
  EXPECT_EQ(metadata_text(*out, "quantization_config.scheme"), "int4wo");
  EXPECT_EQ(metadata_int(*out, "quantization_config.group_size"), 32);
  EXPECT_EQ(metadata_text(*out, std::string("__metadata__.tenon.format.") + kName), "int4wo group_size=32 columns=64");
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "out/tokenizer.json"));
  expect_error(ErrorCode::kModel, {"quantized already"},
               [&] { quantize_model(scratch.path() / "out", scratch.path() / "again", {.format = sdk::kInt8Rows}); });
}

// The parts as any reader of safetensors sees them.
TEST(QuantizedFolder, NamesPartsAndTypes) {
  const ScratchFolder scratch;
  const std::string in = folder_of(scratch, some_weights(700), 70);
  quantize_model(in, scratch.path() / "a", {.format = sdk::kInt8Rows});
  quantize_model(in, scratch.path() / "b", {.format = sdk::int4_rows(64)});
  const auto header = [&](const char* folder) {
    std::ifstream file(scratch.path() / folder / "model.safetensors", std::ios::binary);
    std::string text(4096, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  };
  const std::string name = std::string("\"") + kName;
  EXPECT_THAT(header("a"), ::testing::HasSubstr(name + R"(":{"dtype":"I8","shape":[10,70])"));
  EXPECT_THAT(header("a"), ::testing::HasSubstr(name + R"(_scale":{"dtype":"F32","shape":[10])"));
  EXPECT_THAT(header("b"), ::testing::HasSubstr(name + R"(":{"dtype":"U8","shape":[10,64])"));
  EXPECT_THAT(header("b"), ::testing::HasSubstr(name + R"(_scale":{"dtype":"BF16","shape":[10,2])"));
  EXPECT_THAT(header("b"), ::testing::HasSubstr(name + R"(_zero":{"dtype":"BF16","shape":[10,2])"));
}

TEST(QuantizedFolder, NamesTheWeightThatCannotBeStored) {
  const ScratchFolder scratch;
  std::vector<float> w = some_weights(640);
  w[64 * 3 + 5] = std::nanf("");
  const std::string in = folder_of(scratch, w, 64);
  for (const tenon_format format : {sdk::kInt8Rows, sdk::int4_rows(32)}) {
    expect_error(ErrorCode::kModel, {kName, "column 5 of row 3", "is NaN"},
                 [&] { quantize_model(in, scratch.path() / "out", {.format = format}); });
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

}  // namespace
}  // namespace tenon
