// `tenon plugin check` runs what a plugin must pass before anybody should load it. Each check runs in a process of its
// own, with a limit of time; one that failed makes the command fail, one that was not tested does not.
#include "tenon/core/plugin_check.h"

#include <algorithm>
#include <cstdio>

#include "command.h"
#include "conformance/suite.h"
#include "json_text.h"
#include "plugin_new.h"
#include "report.h"

namespace tenon::app {
namespace {

struct Args {
  std::string library;
  std::vector<std::string> skip, plugin_dirs;
  double limit = 10, kind_limit = 300;
  bool json = false;
};

using Verdict = CheckResult::Verdict;

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "ok";
    case Verdict::kFailed:
      return "FAILED";
    case Verdict::kNotTested:
      return "not tested";
  }
  return "";
}

// Returns a text such as "2 failed: a, b; 12 passed; 1 not tested: c (why)".
std::string summary(const std::vector<CheckResult>& results) {
  size_t count[3] = {};
  std::string names[3];
  for (const CheckResult& r : results) {
    const auto i = static_cast<size_t>(r.verdict);
    ++count[i];
    names[i] += (names[i].empty() ? "" : ", ") + r.name;
    if (r.verdict == Verdict::kNotTested) names[i] += " (" + r.message + ')';
  }
  const auto part = [&](Verdict verdict, const char* what) {
    const auto i = static_cast<size_t>(verdict);
    return count[i] == 0 ? "" : std::to_string(count[i]) + what + ": " + names[i];
  };
  const std::string failed = part(Verdict::kFailed, " failed"), untested = part(Verdict::kNotTested, " not tested");
  const std::string passed = std::to_string(count[static_cast<size_t>(Verdict::kPassed)]) + " passed";
  return failed + (failed.empty() ? "" : "; ") + passed + (untested.empty() ? "" : "; ") + untested;
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

int run(const Args& args) {
  CheckOptions options;
  options.limit = milliseconds(args.limit);
  options.kind_limit = milliseconds(args.kind_limit);
  options.skip = args.skip;
  options.plugin_dirs = plugin_search_path({args.plugin_dirs.begin(), args.plugin_dirs.end()});
  options.kind_checks = conformance::kind_checks(options.plugin_dirs);
  const std::vector<CheckResult> results = check_plugin(args.library, options);
  boost::json::array list;
  const bool failed =
      std::any_of(results.begin(), results.end(), [](const auto& r) { return r.verdict == Verdict::kFailed; });
  for (const CheckResult& r : results) {
    list.push_back(boost::json::object{{"name", r.name}, {"verdict", word(r.verdict)}, {"message", r.message}});
    if (!args.json) std::printf("%-28s %-10s %s\n", r.name.c_str(), word(r.verdict), r.message.c_str());
  }
  if (args.json) {
    const boost::json::object all = {{"library", args.library}, {"summary", summary(results)}, {"checks", list}};
    std::printf("%s\n", json_text(all).c_str());
  } else {
    std::printf("%s: %s\n", args.library.c_str(), summary(results).c_str());
  }
  return failed ? kPlugin : kOk;
}

}  // namespace

Run add_plugin(CLI::App& app) {
  CLI::App* plugin = app.add_subcommand("plugin", "Work on plugins.");
  plugin->require_subcommand(1);
  CLI::App* check = plugin->add_subcommand("check", "Check a plugin library, each check in a process of its own.");
  auto args = std::make_shared<Args>();
  check->add_option("FILE", args->library, "The library, as in mine.cpu.so")->required();
  std::string names;
  for (const std::string& name : plugin_check_names()) names += name + ", ";
  names += "conformance";
  check->add_option("--skip", args->skip, "Checks to leave out, or their first parts, with commas: " + names)
      ->delimiter(',')
      ->allow_extra_args(false);
  check->add_option("--limit", args->limit, "Seconds for each check")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  check->add_option("--conformance-limit", args->kind_limit, "Seconds for each check of conformance")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  check->add_option("--plugin-dir", args->plugin_dirs, "Where to look for the device first")->allow_extra_args(false);
  check->add_flag("--json", args->json, "As JSON");
  return [check, args, make = add_plugin_new(*plugin)] { return check->parsed() ? run(*args) : make(); };
}

}  // namespace tenon::app
