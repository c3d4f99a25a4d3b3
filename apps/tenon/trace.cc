#include "trace.h"

#include <cstdio>

#include "tenon/profiler/trace_check.h"

namespace tenon::app {
namespace {

int check(const std::string& file) {
  const profiler::CheckReport report = profiler::check_trace(file);
  for (const profiler::Finding& finding : report.findings) std::printf("%s\n", to_string(finding, file).c_str());
  std::printf("%s: %llu events, %llu slices, %llu counters: %llu losses, %llu notices\n", file.c_str(),
              static_cast<unsigned long long>(report.events), static_cast<unsigned long long>(report.slices),
              static_cast<unsigned long long>(report.counters), static_cast<unsigned long long>(report.losses),
              static_cast<unsigned long long>(report.notices));
  return report.ok() ? kOk : kFailed;
}

Run add_trace_check(CLI::App& trace) {
  CLI::App* command =
      trace.add_subcommand("check", "Find what a viewer would lose without saying so. Exit code 1 if anything.");
  auto file = std::make_shared<std::string>();
  command->add_option("FILE", *file, "A trace in Chrome's JSON format, .json or .json.gz")->required();
  return [command, file] { return command->parsed() ? check(*file) : -1; };
}

}  // namespace

Run add_trace(CLI::App& app) {
  CLI::App* trace = app.add_subcommand("trace", "Work with traces.");
  trace->require_subcommand(1);
  const std::vector<Run> commands = {add_trace_check(*trace), add_trace_stats(*trace), add_trace_compare(*trace),
                                     add_trace_merge(*trace)};
  return [commands] {
    int code = -1;
    for (size_t i = 0; i < commands.size() && code < 0; ++i) code = commands[i]();
    return code;
  };
}

}  // namespace tenon::app
