// These tests run `tenon eval kld` against a baseline's file, right ones and wrong ones.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "program.h"

namespace tenon::e2e {
namespace {

// This can save what a model makes of a text, and compare another one with it.
class Kld : public testing::Test {
 protected:
  Kld() {
    std::string words;
    for (int i = 0; i < 40; ++i)
      words += "The quick brown fox jumps over the lazy dog " + std::to_string(i * 37) + " times. ";
    write_file(text_, words);
  }

  Words save(const std::string& model, const std::string& context = "64") const {
    return {"eval",  "perplexity",    model, "--text",        text_, "--context",
            context, "--max-windows", "8",   "--save-logits", base_};
  }
  Words compare(const std::string& model) const {
    return {"eval", "kld", model, "--text", text_, "--base", base_, "--json"};
  }
  void refused(const Words& words, int code, const Words& parts) const {
    const Outcome outcome = tenon(words);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    for (const std::string& part : parts) EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }

  const std::filesystem::path folder_ = temporary_folder();
  const std::string text_ = folder_ / "text", base_ = folder_ / "base";
  const std::string model_ = golden("tiny-gqa-untied");
};

TEST_F(Kld, IsNothingFromItselfAndSomethingFromWhatIsQuantized) {
  const boost::json::value base = tenon_json(save(model_) + Words{"--json"});
  EXPECT_EQ(std::filesystem::file_size(base_), 96 + 8 * 31 * (12 + 2 * 260));
  const boost::json::value self = tenon_json(compare(model_));
  EXPECT_EQ(self.at("windows").to_number<int>(), 8);
  EXPECT_EQ(self.at("tokens_scored").to_number<int>(), 248);
  EXPECT_LT(self.at("kld").at("max").to_number<double>(), 1e-6);
  EXPECT_EQ(self.at("top1_agreement_percent").to_number<double>(), 100);
  EXPECT_EQ(self.at("perplexity"), base.at("perplexity"));
  EXPECT_NEAR(self.at("perplexity_ratio").to_number<double>(), 1, 1e-6);

  double before = 1e-6;
  for (const char* use : {"int8wo", "int4wo"}) {
    const boost::json::value json =
        tenon_json(compare(model_) + Words{"--set", std::string("quantization.use=") + use});
    const boost::json::value& kld = json.at("kld");
    const double mean = kld.at("mean").to_number<double>(), median = kld.at("median").to_number<double>();
    const double p99 = kld.at("p99").to_number<double>(), max = kld.at("max").to_number<double>();
    EXPECT_GT(mean, before) << use;
    EXPECT_LT(mean, 1) << use;
    EXPECT_LT(median, p99) << use;
    EXPECT_LT(p99, max) << use;
    EXPECT_LE(json.at("top1_agreement_percent").to_number<double>(), 100) << use;
    EXPECT_NEAR(json.at("base_perplexity").to_number<double>(), base.at("perplexity").to_number<double>(), 1e-3) << use;
    before = 10 * mean;
  }
}

TEST_F(Kld, PrintsTheLineThatReproducesIt) {
  ASSERT_EQ(tenon(save(model_)).code, 0);
  const Outcome table = tenon({"eval", "kld", model_, "--text", text_, "--base", base_, "--max-windows", "3", "--set",
                               "quantization.use=int8wo"});
  EXPECT_NE(table.out.find("over 93 tokens in 3 windows of 64"), std::string::npos) << table.out;
  const std::string line = table.out.substr(table.out.find("\ntenon eval kld ") + 1);
  const Outcome again = tenon_line(line);
  const std::string figures = table.out.substr(0, table.out.find("over "));
  EXPECT_EQ(again.out.substr(0, figures.size()), figures) << again.err;
}

TEST_F(Kld, RefusesABaseOfSomethingElse) {
  ASSERT_EQ(tenon(save(model_)).code, 0);
  refused(compare(model_) + Words{"--context", "32"}, 8, {base_, "windows of 64", "32"});
  refused(compare(kStories), 8, {base_, "vocabulary of 260", "32000"});
  const std::string text = read_file(text_);
  write_file(text_, "the" + text.substr(3));
  refused(compare(model_), 8, {base_, "SHA-256", text_});
  write_file(text_, text.substr(0, 200));
  refused(compare(model_), 8, {base_, "8 windows of 64", text_});
}

TEST_F(Kld, RefusesFilesThatAreNoBase) {
  refused(compare(model_), 7, {base_});
  write_file(base_, "GGUF and so on");
  refused(compare(model_), 7, {base_, "--save-logits"});
  std::filesystem::remove(base_);
  ASSERT_EQ(tenon(save(model_)).code, 0);
  std::filesystem::resize_file(base_, std::filesystem::file_size(base_) - 1);
  refused(compare(model_), 7, {base_, "247 of 248 positions"});
}

TEST_F(Kld, LeavesNoHalfBaseOnAFullDisk) {
  std::string line = "trap '' XFSZ; ulimit -f 16; tenon";
  for (const std::string& word : save(model_)) line += " '" + word + "'";
  const Outcome full = tenon_line(line);
  EXPECT_EQ(full.code, 7) << full.err;
  EXPECT_NE(full.err.find(base_), std::string::npos) << full.err;
  EXPECT_FALSE(std::filesystem::exists(base_));
  EXPECT_FALSE(std::filesystem::exists(base_ + ".part"));
}

TEST_F(Kld, LeavesNoHalfBaseWhenInterrupted) {
  std::string words;
  for (int i = 0; i < 20000; ++i) words += "<" + std::to_string(i % 1000) + ">";
  write_file(text_, words);
  Running running({"eval", "perplexity", kStories, "--text", text_, "--context", "200", "--save-logits", base_});
  const std::filesystem::path part = base_ + ".part";
  std::error_code none;
  for (int i = 0; i < 10000 && (!exists(part) || file_size(part, none) < 1000); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  running.interrupt();
  const Outcome outcome = running.finish();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(base_));
  EXPECT_FALSE(std::filesystem::exists(base_ + ".part"));
}

}  // namespace
}  // namespace tenon::e2e
