// These tests open files of weights that no reader takes, and look at what is said of them.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect_error.h"
#include "support/weights_writer.h"
#include "tenon/core/weights.h"

namespace tenon {
namespace {

using testing::expect_error;
using testing::GgufWriter;
using testing::ScratchFolder;

TEST(OpenWeights, ListsItsReaders) {
  std::vector<std::string_view> names;
  for (const WeightsReader& reader : builtin_weights_readers()) {
    names.push_back(reader.name);
    EXPECT_FALSE(reader.doc.empty());
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"gguf", "safetensors", "synthetic"}));
}

TEST(OpenWeights, SaysWhatItFoundAndWhatWouldDo) {
  const ScratchFolder folder;
  const std::string zip = folder.put("model.bin", "PK\3\4 something");
  expect_error(ErrorCode::kModel, {zip, "\"PK\\x03\\x04 som\"", "gguf: ", "safetensors: ", "synthetic: "},
               [&] { open_weights(zip); });
  const std::string empty = folder.put("empty.bin", "");
  expect_error(ErrorCode::kModel, {empty, "an empty file"}, [&] { open_weights(empty); });
  expect_error(ErrorCode::kModel, {"empty"}, [&] { open_weights(folder.put("empty.gguf", "")); });
  expect_error(ErrorCode::kModel, {"empty"}, [&] { open_weights(folder.put("empty.safetensors", "")); });
  expect_error(ErrorCode::kIo, {"modl.bin", "no such file", "did you mean", "model.bin"},
               [&] { open_weights((folder.path() / "modl.bin").string()); });
  expect_error(ErrorCode::kIo, {"no such file"}, [&] { open_weights(""); });
  expect_error(ErrorCode::kIo, {"absent.safetensors", "No such file"},
               [&] { open_weights((folder.path() / "absent.safetensors").string()); });
}

TEST(OpenWeights, DoesNotWaitForAPipe) {
  const ScratchFolder folder;
  for (const char* name : {"pipe", "pipe.gguf", "pipe.safetensors"}) {
    const std::string pipe = (folder.path() / name).string();
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_THROW(open_weights(pipe), Error) << name;
  }
}

// Root may read everything, so the test becomes nobody for a while.
TEST(OpenWeights, ReportsAnUnreadableFile) {
  const ScratchFolder folder;
  const std::string path = folder.put("m.gguf", GgufWriter().bytes());
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const uid_t user = ::geteuid();
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  expect_error(ErrorCode::kIo, {path, "Permission denied"}, [&] { open_weights(path); });
  if (user == 0) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

TEST(OpenWeights, ReportsAFileCutOffLater) {
  const ScratchFolder folder;
  const std::string path = folder.put("m.gguf", GgufWriter().tensor("w", 0, {4096}, std::string(16384, 'x')).bytes());
  const auto model = open_weights(path);
  std::filesystem::resize_file(path, 8192);
  std::vector<std::byte> out(16384);
  expect_error(ErrorCode::kIo, {path, "byte 8192"}, [&] { model->read(*model->find("w"), 0, out); });
}

}  // namespace
}  // namespace tenon
