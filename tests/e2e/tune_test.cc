// This tests what `tenon tune` chooses by costs that need no clock, and that its file gives the same pipeline again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"

namespace tenon::e2e {
namespace {

using ::testing::HasSubstr;

const std::string kModel = golden("tiny-gqa-untied");
constexpr char kText[] =
    "The other bird sat on the wall and saw the other bird. One day the wall was gone, and the bird too.";

std::map<std::string, std::string> chosen(const boost::json::value& report) {
  std::map<std::string, std::string> by_path;
  for (const boost::json::value& site : report.at("sites").as_array()) {
    by_path[std::string(site.at("path").as_string())] = std::string(site.at("chosen").as_string());
  }
  return by_path;
}

TEST(Tune, TakesWhatReadsTheFewestBytesAndItsFileRunsAsItWasChosen) {
  const std::string file = temporary_folder() / "tuned.toml";
  const boost::json::value report = tenon_json({"tune", kStories, "--candidates", "none,int8wo,int4wo:group_size=32",
                                                "--cost", "bytes", "--batch", "1,3", "--output", file, "--json"});
  const auto by_path = chosen(report);
  ASSERT_EQ(by_path.size(), 5u);
  for (const auto& [path, scheme] : by_path) EXPECT_EQ(scheme, "int4wo:group_size=32") << path;
  for (const boost::json::value& site : report.at("sites").as_array()) {
    const auto cost = [&](const char* name) {
      return site.at("candidates").at(name).at("cost").as_array().at(0).to_number<double>();
    };
    EXPECT_LT(cost("int4wo:group_size=32"), cost("int8wo"));
    EXPECT_LT(cost("int8wo"), cost("none"));
  }
  const Outcome plan = tenon({"plan", file});
  ASSERT_EQ(plan.code, 0) << plan.err;
  for (const auto& [path, scheme] : by_path) {
    const size_t at = plan.out.find("  " + path);
    ASSERT_NE(at, std::string::npos) << path;
    EXPECT_THAT(plan.out.substr(at, plan.out.find('\n', at) - at), HasSubstr("quantization.int4wo")) << path;
  }
  EXPECT_EQ(tenon({"plan", file, "--toml"}).out, read_file(file));
}

// The cheaper scheme holds what it may: at a narrow bound no matrix, at a wide one all, between them some.
TEST(Tune, KeepsWithinTheDivergence) {
  const std::filesystem::path folder = temporary_folder();
  write_file(folder / "text", kText);
  const auto tuned = [&](const std::string& bound) {
    return tenon_json(Words{"tune", kModel, "--candidates", "int4wo:group_size=32,none:dtype=\"fp32\"", "--cost",
                            "bytes", "--text", folder / "text", "--context", "16", "--max-divergence", bound,
                            "--json"} +
                      Words{"--set", "quantization.use=none", "--set", "quantization.dtype=fp32"});
  };
  const boost::json::value none = tuned("1e-6"), all = tuned("100");
  for (const auto& [path, scheme] : chosen(none)) EXPECT_EQ(scheme, "none:dtype=\"fp32\"") << path;
  for (const auto& [path, scheme] : chosen(all)) EXPECT_EQ(scheme, "int4wo:group_size=32") << path;
  EXPECT_LT(none.at("divergence").to_number<double>(), 1e-6);  // the base's rounding leaves this much
  EXPECT_GT(all.at("divergence").to_number<double>(), 1e-6);
  std::vector<double> divergences;
  for (const boost::json::value& site : all.at("sites").as_array()) {
    divergences.push_back(site.at("candidates").at("int4wo:group_size=32").at("divergence").to_number<double>());
  }
  std::sort(divergences.begin(), divergences.end());
  const auto some = chosen(tuned(std::to_string(divergences[divergences.size() / 2])));
  const auto quantized = std::count_if(some.begin(), some.end(), [](const auto& s) { return s.second[0] == 'i'; });
  EXPECT_GT(quantized, 0);
  EXPECT_LT(quantized, static_cast<ptrdiff_t>(some.size()));
}

// The SQNR does the same, with an order among the sites of its own.
TEST(Tune, KeepsTheSignalAboveTheNoise) {
  const std::filesystem::path folder = temporary_folder();
  write_file(folder / "text", kText);
  const auto tuned = [&](const std::string& bound) {
    return tenon_json(Words{"tune", kModel, "--candidates", "int4wo:group_size=32,none:dtype=\"fp32\"", "--cost",
                            "bytes", "--text", folder / "text", "--context", "16", "--min-sqnr", bound, "--json"} +
                      Words{"--set", "quantization.use=none", "--set", "quantization.dtype=fp32"});
  };
  const boost::json::value none = tuned("150"), all = tuned("-100");
  for (const auto& [path, scheme] : chosen(none)) EXPECT_EQ(scheme, "none:dtype=\"fp32\"") << path;
  for (const auto& [path, scheme] : chosen(all)) EXPECT_EQ(scheme, "int4wo:group_size=32") << path;
  EXPECT_GE(none.at("sqnr_db").to_number<double>(), 150);
  double least = 200;
  for (const boost::json::value& site : all.at("sites").as_array()) {
    const double db = site.at("candidates").at("int4wo:group_size=32").at("sqnr_db").to_number<double>();
    EXPECT_GT(db, 0);
    EXPECT_LT(db, 60);
    least = std::min(least, db);
  }
  EXPECT_LT(all.at("sqnr_db").to_number<double>(), least);  // all together have more noise than any one
}

TEST(Tune, TimesStepsAndSaysWhatItFound) {
  const Outcome outcome = tenon({"tune", kModel, "--candidates", "int8wo,gptq", "--prompt-tokens", "8"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("layers.*.mlp.down"));
  EXPECT_THAT(outcome.out, HasSubstr("us a decode step, all layers together"));
  EXPECT_THAT(outcome.out, HasSubstr("gptq is left out: "));
}

TEST(Tune, RefusesByName) {
  const auto refusal = [](const Words& words) { return tenon(Words{"tune", kModel} + words); };
  const Outcome unknown = refusal({"--candidates", "int8w"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"int8wo\"?"));
  const Outcome unfit = refusal({"--candidates", "gptq"});
  EXPECT_EQ(unfit.code, 8) << unfit.err;
  EXPECT_THAT(unfit.err, HasSubstr("runs with none of the candidates"));
  for (const char* bound : {"--max-divergence", "--min-sqnr"}) {
    const Outcome blind = refusal({"--candidates", "int8wo", bound, "1"});
    EXPECT_EQ(blind.code, 2);
    EXPECT_THAT(blind.err, HasSubstr(std::string(bound) + " needs --text"));
  }
}

}  // namespace
}  // namespace tenon::e2e
