#include "tenon/profiler/trace_check.h"

#include <cstdio>

#include "command.h"

namespace tenon::app {
namespace {

int run(const std::string& file) {
  const profiler::CheckReport report = profiler::check_trace(file);
  for (const profiler::Finding& finding : report.findings) std::printf("%s\n", to_string(finding, file).c_str());
  std::printf("%s: %llu events, %llu slices, %llu counters: %llu losses, %llu notices\n", file.c_str(),
              static_cast<unsigned long long>(report.events), static_cast<unsigned long long>(report.slices),
              static_cast<unsigned long long>(report.counters), static_cast<unsigned long long>(report.losses),
              static_cast<unsigned long long>(report.notices));
  return report.ok() ? kOk : kFailed;
}

}  // namespace

Run add_trace(CLI::App& app) {
  CLI::App* trace = app.add_subcommand("trace", "Work with traces.");
  trace->require_subcommand(1);
  CLI::App* check =
      trace->add_subcommand("check", "Find what a viewer would lose without saying so. Exit code 1 if anything.");
  auto file = std::make_shared<std::string>();
  check->add_option("FILE", *file, "A trace in Chrome's JSON format, .json or .json.gz")->required();
  return [check, file] { return check->parsed() ? run(*file) : -1; };
}

}  // namespace tenon::app
