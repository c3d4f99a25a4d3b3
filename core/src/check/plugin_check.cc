#include "tenon/core/plugin_check.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "check/checks.h"
#include "registry/elf_note.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using Verdict = CheckResult::Verdict;

constexpr const char* kNoteCheck = "binary.note";
constexpr const char* kSuiteCheck = "conformance.suite";
constexpr char kSkipped = 's';

// Which cases of a kind's conformance program are for any component of the kind.
struct Suite {
  const char* program;
  const char* filter;
};
const Suite* suite_of(const std::string& kind) {
  static const std::map<std::string, Suite> kSuites = {
      {"attention", {"attention_test", "All/AttentionTest.*"}},
      {"draft", {"draft_test", "All/AnyDraft.*"}},
      {"kv_cache", {"kv_cache_test", "All/KvCacheTest.*"}},
      {"quantization", {"quantization_test", "All/AnyQuantization.*"}},
      {"sampler", {"sampler_test", "All/AnyProcessor.*:All/AnySelector.*"}}};
  const auto it = kSuites.find(kind);
  return it == kSuites.end() ? nullptr : &it->second;
}

bool is_skipped(const std::string& name, const CheckOptions& options) {
  return std::any_of(options.skip.begin(), options.skip.end(),
                     [&](const std::string& s) { return name == s || name.starts_with(s + '.'); });
}

CheckResult result_of(const std::string& name, const ChildOutcome& outcome) {
  if (outcome.end != ChildOutcome::End::kReturned) return {name, Verdict::kFailed, outcome.text};
  if (outcome.text.empty()) return {name, Verdict::kPassed, ""};
  return {name, Verdict::kSkipped, outcome.text.substr(1)};
}

CheckResult run(const Check& check, const Subject& subject, const CheckOptions& options) {
  return result_of(check.name, run_in_child(
                                   [&]() -> std::string {
                                     try {
                                       check.run(subject);
                                       return "";
                                     } catch (const Skip& e) {
                                       return kSkipped + std::string(e.what());
                                     }
                                   },
                                   options.limit));
}

// The program takes the library from its environment, and says on standard error what fails.
CheckResult run_suite(const Subject& subject, const CheckOptions& options) {
  const Suite* suite = suite_of(subject.note.kind);
  if (suite == nullptr)
    return {kSuiteCheck, Verdict::kSkipped, std::string("there is none for any ") + subject.note.kind};
  const fs::path program = options.suites / suite->program;
  std::error_code missing;
  if (options.suites.empty() || !fs::exists(program, missing)) {
    return {kSuiteCheck, Verdict::kSkipped, std::string("the program ") + suite->program + " is not here"};
  }
  const ChildOutcome outcome = run_in_child(
      [&]() -> std::string {
        const pid_t child = fork();
        if (child == 0) {
          setenv("TENON_CONFORMANCE_LIBRARY", subject.library.c_str(), 1);
          const std::string filter = std::string("--gtest_filter=") + suite->filter;
          execl(program.c_str(), program.c_str(), filter.c_str(), "--gtest_brief=1", nullptr);
          _exit(127);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) fail_check("the suite crashed");
        if (WEXITSTATUS(status) != 0) fail_check("cases fail, see above");
        return "";
      },
      options.suite_limit);
  return result_of(kSuiteCheck, outcome);
}

std::vector<Check> all_checks() {
  std::vector<Check> checks = file_checks();
  checks.insert(checks.end(), component_checks().begin(), component_checks().end());
  return checks;
}

}  // namespace

std::vector<std::string> plugin_check_names() {
  std::vector<std::string> names = {kNoteCheck};
  for (const Check& check : all_checks()) names.emplace_back(check.name);
  names.emplace_back(kSuiteCheck);
  return names;
}

std::vector<CheckResult> check_plugin(const fs::path& library, const CheckOptions& options) {
  Subject subject;
  std::error_code failed;
  subject.library = fs::canonical(library, failed);
  if (failed) throw Error(ErrorCode::kPlugin, library.string() + ": " + failed.message());

  std::vector<CheckResult> results = {{kNoteCheck, Verdict::kPassed, ""}};
  try {
    const std::optional<tenon_note> note = read_note(ElfFile(subject.library));
    if (!note) fail_check("is no Tenon plugin: it has no note of that name");
    subject.note = *note;
  } catch (const Error& e) {
    results.front() = {kNoteCheck, Verdict::kFailed, e.diagnostics().front().message};
  }
  const auto passed = [&results](const std::string& name) {
    return std::any_of(results.begin(), results.end(),
                       [&](const CheckResult& r) { return r.name == name && r.verdict == Verdict::kPassed; });
  };
  // What was left out by request is taken to be so; the note is always read.
  const auto stands = [&](const std::string& name) {
    return passed(name) || (name != kNoteCheck && is_skipped(name, options));
  };
  for (const Check& check : all_checks()) {
    std::vector<std::string> needs = check.needs;
    needs.emplace_back(kNoteCheck);
    const auto missing = std::find_if_not(needs.begin(), needs.end(), stands);
    if (is_skipped(check.name, options)) {
      results.push_back({check.name, Verdict::kSkipped, "by request"});
    } else if (missing != needs.end()) {
      results.push_back({check.name, Verdict::kSkipped, *missing + " did not pass"});
    } else {
      results.push_back(run(check, subject, options));
    }
  }
  if (is_skipped(kSuiteCheck, options)) {
    results.push_back({kSuiteCheck, Verdict::kSkipped, "by request"});
  } else if (!stands("lifecycle.create_destroy")) {
    results.push_back({kSuiteCheck, Verdict::kSkipped, "lifecycle.create_destroy did not pass"});
  } else {
    results.push_back(run_suite(subject, options));
  }
  return results;
}

}  // namespace tenon
