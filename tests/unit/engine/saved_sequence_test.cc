// These tests write and read session files: whole ones, and ones that are cut short, lengthened, altered or made up.
#include "tenon/core/saved_sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "temp_folder.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

using testing::HasSubstr;

const std::vector<SessionFact> kFacts = {{"model", "llama: 2 layers"}, {"kv_cache", "kv_cache.static"}};
constexpr size_t kHeader = 64;
constexpr size_t kFactBytesAt = 24, kTokensAt = 32;  // these are fields of the header

SavedSequence sequence(size_t cells = 300) {
  std::vector<std::byte> bytes(cells);
  for (size_t i = 0; i < cells; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return {kFacts, {1, 5, -3, 70000}, std::move(bytes)};
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string written(const TempFolder& folder, size_t cells = 300) {
  const std::string path = folder.file("session");
  sequence(cells).write(path, true);
  return bytes_of(path);
}

// Returns the error of reading these bytes; "" if nothing is wrong.
std::string problem_of(const TempFolder& folder, const std::string& bytes) {
  const std::string path = folder.file("altered");
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    SavedSequence::read(path);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
}

TEST(SavedSequence, IsReadAsItWasWritten) {
  const TempFolder folder;
  for (const size_t cells : {0, 1, 63, 64, 65, 300, 100000}) {
    const std::string path = folder.file("session");
    const SavedSequence saved = sequence(cells);
    saved.write(path, true);
    EXPECT_EQ(std::filesystem::file_size(path), saved.file_bytes());
    const auto read = SavedSequence::read(path);
    EXPECT_EQ(read->path(), path);
    EXPECT_TRUE(std::ranges::equal(read->facts(), kFacts));
    EXPECT_THAT(std::vector(read->tokens().begin(), read->tokens().end()), testing::ElementsAre(1, 5, -3, 70000));
    EXPECT_TRUE(std::ranges::equal(read->cells(), saved.cells())) << cells;
    EXPECT_EQ(read->file_bytes(), saved.file_bytes());
  }
}

TEST(SavedSequence, IsWrittenOverAFileOnlyWhereThatIsSaid) {
  const TempFolder folder;
  const std::string path = folder.file("session");
  std::ofstream(path) << "mine";
  EXPECT_THROW(sequence().write(path, false), Error);
  EXPECT_EQ(bytes_of(path), "mine");
  sequence().write(path, true);
  EXPECT_EQ(SavedSequence::read(path)->tokens().size(), 4U);
  EXPECT_THROW(sequence().write(folder.file("nowhere/session"), true), Error);
}

TEST(SavedSequence, IsRefusedWhereItIsCutShort) {
  const TempFolder folder;
  const std::string whole = written(folder);
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string problem = problem_of(folder, whole.substr(0, n));
    EXPECT_THAT(problem, HasSubstr(n < 8 ? "this is no session" : "cut short")) << n;
  }
  EXPECT_THAT(problem_of(folder, whole + "x"), HasSubstr("contradicts"));
}

TEST(SavedSequence, IsRefusedWhereOneBitIsAnother) {
  const TempFolder folder;
  const std::string whole = written(folder);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string altered = whole;
    altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ 1 << bit % 8);
    EXPECT_NE(problem_of(folder, altered), "") << "bit " << bit;
  }
}

TEST(SavedSequence, SaysWhatAnotherFileIs) {
  const TempFolder folder;
  EXPECT_THAT(problem_of(folder, "GGUF and something after it"), HasSubstr("does not begin with TENONSES"));
  std::string newer = written(folder);
  newer[8] = 2;
  EXPECT_THAT(problem_of(folder, newer), HasSubstr("is of version 2; this program reads version 1"));
  EXPECT_THROW(SavedSequence::read(folder.file("nothing")), Error);
  EXPECT_THROW(SavedSequence::read(folder.path()), Error);
}

// The sizes in the header may be any: nothing beyond the file is read, and
// nothing is allocated for what it does not have.
TEST(SavedSequence, SizesThatDoNotFitTheFileAreRefused) {
  const TempFolder folder;
  const std::string whole = written(folder);
  for (size_t at = kFactBytesAt; at < kFactBytesAt + 24; at += 8) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{1000}, uint64_t{1} << 62U, UINT64_MAX, UINT64_MAX - 63}) {
      std::string altered = whole;
      std::memcpy(altered.data() + at, &value, sizeof(value));
      EXPECT_NE(problem_of(folder, altered), "") << at << " " << value;
    }
  }
  std::string no_tokens = whole;
  std::memset(no_tokens.data() + kTokensAt, 0, 8);
  EXPECT_THAT(problem_of(folder, no_tokens), HasSubstr("0 tokens"));
}

TEST(SavedSequence, AnyBytesAreReadOrRefused) {
  const TempFolder folder;
  const std::string whole = written(folder);
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string altered = whole;
    for (uint64_t n = 1 + random() % 8; n > 0; --n) {
      altered[random() % (random() % 2 == 0 ? kHeader : altered.size())] = static_cast<char>(random());
    }
    if (random() % 4 == 0) altered.resize(random() % (2 * whole.size()));
    if (altered == whole) continue;
    EXPECT_NE(problem_of(folder, altered), "") << i;
  }
}

TEST(SavedSequence, FactsThatAreNoLinesAreRefused) {
  const TempFolder folder;
  for (const SessionFact& fact : {SessionFact{"model", "two\nlines"}, SessionFact{"no\nname", "x"}}) {
    const std::string path = folder.file("lines");
    SavedSequence({fact}, {1}, {}).write(path, true);
    EXPECT_THAT(problem_of(folder, bytes_of(path)), HasSubstr("where \"NAME: VALUE\"")) << fact.name;
  }
}

std::string facts_problem(const std::vector<SessionFact>& own) {
  try {
    sequence().check_facts(own);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRequest);
    return error.what();
  }
}

TEST(SavedSequence, NamesEveryFactThatIsAnother) {
  EXPECT_EQ(facts_problem(kFacts), "");
  EXPECT_EQ(facts_problem({kFacts[1], kFacts[0]}), "");
  const std::string cache = facts_problem({kFacts[0], {"kv_cache", "kv_cache.int8"}});
  EXPECT_THAT(cache, HasSubstr("kv_cache: the session was saved with kv_cache.static, and this pipeline has "
                               "kv_cache.int8"));
  EXPECT_THAT(cache, testing::Not(HasSubstr("model:")));
  const std::string both = facts_problem({{"model", "llama: 3 layers"}, {"kv_cache", "kv_cache.int8"}});
  EXPECT_THAT(both, HasSubstr("saved with llama: 2 layers"));
  EXPECT_THAT(both, HasSubstr("saved with kv_cache.static"));
  EXPECT_THAT(facts_problem({kFacts[0]}), HasSubstr("this pipeline has none"));
  EXPECT_THAT(facts_problem({kFacts[0], kFacts[1], {"draft/model", "llama"}}), HasSubstr("saved with none"));
}

}  // namespace
}  // namespace tenon
