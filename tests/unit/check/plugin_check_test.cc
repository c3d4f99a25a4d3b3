// These tests run `tenon plugin check`'s checks on what ships and on plugins that each break one of them.
#include "tenon/core/plugin_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "conformance/suite.h"
#include "scratch.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using Verdict = CheckResult::Verdict;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

CheckOptions quick() {
  CheckOptions options;
  options.limit = std::chrono::seconds(120);
  return options;
}

// Returns "name: message" of what failed.
std::vector<std::string> failures_of(const fs::path& library, const CheckOptions& options = quick()) {
  std::vector<std::string> failures;
  for (const CheckResult& r : check_plugin(library, options)) {
    if (r.verdict == Verdict::kFailed) failures.push_back(r.name + ": " + r.message);
  }
  return failures;
}

TEST(PluginCheck, WhatShipsPasses) {
  // Plugins for a GPU are checked as far as a host without one can look. Where CUDA was not found there are none.
  size_t seen = 0;
  for (const auto& entry : fs::recursive_directory_iterator(TENON_OUR_PLUGINS)) {
    if (entry.path().extension() != ".so") continue;
    ++seen;
    EXPECT_THAT(failures_of(entry.path()), IsEmpty()) << entry.path();
  }
  EXPECT_GT(seen, 40U);
  EXPECT_THAT(failures_of(test::bad_plugin("good")), IsEmpty());
  EXPECT_THAT(failures_of(test::bad_plugin("newer_minor")), IsEmpty());
  EXPECT_THAT(failures_of(test::bad_plugin("older_minor")), IsEmpty());
}

// Returns what of the kind's conformance fails: "name: message".
std::vector<std::string> unfit(const fs::path& library) {
  CheckOptions options = quick();
  options.kind_checks = conformance::kind_checks({});
  options.kind_limit = std::chrono::minutes(20);
  std::vector<std::string> failures;
  size_t passed = 0;
  for (const CheckResult& r : check_plugin(library, options)) {
    const bool conforms = r.name.starts_with("conformance.");
    if (conforms && r.verdict == Verdict::kFailed) failures.push_back(r.name + ": " + r.message);
    if (conforms && r.verdict == Verdict::kPassed) ++passed;
  }
  EXPECT_GT(passed + failures.size(), 0U);
  return failures;
}

// The suite itself is run over all that ships by conformance_test.
TEST(PluginCheck, WhatShipsConforms) {
  for (const char* name :
       {"attention/reference", "draft/ngram", "quantization/int4wo", "sampler/greedy", "sampler/repetition_penalty"}) {
    EXPECT_THAT(unfit(fs::path(TENON_OUR_PLUGINS) / (std::string(name) + ".cpu.so")), IsEmpty()) << name;
  }
}

// These pass everything else.
TEST(PluginCheck, ConformanceFindsWrongAnswers) {
  for (const char* name :
       {"allows_all", "proposes_minus_one", "raises_banned", "rewinds_too_little", "takes_least", "wrong_product"}) {
    EXPECT_THAT(failures_of(test::bad_plugin(name)), IsEmpty()) << name;
    EXPECT_THAT(unfit(test::bad_plugin(name)), Not(IsEmpty())) << name;
  }
  EXPECT_THAT(unfit(test::bad_plugin("throws_attention")), Not(IsEmpty()));
}

// All that is wrong is what they make of factors.
TEST(PluginCheck, ConformanceFindsWrongFactors) {
  const std::map<std::string, std::string> messages = {
      {"undoes_factors", "a matrix with factors in its columns is off by"},
      {"zero_factor", "column 7 gets the factor 0.000000; expected a finite number above 0"}};
  for (const auto& [name, message] : messages) {
    EXPECT_THAT(failures_of(test::bad_plugin(name)), IsEmpty()) << name;
    const std::vector<std::string> found = unfit(test::bad_plugin(name));
    EXPECT_THAT(found, Not(IsEmpty())) << name;
    EXPECT_THAT(found, Each(AllOf(HasSubstr("column_factors"), HasSubstr(message)))) << name;
  }
}

TEST(PluginCheck, SkipsWhatItIsAskedTo) {
  CheckOptions options = quick();
  options.skip = {"lifecycle", "binary.exports"};
  std::map<std::string, CheckResult> results;
  for (const CheckResult& r : check_plugin(test::bad_plugin("good"), options)) results[r.name] = r;
  EXPECT_EQ(results.at("lifecycle.two_instances").verdict, Verdict::kNotTested);
  EXPECT_EQ(results.at("lifecycle.two_instances").message, "by request");
  EXPECT_EQ(results.at("binary.exports").verdict, Verdict::kNotTested);
  EXPECT_EQ(results.at("binary.unique_symbols").verdict, Verdict::kPassed);
  EXPECT_EQ(results.at("parameters.bounds").verdict, Verdict::kPassed);
  EXPECT_EQ(results.size(), plugin_check_names().size() + 1) << "and what is said of conformance";
}

TEST(PluginCheck, WithoutANoteNothingElseIsDone) {
  CheckOptions options = quick();
  options.skip = {"binary"};
  const std::vector<CheckResult> results = check_plugin(test::bad_plugin("no_plugin"), options);
  EXPECT_EQ(results.front().verdict, Verdict::kFailed);
  for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i].verdict, Verdict::kNotTested) << results[i].name;
}

TEST(PluginCheck, NoSuchFile) {
  EXPECT_THROW(check_plugin("/none/such.so", quick()), Error);
}

struct Broken {
  const char* name;
  const char* check;
  const char* message;
};
void PrintTo(const Broken& b, std::ostream* out) {
  *out << b.name;
}

class BrokenPlugin : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenPlugin, FailsExactlyItsCheck) {
  const std::vector<std::string> failures = failures_of(test::bad_plugin(GetParam().name));
  ASSERT_EQ(failures.size(), 1u) << ::testing::PrintToString(failures);
  EXPECT_THAT(failures[0], HasSubstr(std::string(GetParam().check) + ": "));
  EXPECT_THAT(failures[0], HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenPlugin,
    ::testing::Values(Broken{"no_plugin", "binary.note", "is no Tenon plugin"},
                      Broken{"no_symbol", "binary.symbol", "does not export tenon_plugin_v1"},
                      Broken{"needs_newer_minor", "descriptor.note", "needs plugin ABI 1.3"},
                      Broken{"other_major", "descriptor.note", "plugin ABI 2.0"},
                      Broken{"stale_layout", "descriptor.note", "another draft of sampler/1"},
                      Broken{"unknown_kind", "descriptor.note", "samplor"},
                      Broken{"on_host", "descriptor.note", "is for the device \"host\""},
                      Broken{"schema_mismatch", "loading.open", "are not those that its note promises"},
                      Broken{"note_contradicts", "loading.open", "its table says sampler/good for cpu"},
                      Broken{"missing_library", "loading.open", "libtenon_bad_stub.so"},
                      Broken{"refuses_init", "loading.open", "no licence for this host"},
                      Broken{"crashes", "loading.open", "crashed with signal 6"},
                      Broken{"throws_create", "lifecycle.create_destroy", "the constructor threw"},
                      Broken{"throws_past_sdk", "lifecycle.create_destroy", "let an exception out"},
                      Broken{"no_interface", "lifecycle.create_destroy", "has no interface"},
                      Broken{"missing_function", "lifecycle.create_destroy", "\"encode\", \"record_select\""},
                      Broken{"single_instance", "lifecycle.two_instances", "there can be only one"},
                      Broken{"leaks_memory", "lifecycle.failed_create",
                             "a create that fails does not give back all of the host's memory; pieces left: 1"},
                      Broken{"throws_without_memory", "lifecycle.failed_create", "lets an exception out"},
                      Broken{"insists_on_size", "interface.struct_sizes",
                             "with the structs of a newer host: sampler.good: another host than it was built for"},
                      Broken{"writes_whole_struct", "interface.struct_sizes", "changes the head of a tenon_kv_format"},
                      Broken{"fails_at_bound", "parameters.bounds",
                             "fails at a value of \"k\" that its schema allows (int: 1 to 8"},
                      Broken{"throws_sampler", "interface.corners", "encode threw"},
                      Broken{"throws_attention", "interface.corners", "has no preferred format: out of host memory"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(PluginCheck, AnUntidyLibraryFailsEachOfItsThree) {
  std::vector<testing::Matcher<std::string>> failures = {
      HasSubstr("binary.exports: exports more than tenon_plugin_v1: "),
      HasSubstr("binary.unique_symbols: has the process-wide unique symbol "),
      "binary.run_path: looks for its libraries in /opt/tenon/lib; a run path should begin with $ORIGIN"};
#ifdef __clang__  // clang never makes such symbols
  failures.erase(failures.begin() + 1);
#endif
  EXPECT_THAT(failures_of(test::bad_plugin("untidy")), testing::ElementsAreArray(failures));
}

TEST(PluginCheck, ALibraryThatHangsIsStopped) {
  CheckOptions options = quick();
  options.limit = std::chrono::seconds(2);
  options.skip = {"binary.exports", "binary.unique_symbols", "binary.run_path", "loading.trust"};
  EXPECT_THAT(failures_of(test::bad_plugin("hangs"), options), ElementsAre("loading.open: gave no answer within 2 s"));
}

TEST(PluginCheck, WhatOthersCanWriteToFails) {
  const test::Scratch folder;
  const fs::path library = folder.copy(test::bad_plugin("good"), "good.cpu.so");
  fs::permissions(library, fs::perms::all);
  EXPECT_THAT(failures_of(library), ElementsAre(HasSubstr("loading.trust: ")));
}

}  // namespace
}  // namespace tenon
