// `tenon quantize`: what it writes runs, and what fails leaves nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "program.h"
#include "support/weights_writer.h"

namespace tenon::e2e {
namespace {

const std::string kModel = golden("tiny-gqa-untied.gguf");

size_t files_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

boost::json::value continuation(const std::string& model) {
  return tenon_json(Words{"generate", model, "-p", "The other bird", "-n", "24", "--ignore-end", "--json"} + greedy());
}

TEST(Quantize, WritesFilesThatGenerate) {
  const boost::json::value original = continuation(kModel);
  for (const std::string& scheme : Words{"F32", "F16", "BF16", "Q8_0", "q4_0", "Q4_1", "Q5_0", "Q5_1"}) {
    const std::filesystem::path folder = temporary_folder();
    const std::string out = folder / "out.gguf";
    const Outcome outcome = tenon({"quantize", kModel, out, "--scheme", scheme});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("bits a weight"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("kept in f16") != std::string::npos, scheme[0] == 'Q' || scheme[0] == 'q')
        << outcome.err;
    EXPECT_EQ(files_in(folder), 1u);
    const boost::json::value made = continuation(out);
    EXPECT_EQ(made.at("tokens").as_array().size(), 24u) << scheme;
    if (scheme == "F32") {
      EXPECT_EQ(made.at("tokens"), original.at("tokens"));
    }
  }
}

TEST(Quantize, TakesOverrides) {
  const std::string out = temporary_folder() / "out.gguf";
  ASSERT_EQ(
      tenon({"quantize", kModel, out, "--scheme", "Q4_0", "--override", "output.weight=Q8_0", "-q"}).err.find("|"),
      std::string::npos);
  const Outcome model = tenon({"inspect", "--model", out});
  EXPECT_NE(model.out.find("q8_0"), std::string::npos) << model.out;
  EXPECT_NE(model.out.find("q4_0"), std::string::npos) << model.out;
}

TEST(Quantize, RefusesAndLeavesNothing) {
  const std::filesystem::path folder = temporary_folder();
  const std::string out = folder / "out.gguf";
  const auto refused = [&](const Words& words, int code, const std::string& named) {
    const Outcome outcome = tenon(Words{"quantize"} + words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(named), std::string::npos) << outcome.err;
    EXPECT_EQ(files_in(folder), 0u);
  };
  refused({kModel, out}, 2, "--scheme");
  refused({kModel, out, "--scheme", "Q9"}, 2, "Q4_0");
  refused({kModel, folder / "out.bin", "--scheme", "Q8_0"}, 2, ".gguf");
  refused({kModel, out, "--scheme", "Q8_0", "--override", "output.weight"}, 2, "GLOB=SCHEME");
  refused({kModel, out, "--scheme", "Q8_0", "--override", "no_such*=F16"}, 2, "no_such");
  refused({golden("tiny-gqa-untied"), out, "--scheme", "Q8_0"}, 5, "convert_hf_to_gguf.py");
  refused({kStories, out, "--scheme", "Q8_0"}, 5, "GGUF");
  refused({folder / "none.gguf", out, "--scheme", "Q8_0"}, 7, "none.gguf");
}

// As on a full disk: the file may not grow beyond 8 KiB.
TEST(Quantize, LeavesNothingWhereThereIsNoRoom) {
  const std::filesystem::path folder = temporary_folder();
  const Outcome outcome = tenon_line("trap '' XFSZ; ulimit -f 16; tenon quantize '" + kModel + "' '" +
                                     (folder / "out.gguf").string() + "' --scheme F16");
  EXPECT_EQ(outcome.code, 7) << outcome.err;
  EXPECT_NE(outcome.err.find("out.gguf"), std::string::npos) << outcome.err;
  EXPECT_EQ(files_in(folder), 0u);
}

// A matrix of 1 GB, of which the disk holds nothing.
TEST(Quantize, LeavesNothingWhenItIsInterrupted) {
  constexpr uint64_t kRows = 1 << 16, kWidth = 1 << 12;
  const std::filesystem::path folder = temporary_folder(), in = temporary_folder() / "in.gguf";
  const std::string header = tenon::testing::GgufWriter().tensor("large.weight", 0, {kRows, kWidth}, "").bytes();
  write_file(in, header);
  std::filesystem::resize_file(in, header.size() + kRows * kWidth * sizeof(float));
  Running running({"quantize", in, folder / "out.gguf", "--scheme", "Q4_0"});
  for (int tries = 0; files_in(folder) == 0 && tries < 10000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  running.interrupt();
  const Outcome outcome = running.finish();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(files_in(folder), 0u);
}

}  // namespace
}  // namespace tenon::e2e
