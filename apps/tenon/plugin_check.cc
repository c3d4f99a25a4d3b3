// `tenon plugin check`: what a plugin must do before anybody should load it.
#include "tenon/core/plugin_check.h"

#include <cstdio>

#include "command.h"
#include "report.h"

namespace tenon::app {
namespace {

struct Args {
  std::string library, suites;
  std::vector<std::string> skip;
  double limit = 10;
  bool json = false;
};

using Verdict = CheckResult::Verdict;

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "ok";
    case Verdict::kFailed:
      return "FAILED";
    case Verdict::kSkipped:
      return "skipped";
  }
  return "";
}

int run(const Args& args) {
  CheckOptions options;
  options.limit = std::chrono::milliseconds(static_cast<int64_t>(args.limit * 1000));
  options.skip = args.skip;
  options.suites = args.suites.empty() ? std::filesystem::canonical("/proc/self/exe").parent_path()
                                       : std::filesystem::path(args.suites);
  const std::vector<CheckResult> results = check_plugin(args.library, options);
  boost::json::array list;
  int failed = 0;
  for (const CheckResult& r : results) {
    failed += r.verdict == Verdict::kFailed;
    list.push_back(boost::json::object{{"name", r.name}, {"verdict", word(r.verdict)}, {"message", r.message}});
    if (!args.json) std::printf("%-26s %-8s %s\n", r.name.c_str(), word(r.verdict), r.message.c_str());
  }
  if (args.json) {
    const boost::json::object all = {{"library", args.library}, {"failed", failed}, {"checks", list}};
    std::printf("%s\n", boost::json::serialize(all).c_str());
  } else {
    std::printf("%s: %s\n", args.library.c_str(), failed == 0 ? "no check failed" : "see above");
  }
  if (std::fflush(stdout) != 0) return kIo;
  return failed == 0 ? kOk : kPlugin;
}

}  // namespace

Run add_plugin(CLI::App& app) {
  CLI::App* plugin = app.add_subcommand("plugin", "Work on plugins.");
  plugin->require_subcommand(1);
  CLI::App* check = plugin->add_subcommand("check", "Check a plugin library, each check in a process of its own.");
  auto args = std::make_shared<Args>();
  check->add_option("FILE", args->library, "The library, as in mine.cpu.so")->required();
  std::string names;
  for (const std::string& name : plugin_check_names()) names += (names.empty() ? "" : ", ") + name;
  check->add_option("--skip", args->skip, "Checks to leave out, or their first parts, with commas: " + names)
      ->delimiter(',')
      ->allow_extra_args(false);
  check->add_option("--limit", args->limit, "Seconds for each check")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str();
  check->add_option("--suites", args->suites, "The folder of the conformance programs; by default this program's");
  check->add_flag("--json", args->json, "As JSON");
  return [check, args] { return check->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
