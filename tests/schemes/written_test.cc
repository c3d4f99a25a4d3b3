// This tests the folders that schemes write: names, types and bytes of their tensors, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "quantization/rows/half_quadratic.h"
#include "schemes.h"
#include "support/weights_writer.h"
#include "tenon/core/tokenizer.h"
#include "tenon/core/weights.h"
#include "weights/expect_error.h"

namespace tenon::test {
namespace {

using tenon::testing::bytes_of;
using tenon::testing::expect_error;
using tenon::testing::SafetensorsWriter;
using tenon::testing::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kName[] = "model.layers.0.mlp.up_proj";

std::vector<float> some_weights(size_t n) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> w(n);
  for (float& v : w) v = normal(random);
  std::fill_n(w.begin(), std::min<size_t>(n, 40), 0.F);
  if (n > 100) {
    w[90] = -30000.F;
    w[91] = 1e-40F;
  }
  return w;
}

// Makes a Hugging Face folder of one matrix and a norm.
std::string folder_of(const ScratchFolder& scratch, const std::vector<float>& w, uint64_t columns) {
  const std::string folder = scratch.path() / "in";
  std::filesystem::create_directory(folder);
  scratch.put("in/config.json", R"({"model_type": "llama", "hidden_size": 8, "eos_token_id": [2, 3]})");
  scratch.put("in/tokenizer.json", R"({"any": "text"})");
  scratch.put("in/README.md", "not of the model");
  scratch.put("in/model.safetensors",
              SafetensorsWriter()
                  .tensor(std::string(kName) + ".weight", "F32", {w.size() / columns, columns}, bytes_of(w))
                  .tensor("norm.weight", "BF16", {3}, "abcdef")
                  .bytes());
  return folder;
}

// This has a file's tensors as any reader of safetensors sees them.
class Header {
 public:
  explicit Header(const std::filesystem::path& folder) {
    std::ifstream file(folder / "model.safetensors", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t size = 0;
    std::memcpy(&size, bytes_.data(), sizeof(size));
    text_ = bytes_.substr(8, size);
  }
  const std::string& text() const { return text_; }
  // Returns the bytes of a tensor of that type and shape; none if it is not there or not so.
  std::string tensor(const std::string& name, const std::string& rest) const {
    const std::string entry = "\"" + name + "\":{" + rest + ",\"data_offsets\":[";
    const size_t at = text_.find(entry);
    if (at == std::string::npos) return "";
    char* end = nullptr;
    const uint64_t from = std::strtoull(text_.data() + at + entry.size(), &end, 10);
    const uint64_t to = std::strtoull(end + 1, nullptr, 10);
    return bytes_.substr(8 + text_.size() + from, to - from);
  }

 private:
  std::string bytes_, text_;
};

class Int8 : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Int8, IsARowsScaleAndItsCodes) {
  const uint32_t columns = GetParam();
  const std::vector<float> w = some_weights(size_t{columns} * 17);
  const ScratchFolder scratch;
  const auto registry = schemes();
  quantize_model(folder_of(scratch, w, columns), scratch.path() / "out", {.target = target("int8wo", *registry)});
  std::string codes, scales;
  std::vector<char> row(rows::int8_row_bytes(columns));
  for (size_t r = 0; r < 17; ++r) {
    rows::quantize_int8_row(w.data() + r * columns, columns, reinterpret_cast<uint8_t*>(row.data()));
    scales.append(row.data(), 4);
    codes.append(row.data() + 4, columns);
  }
  const Header out(scratch.path() / "out");
  const std::string name = kName, n = std::to_string(columns);
  EXPECT_EQ(out.tensor(name + ".weight", R"("dtype":"I8","shape":[17,)" + n + "]"), codes);
  EXPECT_EQ(out.tensor(name + ".weight_scale", R"("dtype":"F32","shape":[17])"), scales);
  EXPECT_EQ(out.tensor("norm.weight", R"("dtype":"BF16","shape":[3])"), "abcdef");
}

INSTANTIATE_TEST_SUITE_P(Widths, Int8, ::testing::Values(1, 31, 64, 300));

class Int4 : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t, bool>> {};

TEST_P(Int4, IsAGroupsScaleZeroAndCodes) {
  const auto [group, columns, hqq] = GetParam();
  const std::vector<float> w = some_weights(size_t{columns} * 17);
  const ScratchFolder scratch;
  const auto registry = schemes();
  quantize_model(folder_of(scratch, w, columns), scratch.path() / "out",
                 {.target = target("int4wo", *registry,
                                   {{"group_size", std::to_string(group)}, {"hqq", hqq ? "true" : "false"}})});
  std::string codes, scales, zeros;
  std::vector<char> row(rows::int4_row_bytes(columns, group));
  for (size_t r = 0; r < 17; ++r) {
    ASSERT_TRUE(rows::quantize_int4_row(w.data() + r * columns, columns, group, reinterpret_cast<uint8_t*>(row.data()),
                                        hqq ? &rows::int4_group_by_hqq : &rows::int4_group_of_range));
    for (size_t at = 0; at < row.size(); at += 4 + group / 2) {
      scales.append(row.data() + at, 2);
      zeros.append(row.data() + at + 2, 2);
      codes.append(row.data() + at + 4, group / 2);
    }
  }
  const Header out(scratch.path() / "out");
  const std::string name = kName, groups = std::to_string((columns + group - 1) / group);
  const std::string bytes = std::to_string((columns + group - 1) / group * group / 2);
  EXPECT_EQ(out.tensor(name + ".weight", R"("dtype":"U8","shape":[17,)" + bytes + "]"), codes);
  EXPECT_EQ(out.tensor(name + ".weight_scale", R"("dtype":"BF16","shape":[17,)" + groups + "]"), scales);
  EXPECT_EQ(out.tensor(name + ".weight_zero", R"("dtype":"BF16","shape":[17,)" + groups + "]"), zeros);
}

INSTANTIATE_TEST_SUITE_P(GroupsAndWidths, Int4,
                         ::testing::Combine(::testing::Values(32, 64, 128, 256), ::testing::Values(1, 31, 64, 300),
                                            ::testing::Bool()));

// Returns the numbers of e4m3 by their bits: a sign, 4 bits of exponent and 3 of mantissa; NaN where all others are
// set.
std::vector<double> numbers_of_e4m3() {
  std::vector<double> all;
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    all.push_back((code & 127) == 127 ? NAN : code > 127 ? -size : size);
  }
  return all;
}

// A part of a matrix has the scale that takes its largest weight to 448, and each weight the nearest number.
void expect_part(const std::vector<float>& w, const std::string& codes, float scale, const std::vector<size_t>& part) {
  static const std::vector<double> kNumbers = numbers_of_e4m3();
  float most = 0;
  for (const size_t at : part) most = std::max(most, std::abs(w[at]));
  EXPECT_EQ(scale, most / 448);
  for (const size_t at : part) {
    double least = INFINITY;
    for (const double number : kNumbers) {
      if (!std::isnan(number)) least = std::min(least, std::abs(number * double{scale} - double{w[at]}));
    }
    const double found = kNumbers[static_cast<uint8_t>(codes[at])] * double{scale};
    ASSERT_LE(std::abs(found - double{w[at]}), least + 1e-6 * std::abs(double{w[at]})) << at;
  }
}

TEST(Fp8, HasAScaleForEachBlock) {
  constexpr size_t kRows = 200, kColumns = 300;
  const std::vector<float> w = some_weights(kRows * kColumns);
  const ScratchFolder scratch;
  const auto registry = schemes();
  quantize_model(folder_of(scratch, w, kColumns), scratch.path() / "out",
                 {.target = target("fp8", *registry, {{"scales", "block"}})});
  const Header out(scratch.path() / "out");
  const std::string name = kName, codes = out.tensor(name + ".weight", R"("dtype":"F8_E4M3","shape":[200,300])");
  const std::string scales = out.tensor(name + ".weight_scale_inv", R"("dtype":"F32","shape":[2,3])");
  ASSERT_EQ(codes.size(), w.size());
  ASSERT_EQ(scales.size(), 6 * sizeof(float));
  for (size_t block = 0; block < 6; ++block) {
    std::vector<size_t> part;
    for (size_t r = block / 3 * 128; r < std::min(kRows, (block / 3 + 1) * 128); ++r) {
      for (size_t i = block % 3 * 128; i < std::min(kColumns, (block % 3 + 1) * 128); ++i)
        part.push_back(r * kColumns + i);
    }
    float scale = 0;
    std::memcpy(&scale, scales.data() + block * sizeof(scale), sizeof(scale));
    expect_part(w, codes, scale, part);
  }
}

TEST(Fp8, HasOneScaleForTheMatrix) {
  const std::vector<float> w = some_weights(size_t{17} * 64);
  const ScratchFolder scratch;
  const auto registry = schemes();
  quantize_model(folder_of(scratch, w, 64), scratch.path() / "out",
                 {.target = target("fp8", *registry, {{"scales", "tensor"}})});
  const Header out(scratch.path() / "out");
  const std::string name = kName, codes = out.tensor(name + ".weight", R"("dtype":"F8_E4M3","shape":[17,64])");
  const std::string scales = out.tensor(name + ".weight_scale", R"("dtype":"F32","shape":[1])");
  ASSERT_EQ(codes.size(), w.size());
  ASSERT_EQ(scales.size(), sizeof(float));
  std::vector<size_t> all(w.size());
  std::iota(all.begin(), all.end(), size_t{0});
  float scale = 0;
  std::memcpy(&scale, scales.data(), sizeof(scale));
  expect_part(w, codes, scale, all);
}

// A weight is off by at most half a step: the bytes mean what docs/quality.md says.
TEST(Written, StandsForTheWeights) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::vector<float> all = some_weights(300), w(all.begin() + 100, all.end());
  const std::string in = folder_of(scratch, w, 200), name = kName;
  quantize_model(in, scratch.path() / "a", {.target = target("int8wo", *registry)});
  quantize_model(in, scratch.path() / "b", {.target = target("int4wo", *registry, {{"group_size", "32"}})});
  const Header a(scratch.path() / "a"), b(scratch.path() / "b");
  const std::string int8 = a.tensor(name + ".weight", R"("dtype":"I8","shape":[1,200])");
  const std::string scale = a.tensor(name + ".weight_scale", R"("dtype":"F32","shape":[1])");
  const std::string int4 = b.tensor(name + ".weight", R"("dtype":"U8","shape":[1,112])");
  const std::string scales = b.tensor(name + ".weight_scale", R"("dtype":"BF16","shape":[1,7])");
  const std::string zeros = b.tensor(name + ".weight_zero", R"("dtype":"BF16","shape":[1,7])");
  ASSERT_EQ(int8.size() + scale.size() + int4.size() + scales.size() + zeros.size(), 200U + 4 + 112 + 14 + 14);
  float step8 = 0;
  std::memcpy(&step8, scale.data(), sizeof(step8));
  for (size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(static_cast<float>(static_cast<int8_t>(int8[i])) * step8, w[i], 0.51F * step8) << i;
    const auto half = [&](const std::string& of) {
      uint16_t bits = 0;
      std::memcpy(&bits, of.data() + i / 32 * 2, sizeof(bits));
      return sdk::bf16_to_float(bits);
    };
    const size_t j = i % 32;
    const auto byte = static_cast<uint8_t>(int4[i / 32 * 16 + j % 16]);
    const int q = j < 16 ? byte & 15 : byte >> 4;
    // The zero point is rounded to 8 bits as well.
    EXPECT_NEAR(static_cast<float>(q - 8) * half(scales) + half(zeros), w[i], 1.1F * half(scales)) << i;
  }
}

TEST(Written, HoldsWhatItTakesToRun) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::string in = folder_of(scratch, some_weights(640), 64);
  const QuantizeReport report =
      quantize_model(in, scratch.path() / "out", {.target = target("int4wo", *registry, {{"group_size", "32"}})});
  EXPECT_EQ(report.tensors.at("int4wo"), 1U);
  EXPECT_EQ(report.weights, 643U);
  EXPECT_EQ(report.file_bytes, std::filesystem::file_size(scratch.path() / "out/model.safetensors"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path() / "out"), {}), 3);
  std::ifstream config(scratch.path() / "out/config.json");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(config), {}),
              HasSubstr(R"("quantization_config":{"quant_method":"tenon","scheme":"int4wo","group_size":32})"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "out/tokenizer.json"));
  expect_error(ErrorCode::kModel, {"quantized already"}, [&] {
    quantize_model(scratch.path() / "out", scratch.path() / "again", {.target = target("int8wo", *registry)});
  });
}

// Core has never heard of this form; the matrix is taken whole, and a tensor of it is not by row.
TEST(Written, TakesAStrangersForm) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::vector<float> w = some_weights(700);
  quantize_model(folder_of(scratch, w, 70), scratch.path() / "out", {.target = target("seen", *registry)});
  const Header out(scratch.path() / "out");
  const std::string codes = out.tensor(std::string(kName) + ".codes", R"("dtype":"I8","shape":[10,70])");
  const std::string rows = out.tensor(std::string(kName) + ".row_scale", R"("dtype":"F32","shape":[10])");
  const std::string columns = out.tensor(std::string(kName) + ".column_scale", R"("dtype":"F32","shape":[70])");
  ASSERT_EQ(codes.size() + rows.size() + columns.size(), 700U + 40U + 280U);
  for (size_t i = 0; i < w.size(); ++i) {
    float row = 0, column = 0;
    std::memcpy(&row, rows.data() + i / 70 * 4, 4);
    std::memcpy(&column, columns.data() + i % 70 * 4, 4);
    EXPECT_NEAR(static_cast<float>(static_cast<int8_t>(codes[i])) * row * column, w[i], 0.51F * row) << i;
  }
}

TEST(Written, KeepsWhatASchemeRefusesInF16WithItsReason) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const QuantizeReport report = quantize_model(folder_of(scratch, some_weights(7 * 70), 70), scratch.path() / "out",
                                               {.target = target("seen", *registry)});
  ASSERT_EQ(report.exceptions.size(), 1U);
  EXPECT_EQ(report.exceptions[0].wanted, "seen");
  EXPECT_EQ(report.exceptions[0].reason, "an odd number of rows");
  const Header out(scratch.path() / "out");
  EXPECT_EQ(out.tensor(std::string(kName) + ".weight", R"("dtype":"F16","shape":[7,70])").size(), 980U);
}

TEST(Written, TakesOverridesOfAnyKind) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::vector<std::string> names = {"seen", "int8wo", "bf16"};
  const std::vector<QuantizeTarget> targets = quantize_targets(names, {}, *registry);
  const QuantizeReport report = quantize_model(
      golden("tiny-gqa-untied.gguf"), scratch.path() / "out",
      {.target = targets[0], .overrides = {{"model.layers.1.*", targets[1]}, {"*.down_proj.weight", targets[2]}}});
  EXPECT_EQ(report.tensors.at("seen"), 8U);    // these are embedding, head, and six of layer 0
  EXPECT_EQ(report.tensors.at("int8wo"), 6U);  // layer 1 has six
  EXPECT_EQ(report.tensors.at("bf16"), 2U);
}

TEST(Written, TakesTheTokenizerOfAGgufFileAlong) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  quantize_model(golden("tiny-gqa-untied.gguf"), scratch.path() / "out", {.target = target("int8wo", *registry)});
  const auto before = make_tokenizer(*open_weights(golden("tiny-gqa-untied.gguf")));
  const auto after = make_tokenizer(*open_weights((scratch.path() / "out").string()));
  EXPECT_EQ(after->encode("The other bird, 12!"), before->encode("The other bird, 12!"));
  EXPECT_EQ(after->info().end_of_generation, before->info().end_of_generation);
}

TEST(Written, NamesTheWeightThatCannotBeStored) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  std::vector<float> w = some_weights(640);
  w[64 * 3 + 5] = std::nanf("");
  const std::string in = folder_of(scratch, w, 64);
  for (const char* name : {"int8wo", "int4wo", "seen"}) {
    expect_error(ErrorCode::kModel, {kName, "column 5 of row 3", "is NaN"},
                 [&] { quantize_model(in, scratch.path() / "out", {.target = target(name, *registry)}); });
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

TEST(Written, RefusesWeightsThatBf16CannotHold) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  std::vector<float> w = some_weights(640);
  w[64 * 3 + 5] = 3.4e38F;
  w[64 * 3 + 6] = -3.4e38F;
  const std::string in = folder_of(scratch, w, 64);
  expect_error(ErrorCode::kModel, {kName, "int4wo", "row 3"},
               [&] { quantize_model(in, scratch.path() / "out", {.target = target("int4wo", *registry)}); });
}

TEST(Targets, SayWhatThereIs) {
  const auto registry = schemes();
  expect_error(ErrorCode::kUsage, {"Q9", "Q8_0", "int4wo", "seen"}, [&] { target("Q9", *registry); });
  expect_error(ErrorCode::kUsage, {"quantization.none", "writes no files"}, [&] { target("none", *registry); });
  expect_error(ErrorCode::kUsage, {"group_size", "48", "32, 64, 128, 256"}, [&] {
    target("int4wo", *registry, {{"group_size", "48"}});
  });
  expect_error(ErrorCode::kUsage, {"groupsize", "int4wo has group_size"}, [&] {
    target("int4wo", *registry, {{"groupsize", "32"}});
  });
  expect_error(ErrorCode::kUsage, {"group_size", "int8dq has no parameters"}, [&] {
    target("int8dq", *registry, {{"group_size", "32"}});
  });
  expect_error(ErrorCode::kUsage, {"group_size", "only quantization components"}, [&] {
    target("Q8_0", *registry, {{"group_size", "32"}});
  });
  EXPECT_EQ(target("q8_0", *registry).format, TENON_Q8_0);
  EXPECT_TRUE(target("int4wo", *registry, {{"int4wo.group_size", "32"}}).makes_folder());
}

}  // namespace
}  // namespace tenon::test
