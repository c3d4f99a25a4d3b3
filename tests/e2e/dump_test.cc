// This tests `tenon generate --dump-tensor`: which file is written, what is in it, and what is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "program.h"

namespace tenon::e2e {
namespace {

constexpr int kUsage = 2, kIo = 7;

struct Matrix {
  std::string header;
  std::vector<float> values;
};

// Takes a .npy file apart as its specification has it, and expects version 1.0.
Matrix read_npy(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  EXPECT_EQ(file.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(file.at(at))); };
  const size_t data = 10 + byte(8) + 256 * byte(9);
  EXPECT_EQ(data % 64, 0U);
  Matrix m{file.substr(10, data - 10), std::vector<float>((file.size() - data) / sizeof(float))};
  EXPECT_EQ((file.size() - data) % sizeof(float), 0U);
  std::memcpy(m.values.data(), file.data() + data, m.values.size() * sizeof(float));
  return m;
}

class Dump : public ::testing::Test {
 protected:
  Words words(const Words& more) const { return words_to(folder_, more); }
  static Words words_to(const std::filesystem::path& folder, const Words& more) {
    const Words command = {"generate", golden("tiny-gqa-untied").string(), "-p", "Once", "-n", "3", "--ignore-end"};
    return command + Words{"--dump-folder", folder.string()} + greedy() + more;
  }
  const std::filesystem::path folder_ = temporary_folder();
};

TEST_F(Dump, WritesNumpysFormat) {
  const Outcome o = tenon(words({"--dump-tensor", "mlp.down@1", "--dump-tensor", "lm_head", "--json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("layers.1.mlp.down.npy: ("), std::string::npos) << o.err;
  const boost::json::value json = boost::json::parse(o.out);
  const size_t prompt = json.at("prompt_tokens").as_array().size();

  const Matrix down = read_npy(folder_ / "layers.1.mlp.down.npy");
  ASSERT_EQ(down.values.size(), prompt * 64);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(prompt) + ", 64), }";
  header.resize(117, ' ');
  EXPECT_EQ(down.header, header + '\n');

  const Matrix logits = read_npy(folder_ / "lm_head.npy");
  const auto best = std::max_element(logits.values.begin(), logits.values.end()) - logits.values.begin();
  EXPECT_EQ(best, json.at("tokens").as_array().front().to_number<int64_t>());
}

TEST_F(Dump, WritesTheStepThatIsAskedFor) {
  const boost::json::value json =
      tenon_json(words({"--dump-tensor", "lm_head", "--dump-step", "2", "--json", "--threads", "2"}));
  const Matrix logits = read_npy(folder_ / "lm_head.npy");
  const auto best = std::max_element(logits.values.begin(), logits.values.end()) - logits.values.begin();
  EXPECT_EQ(best, json.at("tokens").as_array().at(2).to_number<int64_t>());
}

TEST_F(Dump, ReplacesAFileOnlyIfForced) {
  const std::filesystem::path file = folder_ / "lm_head.npy";
  write_file(file, "mine");
  const Outcome kept = tenon(words({"--dump-tensor", "lm_head"}));
  EXPECT_EQ(kept.code, kUsage);
  EXPECT_NE(kept.err.find("--force replaces it"), std::string::npos) << kept.err;
  EXPECT_EQ(read_file(file), "mine");
  EXPECT_EQ(tenon(words({"--dump-tensor", "lm_head", "--force"})).code, 0);
  EXPECT_EQ(read_npy(file).values.size(), 260U);
}

TEST_F(Dump, RefusesWhatItCannotWrite) {
  const auto expect_refusal = [&](const Words& more, int code, const std::string& text,
                                  const std::string& subfolder = "") {
    const Outcome o = tenon(words_to(folder_ / subfolder, more));
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_NE(o.err.find(text), std::string::npos) << o.err;
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
  };
  expect_refusal({"--dump-tensor", "mlp.dwon@1"}, kUsage, "did you mean \"layers.1.mlp.down\"?");
  expect_refusal({"--dump-tensor", "mlp.down@2"}, kUsage, "of the 2 layers");
  expect_refusal({"--dump-tensor", "mlp.down@one"}, kUsage, "expected PATH@LAYER");
  expect_refusal({"--dump-tensor", "@1"}, kUsage, "expected PATH@LAYER");
  expect_refusal({"--dump-tensor", "lm_head", "--dump-step", "3"}, kUsage, "lm_head was computed in 3 steps");
  expect_refusal({"--dump-tensor", "lm_head"}, kIo, "cannot be created", "none");
}

}  // namespace
}  // namespace tenon::e2e
