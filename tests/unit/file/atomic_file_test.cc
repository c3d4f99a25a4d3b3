// These tests write files that appear whole or not at all.
#include "tenon/core/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "support/weights_writer.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

using testing::ScratchFolder;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

size_t entries(const ScratchFolder& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

TEST(AtomicFile, AppearsWhenItIsCommitted) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder.path() / "x";
  AtomicFile file(path, {.bytes = 7});
  ASSERT_FALSE(file.write_at(bytes("end"), 4));
  ASSERT_FALSE(file.write_at(bytes("head"), 0));
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_FALSE(file.sync());
  ASSERT_FALSE(file.commit());
  EXPECT_EQ(content(path), "headend");
  EXPECT_EQ(entries(folder), 1u);
}

TEST(AtomicFile, TakesThePlaceOfAFile) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder.put("x", "old");
  for (const bool named : {false, true}) {
    const std::string text = named ? "newest" : "new";
    {
      AtomicFile file(path, {.part_path = named ? path.string() + ".part" : ""});
      ASSERT_FALSE(file.write_at(bytes(text), 0));
      EXPECT_NE(content(path), text);
      ASSERT_FALSE(file.commit());
    }
    EXPECT_EQ(content(path), text);
    EXPECT_EQ(entries(folder), 1u);
  }
}

TEST(AtomicFile, LeavesWhatAppearedMeanwhileUnlessItReplaces) {
  for (const bool named : {false, true}) {
    const ScratchFolder folder;
    const std::filesystem::path path = folder.path() / "x";
    {
      AtomicFile file(path, {.part_path = named ? path.string() + ".part" : "", .replace = false});
      ASSERT_FALSE(file.write_at(bytes("new"), 0));
      folder.put("x", "appeared");
      EXPECT_EQ(file.commit(), std::errc::file_exists);
    }
    EXPECT_EQ(content(path), "appeared");
    EXPECT_EQ(entries(folder), 1u);
    std::filesystem::remove(path);
    AtomicFile file(path, {.part_path = named ? path.string() + ".part" : "", .replace = false});
    ASSERT_FALSE(file.write_at(bytes("new"), 0));
    ASSERT_FALSE(file.commit());
    EXPECT_EQ(content(path), "new");
    EXPECT_EQ(entries(folder), 1u);
  }
}

TEST(AtomicFile, LeavesNothingWhenItIsAbandoned) {
  const ScratchFolder folder;
  for (const char* part : {"", "x.part"}) {
    {
      AtomicFile file(folder.path() / "x", {.part_path = *part == '\0' ? "" : folder.path() / part});
      ASSERT_FALSE(file.write_at(bytes("text"), 0));
      EXPECT_EQ(std::filesystem::exists(folder.path() / "x.part"), *part != '\0');
    }
    EXPECT_EQ(entries(folder), 0u);
  }
}

TEST(AtomicFile, CanGrowInAnotherFolderThanItsOwn) {
  const ScratchFolder folder;
  AtomicFile file(folder.path() / "later/x", {.folder = folder.path()});
  ASSERT_FALSE(file.write_at(bytes("text"), 0));
  EXPECT_TRUE(file.commit());  // there is no such folder yet
  std::filesystem::create_directory(folder.path() / "later");
  ASSERT_FALSE(file.commit());
  EXPECT_EQ(content(folder.path() / "later/x"), "text");
}

TEST(AtomicFile, SaysWhyItCannotBeThere) {
  const ScratchFolder folder;
  try {
    const AtomicFile file(folder.path() / "none/x");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("none/x"), ::testing::HasSubstr("No such file")));
  }
  std::filesystem::create_directory(folder.path() / "full");
  AtomicFile file(folder.path() / "full");
  EXPECT_TRUE(file.commit());  // a folder is not replaced
  std::filesystem::create_symlink("/dev/full", folder.path() / "part");
  AtomicFile full(folder.path() / "x", {.part_path = folder.path() / "part"});
  EXPECT_EQ(full.write_at(bytes("text"), 0), std::errc::no_space_on_device);
}

}  // namespace
}  // namespace tenon
