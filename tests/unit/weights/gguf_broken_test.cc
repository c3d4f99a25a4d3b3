// Of files that are not what they should be, each gives a clear error, none a crash or a large allocation.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/weights/gguf_parser.h"
#include "support/weights_writer.h"

namespace tenon {
namespace {

using testing::append;
using testing::append_string;
using testing::GgufType;
using testing::GgufWriter;

constexpr uint64_t kAbsurd = uint64_t{1} << 60;

// The bytes live in a buffer of just their size, so that a sanitizer sees any step beyond.
void parse(const std::string& bytes) {
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(bytes.data()),
                                    reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size());
  weights::parse_gguf(copy, "bad.gguf");
}

void expect_refused(const std::string& bytes, std::vector<std::string> parts) {
  parts.push_back("bad.gguf");
  testing::expect_error(ErrorCode::kModel, parts, [&] { parse(bytes); });
}

std::string header(uint64_t tensors, uint64_t pairs) {
  GgufWriter writer;
  writer.tensor_count = tensors;
  writer.pair_count = pairs;
  return writer.bytes();
}

TEST(GgufBroken, Beginning) {
  expect_refused("", {"empty"});
  expect_refused("GG", {"byte 0", "magic", "2 are left"});
  expect_refused("PK\3\4abcdefgh", {"not a GGUF file", "\"PK\\x03\\x04\""});
  GgufWriter writer;
  writer.version = 1;
  expect_refused(writer.bytes(), {"version 1", "2 and 3"});
  writer.version = 0x03000000;
  expect_refused(writer.bytes(), {"big-endian"});
}

TEST(GgufBroken, TruncatedAnywhere) {
  const std::string whole = GgufWriter()
                                .add("general.architecture", "llama")
                                .add("tokens", std::vector<std::string>{"a", "bc"})
                                .add<uint32_t>("n", 3)
                                .tensor("w", 0, {2, 2}, std::string(16, 'x'))
                                .bytes();
  EXPECT_NO_THROW(parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    testing::expect_error(ErrorCode::kModel, {"bad.gguf"}, [&] { parse(whole.substr(0, size)); });
  }
  expect_refused(whole.substr(0, whole.size() - 1), {"\"w\"", "f32 (2, 2)", "16 bytes", "truncated"});
}

TEST(GgufBroken, AbsurdCounts) {
  expect_refused(header(kAbsurd, 0), {"byte 8", "1152921504606846976 tensors", "8 bytes left"});
  expect_refused(header(0, kAbsurd), {"byte 16", "1152921504606846976 metadata entries"});
  expect_refused(header(0, 1), {"byte 16", "1 metadata entries"});

  std::string key = header(0, 1);
  append(key, kAbsurd);
  key += std::string(20, 'k');
  expect_refused(key, {"byte 32", "the key of metadata entry 0", "1152921504606846976"});

  std::string text;
  append(text, kAbsurd);
  expect_refused(GgufWriter().add_raw("t", GgufType::kString, text).bytes(), {"the value of \"t\"", "0 are left"});
  for (uint32_t type = 0; type < 13; ++type) {
    const std::string array = GgufWriter::array(GgufType{type}, kAbsurd, "12345678");
    expect_refused(GgufWriter().add_raw("list", GgufType::kArray, array).bytes(),
                   {"1152921504606846976 elements of array \"list\""});
  }
}

TEST(GgufBroken, Metadata) {
  expect_refused(GgufWriter().add("", "v").bytes(), {"metadata entry 0 has an empty key"});
  expect_refused(GgufWriter().add("twice", "v").add("twice", "w").bytes(), {"\"twice\"", "there before"});
  expect_refused(GgufWriter().add_raw("k", GgufType{13}, "12345678").bytes(), {"\"k\" has type 13", "0 to 12"});
  expect_refused(GgufWriter().add_raw("b", GgufType::kBool, "\2").bytes(), {"\"b\"", "boolean of 2"});
  expect_refused(GgufWriter().add("large", std::vector<uint64_t>{1, ~uint64_t{0}}).bytes(),
                 {"element 1 of \"large\"", "18446744073709551615", "2^63 - 1"});
  std::string nested = GgufWriter::array(GgufType::kU8, 0, "");
  for (int depth = 0; depth < 100; ++depth) nested = GgufWriter::array(GgufType::kArray, 1, nested);
  expect_refused(GgufWriter().add_raw("deep", GgufType::kArray, nested).bytes(), {"\"deep.0", "nested more than 3"});
  const std::string hostile = "\x1b[31m" + std::string(500, 'n');
  expect_refused(GgufWriter().add_raw(hostile, GgufType{99}, "").bytes(), {"\\x1b[31mnnn", "nnn...\""});
}

TEST(GgufBroken, Alignment) {
  for (const uint32_t alignment : {0U, 3U, 33U, 0x80000000U}) {
    expect_refused(GgufWriter().add("general.alignment", alignment).bytes(),
                   {"general.alignment is " + std::to_string(alignment), "power of two"});
  }
  expect_refused(GgufWriter().add("general.alignment", "32").bytes(), {"general.alignment is no integer"});
}

TEST(GgufBroken, TensorDirectory) {
  const std::string four(4, 'x');
  expect_refused(GgufWriter().tensor("", 0, {1}, four).bytes(), {"tensor 0 has no name"});
  expect_refused(GgufWriter().tensor("w", 0, {1, 1, 1, 1, 1}, four).bytes(), {"\"w\" has 5 dimensions", "at most 4"});
  expect_refused(GgufWriter().tensor("w", 0, {~uint64_t{0}}, four).bytes(), {"\"w\"", "18446744073709551615"});
  expect_refused(GgufWriter().tensor("w", 0, {kAbsurd, kAbsurd}, four).bytes(), {"\"w\"", "overflows"});
  expect_refused(GgufWriter().tensor("w", 0, {uint64_t{1} << 62}, four).bytes(), {"\"w\"", "overflows"});
  expect_refused(GgufWriter().tensor("w", 2, {1, 33}, std::string(36, 'x')).bytes(), {"q4_0 (1, 33)", "blocks of 32"});
  // Whole blocks in all, but no row is: both rows would share one.
  expect_refused(GgufWriter().tensor("w", 2, {2, 16}, std::string(18, 'x')).bytes(), {"q4_0 (2, 16)", "blocks of 32"});
  expect_refused(GgufWriter().tensor("w", 12, {2, 128}, std::string(144, 'x')).bytes(),
                 {"q4_k (2, 128)", "blocks of 256"});
  expect_refused(GgufWriter().tensor("w", 16, {256}, four).bytes(), {"\"w\" has type 16 (IQ2_XXS)", "not read"});
  expect_refused(GgufWriter().tensor("w", 4000000000, {256}, four).bytes(), {"type 4000000000", "not read"});
}

TEST(GgufBroken, TensorPlaces) {
  const std::string eight(8, 'x');
  expect_refused(GgufWriter().tensor("w", 0, {2}, eight, 8).bytes(), {"\"w\"", "offset 8", "alignment 32"});
  expect_refused(GgufWriter().tensor("w", 0, {2}, eight, kAbsurd).bytes(), {"\"w\"", "the file ends at byte"});
  expect_refused(GgufWriter().tensor("w", 0, {2}, eight, ~uint64_t{31}).bytes(), {"\"w\"", "18446744073709551584"});
  expect_refused(GgufWriter().tensor("w", 0, {1024}, eight).bytes(), {"\"w\"", "needs 4096 bytes", "truncated"});
  expect_refused(GgufWriter().tensor("v", 0, {2}, eight, 4096).tensor("w", 0, {2}, eight, 8192).bytes(),
                 {"\"v\"", "1 more tensors reach beyond"});
  expect_refused(GgufWriter().tensor("v", 0, {16}, std::string(64, 'x')).tensor("w", 0, {8}, eight, 32).bytes(),
                 {"\"v\"", "\"w\"", "overlap"});
  expect_refused(GgufWriter().tensor("v", 0, {2}, eight).tensor("w", 0, {2}, eight, 0).bytes(), {"overlap"});
}

TEST(GgufBroken, OffsetsOfEveryResidue) {
  for (const uint32_t alignment : {8U, 32U, 64U, 256U}) {
    for (uint64_t offset = 0; offset < alignment; ++offset) {
      GgufWriter writer;
      writer.alignment = alignment;
      writer.add("general.alignment", alignment).tensor("w", 0, {1}, std::string(offset + 4, 'x'), offset);
      if (offset == 0) {
        EXPECT_NO_THROW(parse(writer.bytes())) << alignment;
        continue;
      }
      expect_refused(writer.bytes(), {"tensor \"w\": offset " + std::to_string(offset) +
                                      " is no multiple of the alignment " + std::to_string(alignment)});
    }
  }
}

TEST(GgufBroken, BytesThatBelongToNoTensor) {
  const std::string eight(8, 'x'), two_rows(64, 'x');
  expect_refused(GgufWriter().tensor("v", 0, {2}, eight).tensor("w", 0, {2}, two_rows, 64).bytes() + two_rows,
                 {"before tensor \"w\", belong to no tensor; expected gaps up to the alignment of 32 only"});
  expect_refused(GgufWriter().tensor("v", 0, {2}, two_rows).bytes(), {"the last tensor ends at byte", "belong to no"});
  expect_refused(GgufWriter().tensor("v", 0, {2}, eight, 32).bytes() + two_rows, {"before tensor \"v\""});
}

TEST(GgufBroken, AllFindingsAtOnce) {
  GgufWriter writer;
  for (int i = 0; i < 30; ++i) writer.tensor("bad" + std::to_string(i), 99, {1}, "x");
  expect_refused(writer.bytes(), {"\"bad0\"", "\"bad19\"", "and 10 more"});
}

}  // namespace
}  // namespace tenon
