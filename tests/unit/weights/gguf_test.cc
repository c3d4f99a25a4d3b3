// These tests read GGUF files that they write: every kind of metadata and type of tensor, and models in several parts.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "expect_error.h"
#include "model/weights/gguf_parser.h"
#include "support/weights_writer.h"
#include "tenon/core/weights.h"

namespace tenon {
namespace {

using testing::expect_error;
using testing::GgufType;
using testing::GgufWriter;
using testing::ScratchFolder;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

weights::GgufFile parse(const std::string& bytes) {
  return weights::parse_gguf(as_bytes(bytes), "test.gguf");
}

template <class T>
T value(const weights::GgufFile& file, const std::string& key) {
  return std::get<T>(file.metadata.at(key));
}

TEST(Gguf, ReadsEveryScalarKind) {
  GgufWriter writer;
  writer.add<uint8_t>("u8", 255).add<int8_t>("i8", -128).add<uint16_t>("u16", 65535).add<int16_t>("i16", -32768);
  writer.add<uint32_t>("u32", 4294967295).add<int32_t>("i32", -2147483648).add<float>("f32", 0.5F);
  writer.add<bool>("yes", true).add<bool>("no", false).add("text", "h\xc3\xa9llo").add("empty", "");
  writer.add<uint64_t>("u64", 7).add<int64_t>("i64", std::numeric_limits<int64_t>::min()).add<double>("f64", 1e-300);
  writer.add<uint64_t>("large", std::numeric_limits<uint64_t>::max());
  for (const uint32_t version : {2U, 3U}) {
    writer.version = version;
    const weights::GgufFile file = parse(writer.bytes());
    EXPECT_EQ(value<int64_t>(file, "u8"), 255);
    EXPECT_EQ(value<int64_t>(file, "i8"), -128);
    EXPECT_EQ(value<int64_t>(file, "u16"), 65535);
    EXPECT_EQ(value<int64_t>(file, "i16"), -32768);
    EXPECT_EQ(value<int64_t>(file, "u32"), 4294967295);
    EXPECT_EQ(value<int64_t>(file, "i32"), -2147483648);
    EXPECT_EQ(value<double>(file, "f32"), 0.5);
    EXPECT_TRUE(value<bool>(file, "yes"));
    EXPECT_FALSE(value<bool>(file, "no"));
    EXPECT_EQ(value<std::string>(file, "text"), "h\xc3\xa9llo");
    EXPECT_EQ(value<std::string>(file, "empty"), "");
    EXPECT_EQ(value<int64_t>(file, "u64"), 7);
    EXPECT_EQ(value<int64_t>(file, "i64"), std::numeric_limits<int64_t>::min());
    EXPECT_EQ(value<double>(file, "f64"), 1e-300);
    EXPECT_EQ(value<uint64_t>(file, "large"), std::numeric_limits<uint64_t>::max());
    EXPECT_EQ(file.metadata.size(), 15U);
  }
}

template <class T>
void expect_integers() {
  using Limits = std::numeric_limits<T>;
  const T top = std::in_range<int64_t>(Limits::max()) ? Limits::max() : T(Limits::max() / 2);
  const auto file = parse(GgufWriter().add("a", std::vector<T>{Limits::min(), 1, top}).bytes());
  EXPECT_EQ(value<std::vector<int64_t>>(file, "a"),
            (std::vector<int64_t>{static_cast<int64_t>(Limits::min()), 1, static_cast<int64_t>(top)}));
}

TEST(Gguf, ReadsArraysOfEveryKind) {
  expect_integers<uint8_t>();
  expect_integers<int8_t>();
  expect_integers<uint16_t>();
  expect_integers<int16_t>();
  expect_integers<uint32_t>();
  expect_integers<int32_t>();
  expect_integers<uint64_t>();
  expect_integers<int64_t>();
  const auto file = parse(GgufWriter()
                              .add("floats", std::vector<float>{-1.5F, 2})
                              .add("doubles", std::vector<double>{0.1})
                              .add("texts", std::vector<std::string>{"a", "", "ccc"})
                              .add_raw("bools", GgufType::kArray, GgufWriter::array(GgufType::kBool, 2, {"\1\0", 2}))
                              .add_raw("none", GgufType::kArray, GgufWriter::array(GgufType::kString, 0, ""))
                              .bytes());
  EXPECT_EQ(value<std::vector<double>>(file, "floats"), (std::vector<double>{-1.5, 2}));
  EXPECT_EQ(value<std::vector<double>>(file, "doubles"), (std::vector<double>{0.1}));
  EXPECT_EQ(value<std::vector<std::string>>(file, "texts"), (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_EQ(value<std::vector<int64_t>>(file, "bools"), (std::vector<int64_t>{1, 0}));
  EXPECT_TRUE(value<std::vector<std::string>>(file, "none").empty());
}

TEST(Gguf, ReadsNestedArraysElementByElement) {
  const auto inner = GgufWriter::array(GgufType::kI32, 2, testing::bytes_of<int32_t>({1, -2})) +
                     GgufWriter::array(GgufType::kF32, 1, testing::bytes_of<float>({3}));
  const auto file =
      parse(GgufWriter().add_raw("n", GgufType::kArray, GgufWriter::array(GgufType::kArray, 2, inner)).bytes());
  EXPECT_EQ(value<std::vector<int64_t>>(file, "n.0"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(value<std::vector<double>>(file, "n.1"), (std::vector<double>{3}));
}

struct TypeCase {
  uint32_t type;
  tenon_format format;
  uint64_t columns, bytes;  // for one row
};

TEST(Gguf, MapsEveryTensorType) {
  const TypeCase cases[] = {{0, TENON_F32, 3, 12},       {1, TENON_F16, 3, 6},        {24, TENON_I8, 3, 3},
                            {25, TENON_I16, 3, 6},       {26, TENON_I32, 3, 12},      {27, TENON_I64, 3, 24},
                            {28, TENON_F64, 3, 24},      {30, TENON_BF16, 3, 6},      {2, TENON_Q4_0, 64, 36},
                            {3, TENON_Q4_1, 64, 40},     {6, TENON_Q5_0, 64, 44},     {7, TENON_Q5_1, 64, 48},
                            {8, TENON_Q8_0, 64, 68},     {10, TENON_Q2_K, 512, 168},  {11, TENON_Q3_K, 512, 220},
                            {12, TENON_Q4_K, 512, 288},  {13, TENON_Q5_K, 512, 352},  {14, TENON_Q6_K, 512, 420},
                            {15, TENON_Q8_K, 512, 584},  {20, TENON_IQ4_NL, 64, 36},  {23, TENON_IQ4_XS, 512, 272},
                            {34, TENON_TQ1_0, 512, 108}, {35, TENON_TQ2_0, 512, 132}, {39, TENON_MXFP4, 64, 34}};
  GgufWriter writer;
  for (const TypeCase& c : cases) {
    writer.tensor("t" + std::to_string(c.type), c.type, {2, c.columns}, std::string(2 * c.bytes, 'x'));
  }
  const auto file = parse(writer.bytes());
  ASSERT_EQ(file.tensors.size(), std::size(cases));
  for (size_t i = 0; i < std::size(cases); ++i) {
    const WeightTensor& t = file.tensors[i];
    EXPECT_EQ(t.format, cases[i].format) << t.name;
    EXPECT_EQ(t.bytes, 2 * cases[i].bytes) << t.name;
    EXPECT_EQ(t.shape, (std::vector<int64_t>{2, static_cast<int64_t>(cases[i].columns)})) << t.name;
    EXPECT_EQ(t.offset % 32, 0U) << t.name;
  }
}

TEST(Gguf, OpensMapsAndReads) {
  const ScratchFolder folder;
  std::vector<float> numbers(6);
  std::iota(numbers.begin(), numbers.end(), 1.0F);
  GgufWriter writer;
  writer.alignment = 64;
  writer.add<uint32_t>("general.alignment", 64).add("general.architecture", "llama");
  writer.tensor("first", 0, {1}, testing::bytes_of<float>({9}));
  writer.tensor("numbers", 0, {2, 3}, testing::bytes_of(numbers))
      .tensor("scalar", 0, {}, testing::bytes_of<float>({5}));
  const auto model = open_weights(folder.put("m.gguf", writer.bytes()));

  EXPECT_EQ(model->convention(), "gguf");
  ASSERT_EQ(model->files().size(), 1U);
  EXPECT_EQ(model->files()[0], folder.path() / "m.gguf");
  EXPECT_EQ(metadata_text(*model, "general.architecture"), "llama");
  EXPECT_EQ(model->metadata_keys(), (std::vector<std::string>{"general.alignment", "general.architecture"}));
  EXPECT_EQ(model->find("absent"), nullptr);
  EXPECT_EQ(model->metadata("absent"), nullptr);

  const WeightTensor* tensor = model->find("numbers");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->offset % 64, 0U);
  model->prefetch(*tensor);
  const std::byte* mapped = model->mapped(*tensor);
  ASSERT_NE(mapped, nullptr);
  EXPECT_EQ(std::memcmp(mapped, numbers.data(), 24), 0);
  float part[2];
  model->read(*tensor, 8, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part[0], 3);
  EXPECT_EQ(part[1], 4);
  expect_error(ErrorCode::kInternal, {"numbers", "24"},
               [&] { model->read(*tensor, 20, std::as_writable_bytes(std::span(part))); });
  EXPECT_TRUE(model->find("scalar")->shape.empty());
  EXPECT_EQ(model->find("scalar")->bytes, 4U);
}

TEST(Gguf, IsKnownByItsMagicWhateverItsName) {
  const ScratchFolder folder;
  EXPECT_EQ(open_weights(folder.put("blob", GgufWriter().add("a", "b").bytes()))->convention(), "gguf");
}

// They are misaligned only in the file: no pointer is handed out, reading works.
TEST(Gguf, ReadsWhatTheMappingCannotServe) {
  const ScratchFolder folder;
  GgufWriter writer;
  writer.alignment = 1;
  writer.add<uint32_t>("general.alignment", 1).add("x", "").tensor("bytes", 24, {1}, "z");
  for (const char* name : {"a", "b", "c", "d"}) writer.tensor(name, 0, {1}, testing::bytes_of<float>({2.5F}));
  const auto model = open_weights(folder.put("m.gguf", writer.bytes()));
  for (const char* name : {"a", "b", "c", "d"}) {
    const WeightTensor& t = *model->find(name);
    EXPECT_EQ(model->mapped(t) != nullptr, t.offset % 4 == 0);
    float number = 0;
    model->read(t, 0, std::as_writable_bytes(std::span(&number, 1)));
    EXPECT_EQ(number, 2.5F);
  }
}

GgufWriter part(uint16_t number, uint16_t count, int32_t tensors) {
  GgufWriter writer;
  writer.add("split.no", number).add("split.count", count).add("split.tensors.count", tensors);
  const std::string name = "t" + std::to_string(number);
  writer.tensor(name, 0, {1}, testing::bytes_of<float>({static_cast<float>(number)}));
  return writer;
}

TEST(GgufSplit, OpensAllPartsFromAnyOfThem) {
  const ScratchFolder folder;
  folder.put("m-00001-of-00003.gguf", part(0, 3, 3).add("general.name", "whole").bytes());
  folder.put("m-00002-of-00003.gguf", part(1, 3, 3).bytes());
  folder.put("m-00003-of-00003.gguf", part(2, 3, 3).bytes());
  for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto model = open_weights((folder.path() / name).string());
    ASSERT_EQ(model->files().size(), 3U);
    EXPECT_EQ(metadata_text(*model, "general.name"), "whole");
    ASSERT_EQ(model->tensors().size(), 3U);
    for (uint32_t i = 0; i < 3; ++i) {
      const WeightTensor* t = model->find("t" + std::to_string(i));
      ASSERT_NE(t, nullptr);
      EXPECT_EQ(t->file, i);
      float number = -1;
      std::memcpy(&number, model->mapped(*t), 4);
      EXPECT_EQ(number, static_cast<float>(i));
    }
  }
}

TEST(GgufSplit, NamesTheMissingParts) {
  const ScratchFolder folder;
  const std::string first = folder.put("m-00001-of-00003.gguf", part(0, 3, 3).bytes());
  expect_error(ErrorCode::kModel, {"m-00002-of-00003.gguf", "m-00003-of-00003.gguf", "missing"},
               [&] { open_weights(first); });
}

TEST(GgufSplit, RefusesPartsThatDoNotBelongTogether) {
  const ScratchFolder folder;
  const std::string first = folder.put("m-00001-of-00002.gguf", part(0, 2, 2).bytes());
  const std::string second = folder.put("m-00002-of-00002.gguf", part(0, 2, 2).bytes());
  expect_error(ErrorCode::kModel, {"m-00002-of-00002.gguf", "split.no is 0", "must be 1"},
               [&] { open_weights(first); });
  testing::write_file(second, part(1, 2, 3).tensor("t0", 0, {1}, "abcd").bytes());
  expect_error(ErrorCode::kModel, {"\"t0\" is there twice", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}, [&] {
    testing::write_file(first, part(0, 2, 3).bytes());
    open_weights(first);
  });
  testing::write_file(second, part(1, 2, 5).bytes());
  testing::write_file(first, part(0, 2, 5).bytes());
  expect_error(ErrorCode::kModel, {"hold 2 tensors", "says 5"}, [&] { open_weights(first); });
  testing::write_file(second, part(1, 2, 2).add("general.name", "other").add("llama.block_count", 3).bytes());
  testing::write_file(first, part(0, 2, 2).add("general.name", "whole").bytes());
  expect_error(
      ErrorCode::kModel,
      {"m-00002-of-00002.gguf: error: key \"general.name\": found the text \"other\", expected the text \"whole\"",
       "key \"llama.block_count\": found 3, expected no such key", "parts of different models?"},
      [&] { open_weights(first); });
  const std::string renamed = folder.put("renamed.gguf", part(0, 2, 2).bytes());
  expect_error(ErrorCode::kModel, {"renamed.gguf", "split.count", "-NNNNN-of-NNNNN.gguf"},
               [&] { open_weights(renamed); });
}

}  // namespace
}  // namespace tenon
