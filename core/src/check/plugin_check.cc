// This runs the checks of a library in order. Each runs in a child with a time limit, and one that needs another to
// have passed is left out if that one has failed.
#include "tenon/core/plugin_check.h"

#include <algorithm>

#include "check/checks.h"
#include "registry/elf_note.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using Verdict = CheckResult::Verdict;

constexpr const char* kNoteCheck = "binary.note";
constexpr const char* kOpenCheck = "loading.open";
constexpr const char* kCreateCheck = "lifecycle.create_destroy";
constexpr const char* kConformance = "conformance";
constexpr char kNothingTested = 'n';

bool is_skipped(const std::string& name, const CheckOptions& options) {
  return std::any_of(options.skip.begin(), options.skip.end(),
                     [&](const std::string& s) { return name == s || name.starts_with(s + '.'); });
}

CheckResult run_in_time(const std::string& name, const std::function<void()>& check, std::chrono::milliseconds limit) {
  const ChildOutcome outcome = run_in_child(
      [&]() -> std::string {
        try {
          check();
          return "";
        } catch (const NotTested& e) {
          return kNothingTested + std::string(e.what());
        }
      },
      limit);
  if (outcome.end != ChildOutcome::End::kReturned) return {name, Verdict::kFailed, outcome.text};
  if (outcome.text.empty()) return {name, Verdict::kPassed, ""};
  return {name, Verdict::kNotTested, outcome.text.substr(1)};
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
  return names;
}

std::vector<CheckResult> check_plugin(const fs::path& library, const CheckOptions& options) {
  Subject subject;
  subject.plugin_dirs = options.plugin_dirs;
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
  const auto is = [&results](Verdict verdict, const std::string& name) {
    return std::any_of(results.begin(), results.end(),
                       [&](const CheckResult& r) { return r.name == name && r.verdict == verdict; });
  };
  // A check that was left out by request is taken to have passed; the note is always read.
  const auto stands = [&](const std::string& name) {
    return is(Verdict::kPassed, name) || (name != kNoteCheck && is_skipped(name, options));
  };
  const auto run = [&](const std::string& name, std::vector<std::string> needs, const std::function<void()>& check,
                       std::chrono::milliseconds limit) {
    needs.emplace_back(kNoteCheck);
    const auto missing = std::find_if_not(needs.begin(), needs.end(), stands);
    if (is_skipped(name, options)) {
      results.push_back({name, Verdict::kNotTested, "by request"});
    } else if (missing != needs.end()) {
      const char* how = is(Verdict::kFailed, *missing) ? " did not pass" : " was not tested";
      results.push_back({name, Verdict::kNotTested, *missing + how});
    } else {
      results.push_back(run_in_time(name, check, limit));
    }
  };
  for (const Check& check : all_checks()) {
    run(
        check.name, check.needs, [&] { check.run(subject); }, options.limit);
  }
  size_t of_its_kind = 0;
  for (const KindCheck& check : options.kind_checks) {
    if (check.kind != subject.note.kind) continue;
    ++of_its_kind;
    std::vector<std::string> needs = check.needs;
    needs.emplace_back(is(Verdict::kFailed, kCreateCheck) ? kCreateCheck : kOpenCheck);
    run(
        check.name, needs, [&] { check.run(subject.library); }, options.kind_limit);
  }
  if (of_its_kind == 0 && is(Verdict::kPassed, kNoteCheck)) {
    results.push_back({kConformance, Verdict::kNotTested, std::string("there is none for any ") + subject.note.kind});
  }
  return results;
}

}  // namespace tenon
