// Examining a plugin library from outside: whatever it does, it does to a child process.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tenon/core/params.h"

namespace tenon {

// How a piece of work in a child process ended.
struct ChildOutcome {
  enum class End { kReturned, kThrew, kCrashed, kTimedOut };
  End end = End::kReturned;
  std::string text;  // the result, what the exception said, or how the process died
};
// Runs work in a forked child, whose standard output goes to standard error. The child is killed when the limit is
// over. Call it from a process with one thread, or with work that takes no lock that another may hold.
// Throws Error(kIo) if no child can be started.
ChildOutcome run_in_child(const std::function<std::string()>& work, std::chrono::milliseconds limit);

struct CheckResult {
  enum class Verdict { kPassed, kFailed, kSkipped };
  std::string name;  // "binary.exports"
  Verdict verdict = Verdict::kPassed;
  std::string message;  // why it failed or was skipped; may be empty if it passed
};

struct CheckOptions {
  std::chrono::milliseconds limit{10000};         // of one check
  std::chrono::milliseconds suite_limit{300000};  // of the kind's conformance suite
  std::vector<std::string> skip;                  // names, or their first parts: "lifecycle"
  std::filesystem::path suites;                   // where the conformance programs are; empty: there are none
};

// All checks of a library in order, each in a child process of its own. Deterministic but for the limits.
// Throws Error(kPlugin) if there is no such file.
std::vector<CheckResult> check_plugin(const std::filesystem::path& library, const CheckOptions& options);
// Their names, for --help and for `skip`.
std::vector<std::string> plugin_check_names();

// The defaults of a schema; required texts and numbers at something that they allow. The schema outlives them.
ParamValues example_values(const tenon_param_schema& schema);

}  // namespace tenon
