// These tests read safetensors files that they write, right ones and wrong ones.
#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/weights/safetensors_parser.h"
#include "support/weights_writer.h"

namespace tenon {
namespace {

using testing::append;
using testing::SafetensorsWriter;

weights::SafetensorsFile parse(const std::string& bytes) {
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(bytes.data()),
                                    reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size());
  return weights::parse_safetensors(copy, "x.safetensors", 7);
}

void expect_refused(const std::string& bytes, std::vector<std::string> parts) {
  parts.push_back("x.safetensors");
  testing::expect_error(ErrorCode::kModel, parts, [&] { parse(bytes); });
}

// Makes a file of one header as given and `data` bytes.
std::string with_header(const std::string& header, size_t data = 0) {
  return SafetensorsWriter::file(header, std::string(data, 'x'));
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const auto file = parse(SafetensorsWriter()
                              .entry("__metadata__", R"({"format":"pt","note":"a \"quoted\" word"})")
                              .tensor("a", "F32", {2, 3}, std::string(24, 'a'))
                              .tensor("esc\\u0061ped", "BF16", {}, "bb")
                              .tensor("none", "F16", {0, 5}, "")
                              .bytes());
  ASSERT_EQ(file.tensors.size(), 3U);
  EXPECT_EQ(file.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.tensors[0].format, uint32_t{TENON_F32});
  EXPECT_EQ(file.tensors[0].bytes, 24U);
  EXPECT_EQ(file.tensors[0].offset % 8, 0U);
  EXPECT_EQ(file.tensors[0].file, 7U);
  EXPECT_EQ(file.tensors[1].name, "escaped");
  EXPECT_EQ(file.tensors[1].offset, file.tensors[0].offset + 24);
  EXPECT_EQ(file.tensors[2].bytes, 0U);
  EXPECT_EQ(std::get<std::string>(file.metadata.at("__metadata__.format")), "pt");
  EXPECT_EQ(std::get<std::string>(file.metadata.at("__metadata__.note")), "a \"quoted\" word");
}

TEST(Safetensors, MapsEveryDtype) {
  const std::vector<std::pair<std::string, tenon_format>> dtypes = {
      {"F32", TENON_F32},   {"F16", TENON_F16},        {"BF16", TENON_BF16},   {"F64", TENON_F64},
      {"I8", TENON_I8},     {"I16", TENON_I16},        {"I32", TENON_I32},     {"I64", TENON_I64},
      {"U8", TENON_U8},     {"U32", TENON_U32},        {"BOOL", TENON_BOOL},   {"F8_E4M3", TENON_F8E4M3},
      {"F4", TENON_F4E2M1}, {"F8_E5M2", TENON_F8E5M2}, {"F8_E8M0", TENON_E8M0}};
  SafetensorsWriter writer;
  for (const auto& [name, format] : dtypes) {
    const tenon_block block = tenon_format_block(format);
    writer.tensor(name, name, {3, 2}, std::string(6 / block.elements * block.bytes, 'x'));
  }
  const auto file = parse(writer.bytes());
  ASSERT_EQ(file.tensors.size(), dtypes.size());
  for (size_t i = 0; i < dtypes.size(); ++i) EXPECT_EQ(file.tensors[i].format, dtypes[i].second) << dtypes[i].first;
  expect_refused(SafetensorsWriter().tensor("t", "C64", {1}, "12345678").bytes(), {"\"t\" has dtype \"C64\"", "BF16"});
}

TEST(SafetensorsBroken, TruncatedAnywhere) {
  const std::string whole =
      SafetensorsWriter().tensor("a", "F32", {2}, "12345678").tensor("b", "F32", {1}, "1234").bytes();
  EXPECT_NO_THROW(parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) expect_refused(whole.substr(0, size), {});
  expect_refused(whole.substr(0, whole.size() - 1), {"\"b\"", "needs 4 bytes", "truncated"});
  expect_refused("", {"empty"});
}

TEST(SafetensorsBroken, Header) {
  std::string absurd;
  append(absurd, uint64_t{1} << 60);
  expect_refused(absurd + "{}", {"byte 0", "1152921504606846976 bytes", "at most 2 are possible"});
  expect_refused(with_header("{\"a\":"), {"byte 13", "no valid JSON", "incomplete"});
  expect_refused(with_header("{} {}"), {"no valid JSON"});
  expect_refused(with_header("[]"), {"the header: holds an array"});
  expect_refused(with_header("3"), {"the header"});
  expect_refused(with_header(std::string(100, '{')), {"no valid JSON"});
  std::string deep = "{\"a\":";
  for (int i = 0; i < 10000; ++i) deep += "[";
  expect_refused(with_header(deep), {"entry \"a\": holds an array"});
  deep = "";
  for (int i = 0; i < 10000; ++i) deep += "{\"a\":";
  expect_refused(with_header(deep), {"entry \"a\", key \"a\": holds an object"});
}

TEST(SafetensorsBroken, Entries) {
  const std::string shape = "\"shape\":[1],\"data_offsets\":[0,4]";
  const auto entry = [](const std::string& inside) { return with_header("{\"w\":{" + inside + "}}", 4); };
  EXPECT_NO_THROW(parse(entry("\"dtype\":\"F32\"," + shape)));
  expect_refused(entry(shape), {"\"w\"", "needs \"dtype\""});
  expect_refused(entry("\"dtype\":\"F32\",\"shape\":[1]"), {"\"w\"", "\"data_offsets\""});
  expect_refused(entry("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), {"two \"data_offsets\""});
  expect_refused(entry("\"dtype\":4," + shape), {"\"w\", key \"dtype\"", "the number 4"});
  expect_refused(entry("\"dtype\":\"F32\",\"dtype\":\"F16\"," + shape), {"key \"dtype\"", "the text \"F16\""});
  expect_refused(entry("\"dtype\":\"F32\",\"more\":true," + shape), {"key \"more\"", "a boolean"});
  expect_refused(entry("\"dtype\":null," + shape), {"key \"dtype\"", "null"});
  expect_refused(entry("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), {"key \"shape\"", "-1"});
  expect_refused(entry("\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]"), {"key \"shape\"", "fraction"});
  expect_refused(entry("\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]"), {"key \"shape\"", "an array"});
  expect_refused(entry("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), {"key \"shape\""});
  expect_refused(with_header("{\"w\":[]}"), {"entry \"w\": holds an array"});
  expect_refused(with_header("{\"__metadata__\":{\"a\":3}}"), {"\"__metadata__\", key \"a\"", "the number 3"});
}

TEST(SafetensorsBroken, SizesAndPlaces) {
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return with_header("{\"w\":{\"dtype\":\"F32\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}}", 8);
  };
  EXPECT_NO_THROW(parse(entry("2", "0,8")));
  expect_refused(entry("3", "0,8"), {"\"w\", F32 [3]", "[0, 8]", "12 bytes"});
  expect_refused(entry("1", "0,8"), {"\"w\", F32 [1]", "[0, 8]", "do not span the 4 bytes"});
  expect_refused(entry("2", "8,0"), {"\"w\"", "[8, 0]"});
  expect_refused(entry("1152921504606846976,1152921504606846976", "0,8"), {"\"w\"", "overflows"});
  expect_refused(entry("18446744073709551615", "0,8"), {"\"w\"", "overflows"});
  expect_refused(entry("1e3", "0,8"), {"\"w\"", "fraction"});
  expect_refused(entry("2", "18446744073709551600,18446744073709551608"), {"\"w\"", "file"});
  expect_refused(entry("2", "1152921504606846976,1152921504606846984"), {"\"w\"", "the file ends at byte"});
  expect_refused(entry("1", "4,8"), {"bytes", "before tensor \"w\"", "belong to no tensor"});
  expect_refused(entry("1", "0,4"), {"the last tensor ends at byte", "belong to no tensor"});

  const std::string ab =
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}";
  expect_refused(with_header(ab, 12), {"\"a\"", "\"b\"", "overlap"});
}

}  // namespace
}  // namespace tenon
