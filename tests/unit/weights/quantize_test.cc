// GGUF files are made of GGUF files: what is read back is what the formats' definitions give, and the rest is copied.
#include "tenon/core/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "expect_error.h"
#include "model/weights/gguf_encode.h"
#include "support/weights_writer.h"
#include "tenon/core/weights.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon {
namespace {

using sdk::float_to_bf16;
using sdk::float_to_half;
using sdk::half_to_float;
using testing::bytes_of;
using testing::expect_error;
using testing::GgufWriter;
using testing::ScratchFolder;

constexpr uint32_t kF32 = 0, kF16 = 1, kI32 = 26, kBf16 = 30;  // these are ggml's numbers
constexpr float kInfinity = std::numeric_limits<float>::infinity();

QuantizeOptions as(tenon_format format, bool replace = false) {
  QuantizeOptions options;
  options.target.format = format;
  options.replace = replace;
  return options;
}

float rounded_half(float v) {
  return half_to_float(float_to_half(v));
}

// Returns blocks of 32 with what is hard about them, among random ones.
std::vector<float> hard_weights(size_t n) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> w(n);
  for (float& v : w) v = normal(random);
  const auto block = [&](size_t index, auto&& value) {
    for (size_t j = 0; j < 32; ++j) w[index * 32 + j] = value(j);
  };
  block(0, [](size_t) { return 0.F; });
  block(1, [](size_t j) { return j % 2 == 0 ? 0.F : -0.F; });
  block(2, [](size_t j) { return 1e-40F * static_cast<float>(j); });            // these are f32 subnormals
  block(3, [](size_t j) { return 3e-6F * (static_cast<float>(j) - 16); });      // subnormal scales
  block(4, [](size_t j) { return j == 7 ? -30000.F : 1e-3F; });                 // there is one large outlier
  block(5, [](size_t) { return 0.3F; });                                        // the range is nothing
  block(6, [](size_t j) { return (static_cast<float>(j) - 15.5F) * 0.125F; });  // these are ties
  block(7, [](size_t j) { return static_cast<float>(j) + 100; });               // these are far from zero
  return w;
}

// These are the definitions, a weight at a time: what block `w` stands for once it is stored.
std::vector<float> defined(tenon_format format, std::span<const float> w) {
  std::vector<float> result;
  const float low = *std::min_element(w.begin(), w.end()), high = *std::max_element(w.begin(), w.end());
  const float extreme =
      *std::max_element(w.begin(), w.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  for (const float v : w) {
    float d = 0, q = 0, m = 0;
    const auto scaled = [&](float value) { return rounded_half(d) == 0 ? 0 : value * (1 / d); };
    switch (format) {
      case TENON_F32:
        result.push_back(v);
        continue;
      case TENON_F16:
        result.push_back(rounded_half(v));
        continue;
      case TENON_BF16:
        result.push_back(sdk::bf16_to_float(float_to_bf16(v)));
        continue;
      case TENON_Q8_0:
        d = std::abs(extreme) / 127;
        q = std::round(scaled(v));
        break;
      case TENON_Q4_0:
      case TENON_Q5_0: {
        const float zero = format == TENON_Q4_0 ? 8 : 16;
        d = extreme / -zero;
        q = std::min(2 * zero - 1, std::floor(scaled(v) + (zero + 0.5F))) - zero;
        break;
      }
      default: {
        const float most = format == TENON_Q4_1 ? 15 : 31;
        d = (high - low) / most;
        m = low;
        q = std::min(most, std::floor(scaled(v - low) + 0.5F));
      }
    }
    result.push_back(q * rounded_half(d) + rounded_half(m));
  }
  return result;
}

std::vector<float> read_weights(const Weights& model, const std::string& name) {
  const WeightTensor& t = *model.find(name);
  std::vector<std::byte> bytes(t.bytes);
  model.read(t, 0, bytes);
  size_t n = 1;
  for (const int64_t dim : t.shape) n *= static_cast<size_t>(dim);
  std::vector<float> w(n);
  sdk::unpack_row(t.format, bytes.data(), n, w.data());
  return w;
}

GgufWriter model_of(const std::vector<float>& matrix, uint64_t width) {
  GgufWriter writer;
  writer.add("general.architecture", "llama").add<uint32_t>("general.file_type", 0).add<uint16_t>("odd", 7);
  writer.tensor("blk.0.ffn_up.weight", kF32, {matrix.size() / width, width}, bytes_of(matrix));
  return writer;
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Schemes : public ::testing::TestWithParam<tenon_format> {};

TEST_P(Schemes, ReadBackAsTheyAreDefined) {
  const std::vector<float> w = hard_weights(96 * 64);
  const ScratchFolder folder;
  quantize_model(folder.put("in.gguf", model_of(w, 64).bytes()), folder.path() / "out.gguf", as(GetParam()));
  const auto out = open_weights(folder.path() / "out.gguf");
  EXPECT_EQ(out->find("blk.0.ffn_up.weight")->format, GetParam());
  const std::vector<float> got = read_weights(*out, "blk.0.ffn_up.weight");
  for (size_t begin = 0; begin < w.size(); begin += 32) {
    const std::vector<float> expected = defined(GetParam(), std::span(w).subspan(begin, 32));
    for (size_t j = 0; j < 32; ++j) ASSERT_EQ(got[begin + j], expected[j]) << begin + j << ": " << w[begin + j];
  }
}

TEST_P(Schemes, OfTheirOwnOutputChangeNothing) {
  const ScratchFolder folder;
  const auto again = [&](const char* in, const char* out) {
    quantize_model(folder.path() / in, folder.path() / out, as(GetParam()));
  };
  folder.put("in.gguf", model_of(hard_weights(96 * 64), 64).bytes());
  again("in.gguf", "one.gguf");
  again("one.gguf", "two.gguf");
  EXPECT_TRUE(file_bytes(folder.path() / "one.gguf") == file_bytes(folder.path() / "two.gguf"));
}

INSTANTIATE_TEST_SUITE_P(All, Schemes,
                         ::testing::Values(TENON_F32, TENON_F16, TENON_BF16, TENON_Q8_0, TENON_Q4_0, TENON_Q4_1,
                                           TENON_Q5_0, TENON_Q5_1),
                         [](const auto& param) { return std::string(tenon_format_name(param.param)); });

// These are the values of the golden blocks, as gguf-py quantizes them.
TEST(Encode, GivesTheBlocksOfGgufPy) {
  const std::filesystem::path data = std::filesystem::path(TENON_SOURCE_DIR) / "tests/golden/data";
  const std::string values = file_bytes(data / "gguf_blocks.f32"), blocks = file_bytes(data / "gguf_encoded.bin");
  std::vector<float> w(values.size() / sizeof(float));
  ASSERT_GT(w.size(), 0U);
  std::memcpy(w.data(), values.data(), values.size());
  size_t begin = 0;
  for (const tenon_format format : {TENON_Q8_0, TENON_Q4_0, TENON_Q4_1, TENON_Q5_0, TENON_Q5_1}) {
    std::vector<uint8_t> made(w.size() / 32 * tenon_format_block(format).bytes);
    ASSERT_FALSE(weights::encode_row(format, w.data(), w.size(), made.data()));
    ASSERT_LE(begin + made.size(), blocks.size());
    EXPECT_EQ(std::memcmp(made.data(), blocks.data() + begin, made.size()), 0) << tenon_format_name(format);
    begin += made.size();
  }
  EXPECT_EQ(begin, blocks.size());
}

TEST(Encode, OfQ8ValuesGivesTheSameBlocks) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    float w[32];
    uint8_t first[34], second[34];
    const float size = std::ldexp(1.F, static_cast<int>(random() % 40) - 30);
    for (float& v : w) v = size * (static_cast<float>(random() % 20001) / 1e4F - 1);
    ASSERT_FALSE(weights::encode_row(TENON_Q8_0, w, 32, first));
    sdk::unpack_block(TENON_Q8_0, first, w);
    ASSERT_FALSE(weights::encode_row(TENON_Q8_0, w, 32, second));
    ASSERT_TRUE(std::equal(first, first + 34, second)) << "round " << round;
  }
}

std::vector<float> normal_weights(size_t n) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}
double square_error(tenon_format format, const std::vector<float>& w) {
  const tenon_block block = tenon_format_block(format);
  std::vector<uint8_t> stored(w.size() / block.elements * block.bytes);
  EXPECT_FALSE(weights::encode_row(format, w.data(), w.size(), stored.data()));
  std::vector<float> got(w.size());
  sdk::unpack_row(format, stored.data(), w.size(), got.data());
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += (double{got[i]} - w[i]) * (double{got[i]} - w[i]);
  return sum;
}

// Rounding to the nearest in the range of a group, with scales that are not rounded themselves, is worse than what a
// search for scales finds, though the types round those.
TEST(Encode, OfSuperblocksFindsBetterScalesThanTheRange) {
  const std::vector<float> w = normal_weights(256 * 256);
  struct Case {
    tenon_format format;
    size_t group;
    int least, most;  // the integers have this range
    double share;     // the error is at most this share of that of plain rounding
  };
  for (const Case c :
       {Case{TENON_Q2_K, 16, 0, 3, 0.75}, Case{TENON_Q3_K, 16, -4, 3, 0.92}, Case{TENON_Q4_K, 32, 0, 15, 0.85},
        Case{TENON_Q5_K, 32, 0, 31, 0.9}, Case{TENON_Q6_K, 16, -32, 31, 0.9}}) {
    double plain = 0;
    for (size_t g = 0; g < w.size(); g += c.group) {
      const auto [low, high] = std::minmax_element(w.begin() + g, w.begin() + g + c.group);
      const float peak = -*low > *high ? *low : *high, minimum = c.least == 0 ? std::min(*low, 0.F) : 0;
      const float step =
          c.least == 0 ? (*high - minimum) / static_cast<float>(c.most) : peak / static_cast<float>(c.least);
      for (size_t i = g; i < g + c.group; ++i) {
        const float q = std::clamp(std::nearbyint((w[i] - minimum) / step), static_cast<float>(c.least),
                                   static_cast<float>(c.most));
        plain += std::pow(double{step} * q + minimum - w[i], 2);
      }
    }
    EXPECT_LT(square_error(c.format, w), c.share * plain) << tenon_format_name(c.format);
    RecordProperty(tenon_format_name(c.format), std::to_string(square_error(c.format, w) / plain));
  }
}

// Each weight takes the nearest of sixteen numbers, of which the outermost is put on the largest weight: what is left of
// that error are better scales, though those of IQ4_XS are integers.
TEST(Encode, OfNumbersToChooseFromFindsBetterScalesThanTheRange) {
  const std::vector<float> w = normal_weights(256 * 256);
  double plain = 0;
  for (size_t g = 0; g < w.size(); g += 32) {
    const auto peak =
        std::max_element(w.begin() + g, w.begin() + g + 32, [](float a, float b) { return std::abs(a) < std::abs(b); });
    const float scale = *peak / sdk::Iq4Numbers::value(0);
    for (size_t i = g; i < g + 32; ++i) {
      double least = kInfinity;
      for (uint32_t code = 0; code < 16; ++code) {
        least = std::min(least, std::pow(double{scale} * sdk::Iq4Numbers::value(code) - w[i], 2));
      }
      plain += least;
    }
  }
  const double nl = square_error(TENON_IQ4_NL, w), xs = square_error(TENON_IQ4_XS, w);
  EXPECT_LT(nl, 0.93 * plain);
  EXPECT_LT(xs, 0.96 * plain);
  EXPECT_LT(nl, xs);
  EXPECT_LT(xs, square_error(TENON_Q4_0, w));
  RecordProperty("iq4_nl", std::to_string(nl / plain));
  RecordProperty("iq4_xs", std::to_string(xs / plain));
}

// There is no definition to the bit: each weight is within half a step of what its run's or group's scale can say.
TEST(Encode, OfSuperblocksIsNear) {
  const std::vector<float> w = [] {
    std::vector<float> values = normal_weights(256 * 64);
    std::fill_n(values.begin(), 256, 0.F);
    std::fill_n(values.begin() + 256, 256, -0.25F);
    for (size_t i = 512; i < 768; ++i) values[i] = 1e-40F;
    return values;
  }();
  struct Case {
    tenon_format format;
    size_t run;
    float steps;        // between the least and the largest of a run
    float scales = 50;  // a scale is off by this share of the block's largest weight
  };
  for (const Case c : {Case{TENON_Q6_K, 16, 32}, Case{TENON_Q5_K, 32, 31}, Case{TENON_Q4_K, 32, 15},
                       Case{TENON_Q3_K, 16, 4}, Case{TENON_Q2_K, 16, 3, 8}}) {
    const tenon_block block = tenon_format_block(c.format);
    std::vector<uint8_t> stored(w.size() / block.elements * block.bytes);
    ASSERT_FALSE(weights::encode_row(c.format, w.data(), w.size(), stored.data()));
    std::vector<float> got(w.size());
    sdk::unpack_row(c.format, stored.data(), w.size(), got.data());
    for (size_t block_begin = 0; block_begin < w.size(); block_begin += 256) {
      float most = 0;
      for (size_t i = block_begin; i < block_begin + 256; ++i) most = std::max(most, std::abs(w[i]));
      for (size_t i = block_begin; i < block_begin + 256; ++i) {
        const size_t run = i / c.run * c.run;
        const auto [low, high] = std::minmax_element(w.begin() + run, w.begin() + run + c.run);
        const float range = std::max({std::abs(*low), std::abs(*high), *high - *low});
        ASSERT_NEAR(got[i], w[i], 0.51F * range / c.steps + most / c.scales + 1e-39F)
            << tenon_format_name(c.format) << " " << i;
      }
    }
  }
}

TEST(Encode, RefusesWhatCannotBeStored) {
  uint8_t out[256 * 4];
  for (const QuantizeFormat& scheme : quantize_formats()) {
    std::vector<float> w(256, 0.5F);
    EXPECT_FALSE(weights::encode_row(scheme.format, w.data(), 256, out)) << scheme.name;
    for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
      w[77] = bad;
      const auto found = weights::encode_row(scheme.format, w.data(), 256, out);
      ASSERT_TRUE(found) << scheme.name;
      EXPECT_EQ(found->index, 77U);
    }
    w[77] = 3e38F;
    const auto found = weights::encode_row(scheme.format, w.data(), 256, out);
    ASSERT_EQ(found.has_value(), scheme.format != TENON_F32 && scheme.format != TENON_BF16) << scheme.name;
    if (found) {
      EXPECT_EQ(found->index, 77U) << scheme.name;
    }
  }
}

TEST(Quantize, KeepsWhatIsNoMatrixAndCopiesMetadata) {
  const ScratchFolder folder;
  const std::vector<float> w = hard_weights(96 * 64), norm = hard_weights(256);
  const std::vector<uint16_t> half_norm(40, float_to_half(0.75F));
  GgufWriter writer = model_of(w, 64);
  writer.add("tokenizer.ggml.scores", std::vector<float>{0.1F, -2}).add<uint32_t>("general.alignment", 64);
  writer.add("texts", std::vector<std::string>{"", "b"}).add<uint32_t>("general.quantization_version", 2);
  writer.alignment = 64;
  writer.tensor("norm.weight", kF32, {256}, bytes_of(norm)).tensor("half.bias", kF16, {40}, bytes_of(half_norm));
  writer.tensor("brain.weight", kBf16, {40}, bytes_of(std::vector<uint16_t>(40, float_to_bf16(0.75F))));
  writer.tensor("narrow.weight", kF32, {2, 40}, bytes_of(std::vector<float>(80, 0.1F)));
  writer.tensor("ids", kI32, {2, 3}, bytes_of(std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  writer.tensor("other.weight", kF32, {2, 32}, bytes_of(std::vector<float>(64, -1)));
  const std::string in = folder.put("in.gguf", writer.bytes());
  QuantizeOptions options = as(TENON_Q4_1);
  options.overrides = {{"o*", {TENON_Q8_0}}, {"other.*", {TENON_BF16}}};
  const QuantizeReport report = quantize_model(in, folder.path() / "out.gguf", options);
  const auto before = open_weights(in), after = open_weights(folder.path() / "out.gguf");
  ASSERT_EQ(after->metadata_keys(), before->metadata_keys());
  for (const std::string& key : before->metadata_keys()) {
    if (key == "general.file_type") continue;
    EXPECT_EQ(*after->metadata(key), *before->metadata(key)) << key;
  }
  EXPECT_EQ(metadata_int(*after, "general.file_type"), 3);
  const std::string bytes = file_bytes(folder.path() / "out.gguf");
  std::string pair;  // the type too is as it was
  testing::append_string(pair, "odd");
  testing::append<uint32_t>(pair, 2);
  testing::append<uint16_t>(pair, 7);
  EXPECT_NE(bytes.find(pair), std::string::npos);
  EXPECT_EQ(bytes.size(), report.file_bytes);

  const auto format = [&](const char* name) { return after->find(name)->format; };
  EXPECT_EQ(format("blk.0.ffn_up.weight"), uint32_t{TENON_Q4_1});
  EXPECT_EQ(format("norm.weight"), uint32_t{TENON_F32});
  EXPECT_EQ(read_weights(*after, "norm.weight"), norm);
  EXPECT_EQ(format("half.bias"), uint32_t{TENON_F32});
  EXPECT_EQ(read_weights(*after, "half.bias"), std::vector<float>(40, 0.75F));
  EXPECT_EQ(format("brain.weight"), uint32_t{TENON_F32});
  EXPECT_EQ(read_weights(*after, "brain.weight"), std::vector<float>(40, 0.75F));
  EXPECT_EQ(format("narrow.weight"), uint32_t{TENON_F16});
  EXPECT_EQ(format("ids"), uint32_t{TENON_I32});
  EXPECT_EQ(format("other.weight"), uint32_t{TENON_BF16});
  ASSERT_EQ(report.exceptions.size(), 1U);
  EXPECT_EQ(report.exceptions[0].tensor, "narrow.weight");
  EXPECT_EQ(report.exceptions[0].wanted, "Q4_1");
  EXPECT_NE(report.exceptions[0].reason.find("rows of 40 weights"), std::string::npos);
  EXPECT_EQ(report.tensors.at("f32"), 3U);
  for (const WeightTensor& t : after->tensors()) EXPECT_EQ(t.offset % 64, 0U) << t.name;
}

TEST(Quantize, JoinsTheFilesOfASplitModel) {
  const ScratchFolder folder;
  const std::vector<float> w = hard_weights(256);
  for (uint16_t part = 0; part < 2; ++part) {
    GgufWriter writer;
    if (part == 0) writer.add("general.architecture", "llama").add<int32_t>("split.tensors.count", 2);
    writer.add<uint16_t>("split.no", part).add<uint16_t>("split.count", 2);
    writer.tensor("w" + std::to_string(part), kF32, {2, 128}, bytes_of(w));
    folder.put("in-0000" + std::to_string(part + 1) + "-of-00002.gguf", writer.bytes());
  }
  quantize_model(folder.path() / "in-00002-of-00002.gguf", folder.path() / "out.gguf", as(TENON_Q8_0));
  const auto out = open_weights(folder.path() / "out.gguf");
  EXPECT_EQ(out->tensors().size(), 2U);
  EXPECT_EQ(out->metadata("split.count"), nullptr);
  EXPECT_EQ(read_weights(*out, "w0"), read_weights(*out, "w1"));
}

TEST(Quantize, NamesWhatItRefusesAndLeavesNothing) {
  const ScratchFolder folder;
  const std::filesystem::path out = folder.path() / "out.gguf";
  std::vector<float> w = hard_weights(96 * 64);
  const std::string good = folder.put("good.gguf", model_of(w, 64).bytes());
  w[64 * 20 + 5] = std::nanf("");
  const std::string bad = folder.put("bad.gguf", model_of(w, 64).bytes());
  for (const tenon_format format : {TENON_Q4_0, TENON_F32}) {
    expect_error(ErrorCode::kModel, {"bad.gguf", "blk.0.ffn_up.weight", "weight 1285", "column 5 of row 20", "is NaN"},
                 [&] { quantize_model(bad, out, as(format)); });
  }
  struct Stop {};
  QuantizeOptions stopping;
  stopping.progress = [](const QuantizeProgress&) { throw Stop(); };
  EXPECT_THROW(quantize_model(good, out, stopping), Stop);
  QuantizeOptions misnamed;
  misnamed.overrides = {{"blk.0.ffn_up.wight", {TENON_F16}}};
  expect_error(ErrorCode::kUsage, {"blk.0.ffn_up.wight", "blk.0.ffn_up.weight"},
               [&] { quantize_model(good, out, misnamed); });
  const std::filesystem::path nowhere = folder.path() / "none" / "out.gguf";
  expect_error(ErrorCode::kIo, {"none"}, [&] { quantize_model(good, nowhere, {}); });
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);

  quantize_model(good, out, {});
  const std::string before = file_bytes(out);
  expect_error(ErrorCode::kUsage, {"out.gguf", "--force"}, [&] { quantize_model(good, out, as(TENON_Q4_0)); });
  EXPECT_TRUE(file_bytes(out) == before);
  quantize_model(good, out, as(TENON_Q4_0, true));
  EXPECT_LT(file_bytes(out).size(), before.size());
  quantize_model(out, out, as(TENON_F16, true));  // this writes over itself
  EXPECT_EQ(open_weights(out)->find("blk.0.ffn_up.weight")->format, uint32_t{TENON_F16});
}

}  // namespace
}  // namespace tenon
