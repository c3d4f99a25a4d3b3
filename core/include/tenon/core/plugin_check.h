// A plugin library is checked from outside: whatever it does, it does to a child process.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tenon/core/params.h"

namespace tenon {

// This says how a piece of work in a child process ended.
struct ChildOutcome {
  enum class End { kReturned, kThrew, kCrashed, kTimedOut };
  End end = End::kReturned;
  std::string text;  // the result, what the exception said, or how the process died
};
// Runs work in a forked child, whose standard output goes to standard error. When it ends, or the limit is over, its
// whole process group is killed. Call it from a process with one thread, or with work that takes no lock that another
// may hold. Throws Error(kIo) if no child can be started.
ChildOutcome run_in_child(const std::function<std::string()>& work, std::chrono::milliseconds limit);

// A check throws this, with the reason, if it cannot say anything about this library here.
struct NotTested : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CheckResult {
  enum class Verdict { kPassed, kFailed, kNotTested };
  std::string name;  // "binary.exports"
  Verdict verdict = Verdict::kPassed;
  std::string message;  // why it failed or was not tested; empty if it passed
};

// This checks one thing that every component of a kind owes; the folder conformance has them. run
// throws Error with what is wrong, or NotTested.
struct KindCheck {
  std::string kind, name;
  std::vector<std::string> needs;  // checks without which this one means nothing
  std::function<void(const std::filesystem::path& library)> run;
};

struct CheckOptions {
  std::chrono::milliseconds limit{10000};          // a check takes so long at most
  std::chrono::milliseconds kind_limit{300000};    // one of kind_checks takes so long at most
  std::vector<std::string> skip;                   // names of checks, or their beginnings: "lifecycle"
  std::vector<std::filesystem::path> plugin_dirs;  // devices other than the CPU are looked for here
  std::vector<KindCheck> kind_checks;              // one for each kind
};

// Runs all checks of a library in order, each in a child process of its own. The results are deterministic but for the
// limits. Throws Error(kPlugin) if there is no such file.
std::vector<CheckResult> check_plugin(const std::filesystem::path& library, const CheckOptions& options);
// Returns the names of the checks, without those of kind_checks.
std::vector<std::string> plugin_check_names();

// Returns values for a schema, which outlives them: the defaults, and for required ones something that they allow.
ParamValues example_values(const tenon_param_schema& schema);

}  // namespace tenon
