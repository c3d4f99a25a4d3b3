// `tenon trace compare` says how two traces differ, op by op; it fails if an op is slower. `tenon trace merge` makes
// one file of several.
#include "tenon/profiler/trace_compare.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>

#include "json_text.h"
#include "output_path.h"
#include "table.h"
#include "tenon/profiler/trace_merge.h"
#include "trace.h"

namespace tenon::app {
namespace {

using profiler::OpChange;
using Verdict = OpChange::Verdict;

constexpr size_t kFewSteps = 8;  // with fewer the rank test hardly tells anything

struct CompareArgs {
  std::string a, b, format = "table";
  double threshold_percent = 5, min_share_percent = 1;
  profiler::CompareOptions options;
  bool all = false;
};

profiler::TraceFile read(const std::string& file) {
  profiler::TraceFile trace = profiler::read_trace(file);
  for (const std::string& notice : trace.notices) spdlog::warn("{}: {}", file, notice);
  return trace;
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "same";
    case Verdict::kSlower:
      return "slower";
    case Verdict::kFaster:
      return "faster";
    case Verdict::kOnlyA:
      return "only in A";
    case Verdict::kOnlyB:
      return "only in B";
  }
  return "";
}

std::string component_of(const OpChange& c) {
  if (c.component_a == c.component_b || c.component_b.empty()) return c.component_a;
  return c.component_a.empty() ? c.component_b : c.component_a + " -> " + c.component_b;
}

std::string table_of(const std::vector<OpChange>& changes, bool all) {
  Table table({"phase", "module", "op", "component", "", "A us", "B us", "change", "share", "p", "steps"}, 5);
  for (const OpChange& c : changes) {
    if (!all && c.verdict == Verdict::kSame && !c.path.empty()) continue;
    const bool both = c.steps_a > 0 && c.steps_b > 0;
    table.row({c.phase, c.path.empty() ? "(whole step)" : c.path, c.op, component_of(c), name_of(c.verdict),
               c.steps_a > 0 ? fmt::format("{:.1f}", c.us_a) : "", c.steps_b > 0 ? fmt::format("{:.1f}", c.us_b) : "",
               both ? fmt::format("{:+.1f} %", 100 * c.change()) : "", fmt::format("{:.1f} %", 100 * c.share),
               both ? fmt::format("{:.2g}", c.p) : "", fmt::format("{}/{}", c.steps_a, c.steps_b)});
  }
  return table.text();
}

boost::json::array json_of(const std::vector<OpChange>& changes) {
  boost::json::array list;
  for (const OpChange& c : changes) {
    list.push_back(boost::json::object{{"phase", c.phase},
                                       {"module", c.path},
                                       {"op", c.op},
                                       {"component_a", c.component_a},
                                       {"component_b", c.component_b},
                                       {"verdict", name_of(c.verdict)},
                                       {"us_a", c.us_a},
                                       {"us_b", c.us_b},
                                       {"change", c.change()},
                                       {"share", c.share},
                                       {"p", c.p},
                                       {"steps_a", c.steps_a},
                                       {"steps_b", c.steps_b}});
  }
  return list;
}

int compare(CompareArgs args) {
  args.options.threshold = args.threshold_percent / 100;
  args.options.min_share = args.min_share_percent / 100;
  const profiler::TraceFile a = read(args.a), b = read(args.b);
  const std::vector<OpChange> changes = profiler::compare_traces(a, b, args.options);
  const bool matched = std::ranges::any_of(changes, [](const OpChange& c) { return c.steps_a > 0 && c.steps_b > 0; });
  if (!matched) {
    throw Error(ErrorCode::kUsage, args.a + " and " + args.b +
                                       " have no phase in common with operations in it; compare traces of the same "
                                       "kind of run");
  }
  const auto few = std::ranges::find_if(changes, [](const OpChange& c) {
    return c.path.empty() && c.steps_a > 0 && c.steps_b > 0 && std::min(c.steps_a, c.steps_b) < kFewSteps;
  });
  if (few != changes.end()) {
    spdlog::warn("{}: {} and {} steps; with fewer than {} a difference can hardly be told from noise", few->phase,
                 few->steps_a, few->steps_b, kFewSteps);
  }
  if (args.format == "json") {
    std::printf("%s\n", json_text(json_of(changes)).c_str());
  } else {
    std::fputs(table_of(changes, args.all).c_str(), stdout);
  }
  const auto slower = std::ranges::count(changes, Verdict::kSlower, &OpChange::verdict);
  if (args.format == "table") {
    std::printf("\n%td slower, %td faster, of %zu\n", slower,
                std::ranges::count(changes, Verdict::kFaster, &OpChange::verdict), changes.size());
  }
  return slower > 0 ? kFailed : kOk;
}

struct MergeArgs {
  std::string output;
  std::vector<std::string> files;
  bool force = false;
};

// Makes "rank0" of rank0.trace.json.gz; the whole path where two files have the same name.
std::vector<std::string> names_of(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename();
    names.push_back(name.substr(0, std::max<size_t>(1, name.find('.', 1))));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::count(names, names[i]) > 1) return files;
  }
  return names;
}

int merge(const MergeArgs& args) {
  check_output(args.output, args.files, args.force);
  std::vector<profiler::TraceFile> traces;
  for (const std::string& file : args.files) traces.push_back(profiler::read_trace(file));
  for (const std::string& notice : profiler::merge_traces(traces, names_of(args.files), args.output, args.force)) {
    spdlog::warn("{}", notice);
  }
  spdlog::info("{} traces in {}", traces.size(), args.output);
  return kOk;
}

}  // namespace

Run add_trace_compare(CLI::App& trace) {
  CLI::App* command = trace.add_subcommand(
      "compare",
      "Which operations take longer or less in B than in A, by more than the steps of each differ among themselves: "
      "medians of what an operation adds to a step, and a rank test over the steps. Operations are matched by phase, "
      "module and name. Exit code 1 if a step as a whole or an operation is slower.");
  auto args = std::make_shared<CompareArgs>();
  command->add_option("A", args->a, "The trace to compare with")->required();
  command->add_option("B", args->b, "The trace to be judged")->required();
  command->add_option("--threshold", args->threshold_percent, "Percent that a median has to change to count")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--alpha", args->options.alpha,
                   "How likely chance alone may make such a difference, of the rank test")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--min-share", args->min_share_percent, "Percent of its step that an operation has to be to count")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--all", args->all, "Also list what is the same");
  command->add_option("--format", args->format, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  return [command, args] { return command->parsed() ? compare(*args) : -1; };
}

Run add_trace_merge(CLI::App& trace) {
  CLI::App* command = trace.add_subcommand(
      "merge", "Several processes' traces as one, on a common clock, their processes side by side.");
  auto args = std::make_shared<MergeArgs>();
  command->add_option("FILE", args->files, "Traces, .json or .json.gz")->required()->expected(2, 256);
  command->add_option("-o,--output", args->output, "The merged trace; .gz compresses it")->required();
  add_force(*command, args->force);
  return [command, args] { return command->parsed() ? merge(*args) : -1; };
}

}  // namespace tenon::app
