// These tests write and read the files of `tenon eval kld`: whole ones, ones that are cut off, and malformed ones.
#include "base_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "temp_folder.h"
#include "tenon/core/error.h"

namespace tenon::app {
namespace {

using testing::HasSubstr;

constexpr uint32_t kVocab = 5, kContext = 5;
constexpr size_t kHeader = 96, kRow = 12 + 2 * kVocab;

CodedRow row(int32_t top) {
  std::vector<float> logits(kVocab, 1);
  logits[static_cast<size_t>(top)] = 3;
  CodedRow row;
  row.assign(Logits(logits), 1);
  return row;
}

BaseHeader header() {
  BaseHeader header;
  header.vocab = kVocab;
  header.context = kContext;
  header.positions = 4;
  header.sha256.fill('a');
  return header;
}

std::string written(const TempFolder& folder) {
  const std::string path = folder.file("base.gz");  // the name is like any other
  BaseWriter writer(path, header());
  for (int32_t top : {0, 4, 2, 1}) writer.add(row(top));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.finish();
  return path;
}

// Returns what reading all of the file says; "" if nothing is wrong.
std::string problem(const std::string& path) {
  try {
    BaseReader reader(path);
    CodedRow row;
    for (uint64_t i = 0; i < reader.header().positions; ++i) reader.next(row);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
}

std::string problem_of(const TempFolder& folder, const std::string& bytes) {
  const std::string path = folder.file("altered");
  std::ofstream(path, std::ios::binary) << bytes;
  return problem(path);
}

template <class T>
std::string with(std::string bytes, size_t at, T value) {
  return bytes.replace(at, sizeof value, std::string(reinterpret_cast<const char*>(&value), sizeof value));
}

TEST(BaseFile, ReadsWhatWasWritten) {
  const TempFolder folder;
  const std::string path = written(folder);
  EXPECT_EQ(std::filesystem::file_size(path), kHeader + 4 * kRow);
  BaseReader reader(path);
  EXPECT_EQ(reader.header().vocab, kVocab);
  EXPECT_EQ(reader.header().context, kContext);
  EXPECT_EQ(reader.header().windows(), 2u);
  EXPECT_EQ(reader.header().sha256, header().sha256);
  CodedRow read;
  for (int32_t top : {0, 4, 2, 1}) {
    reader.next(read);
    const CodedRow expected = row(top);
    EXPECT_EQ(read.top, top);
    EXPECT_EQ(read.step, expected.step);
    EXPECT_EQ(read.negative_log_likelihood, expected.negative_log_likelihood);
    EXPECT_EQ(read.code, expected.code);
  }
}

TEST(BaseFile, LeavesWhatWasThereUntilItIsWhole) {
  const TempFolder folder;
  const std::string path = written(folder), before = TempFolder::bytes(path);
  { BaseWriter(path, header()).add(row(3)); }
  EXPECT_EQ(TempFolder::bytes(path), before);
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST(BaseFile, CannotBeWrittenWhereNoFileCanBe) {
  const TempFolder folder;
  EXPECT_THROW(BaseWriter(folder.path(), header()), Error);
  EXPECT_THROW(BaseWriter(folder.file("not/there"), header()), Error);
  EXPECT_NE(problem(folder.file("absent")), "");
  EXPECT_NE(problem(folder.path()), "");
}

TEST(BaseFile, CutShortAnywhereIsAnError) {
  const TempFolder folder;
  const std::string bytes = TempFolder::bytes(written(folder));
  EXPECT_EQ(problem_of(folder, bytes), "");
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string found = problem_of(folder, bytes.substr(0, size));
    EXPECT_THAT(found, HasSubstr(size < 8 ? "TENONKLD" : "cut short")) << size;
  }
  EXPECT_THAT(problem_of(folder, bytes + "x"), HasSubstr("contradicts"));
  EXPECT_THAT(problem_of(folder, bytes.substr(0, kHeader + 3 * kRow)), HasSubstr("3 of 4 positions"));
}

TEST(BaseFile, MalformedIsAnErrorThatSaysHow) {
  const TempFolder folder;
  const std::string bytes = TempFolder::bytes(written(folder));
  EXPECT_THAT(problem_of(folder, with(bytes, 0, 'G')), HasSubstr("does not begin with TENONKLD"));
  EXPECT_THAT(problem_of(folder, with<uint32_t>(bytes, 8, 1)), HasSubstr("version 1; this program reads version 2"));
  for (const uint32_t vocab : {0U, 4U, 6U, 0xFFFFFFFFU}) EXPECT_NE(problem_of(folder, with(bytes, 12, vocab)), "");
  for (const uint32_t context : {0U, 1U, 2U, 8U, 0xFFFFFFFFU})
    EXPECT_NE(problem_of(folder, with(bytes, 16, context)), "");
  for (const uint64_t positions : {uint64_t{0}, uint64_t{2}, uint64_t{5}, UINT64_MAX / kRow + 1, UINT64_MAX})
    EXPECT_NE(problem_of(folder, with(bytes, 24, positions)), "") << positions;
  const size_t second = kHeader + kRow;
  for (const int32_t top : {-1, 5, 3}) {
    EXPECT_THAT(problem_of(folder, with(bytes, second, top)), HasSubstr("position 1 is damaged")) << top;
  }
  for (const float value : {-1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(problem_of(folder, with(bytes, second + 4, value)), HasSubstr("damaged"));
    EXPECT_THAT(problem_of(folder, with(bytes, second + 8, value)), HasSubstr("damaged"));
  }
}

}  // namespace
}  // namespace tenon::app
