// `tenon trace stats` says where the time of a trace went, by component, op or module. Steps in which nothing was
// recorded do not count, and are named. The table shows requests, too; CSV has operations alone.
#include "tenon/profiler/trace_stats.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <boost/json.hpp>
#include <cstdio>
#include <map>

#include "json_text.h"
#include "op_report.h"
#include "table.h"
#include "tenon/profiler/request_stats.h"
#include "trace.h"

namespace tenon::app {
namespace {

using profiler::GroupBy;
using profiler::GroupStats;
using profiler::PhaseStats;
using profiler::RequestPercentiles;
using profiler::TraceStats;

struct Args {
  std::string file, by = "op", phase, format = "table";
  size_t top = 0;
};

double ms(int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}
double us(int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

double peak_pct(const TraceStats& stats, const GroupStats& g) {
  return stats.read_gbps > 0 ? 100 * g.gbps() / stats.read_gbps : 0;
}

double share_of(const TraceStats& stats, const GroupStats& g) {
  const auto phase = std::ranges::find(stats.phases, g.phase, &PhaseStats::phase);
  return phase != stats.phases.end() ? phase->share(g.added_ns) : 0;
}

std::string or_blank(double value, const char* format) {
  return value > 0 ? fmt::format(fmt::runtime(format), value) : "";
}

std::string phases_table(const TraceStats& stats) {
  Table table({"phase", "steps", "total ms", "p50 us", "p99 us", "busy", "gaps", "idle"}, 1);
  for (const PhaseStats& p : stats.phases) {
    table.row({p.phase, std::to_string(p.steps), fmt::format("{:.3f}", ms(p.total_ns)),
               fmt::format("{:.1f}", us(p.p50_ns)), fmt::format("{:.1f}", us(p.p99_ns)),
               fmt::format("{:.1f} %", 100 * p.share(p.busy_ns)), fmt::format("{:.1f} %", 100 * p.share(p.gap_ns)),
               fmt::format("{:.1f} %", 100 * p.share(p.idle_ns))});
  }
  return table.text();
}

std::vector<std::string> names_of(const std::string& by) {
  if (by == "component") return {"component"};
  if (by == "layer") return {"layer"};
  if (by == "path") return {"path", "component", "op"};
  return {"module", "component", "op"};
}

std::vector<std::string> names_in(const GroupStats& g, const std::string& by) {
  if (by == "component") return {g.component};
  if (by == "layer") return {g.layer < 0 ? "-" : std::to_string(g.layer)};
  return {g.path, g.component, g.op};
}

std::string groups_table(const TraceStats& stats, const Args& args, const std::string& phase) {
  std::vector<std::string> heads = names_of(args.by);
  const size_t names = heads.size();
  for (const char* head : {"calls", "total ms", "p50 us", "p99 us", "share", "gaps us", "GB/s", "peak"}) {
    heads.emplace_back(head);
  }
  Table table(heads, names);
  size_t rows = 0, left_out = 0;
  for (const GroupStats& g : stats.groups) {
    if (g.phase != phase) continue;
    if (args.top > 0 && rows == args.top) {
      ++left_out;
      continue;
    }
    ++rows;
    std::vector<std::string> cells = names_in(g, args.by);
    const double share = share_of(stats, g);
    cells.insert(cells.end(), {std::to_string(g.calls), fmt::format("{:.3f}", ms(g.total_ns)),
                               fmt::format("{:.1f}", us(g.p50_ns)), fmt::format("{:.1f}", us(g.p99_ns)),
                               or_blank(100 * share, "{:.1f} %"), fmt::format("{:.1f}", us(g.gap_ns)),
                               or_blank(g.gbps(), "{:.1f}"), or_blank(peak_pct(stats, g), "{:.1f} %")});
    table.row(std::move(cells));
  }
  return table.text() + (left_out > 0 ? fmt::format("and {} more\n", left_out) : "");
}

std::string requests_table(const profiler::Requests& requests) {
  Table table({"requests", "with it", "p50 ms", "p90 ms", "p99 ms", "max ms"}, 1);
  for (const RequestPercentiles& p : profiler::request_percentiles(requests)) {
    std::vector<std::string> cells = {p.what, std::to_string(p.requests)};
    for (const int64_t ns : {p.p50_ns, p.p90_ns, p.p99_ns, p.max_ns}) {
      cells.push_back(p.requests > 0 ? fmt::format("{:.3f}", ms(ns)) : "-");
    }
    table.row(std::move(cells));
  }
  return table.text();
}

void print_table(const TraceStats& stats, const profiler::Requests& requests, const Args& args) {
  std::string out = phases_table(stats);
  if (!requests.all.empty() && args.phase.empty()) out += '\n' + requests_table(requests);
  std::vector<std::string> phases;
  for (const GroupStats& g : stats.groups) {
    const bool wanted = args.phase.empty() || g.phase == args.phase;
    if (wanted && (phases.empty() || phases.back() != g.phase)) phases.push_back(g.phase);
  }
  for (const std::string& phase : phases) out += '\n' + phase + '\n' + groups_table(stats, args, phase);
  if (stats.read_gbps > 0) out += fmt::format("\nread bandwidth {:.1f} GB/s\n", stats.read_gbps);
  std::fputs(out.c_str(), stdout);
}

void print_csv(const TraceStats& stats, const Args& args) {
  std::string out =
      "phase,path,component,op,layer,calls,total_us,added_us,p50_us,p99_us,gap_us,bytes,gbps,peak_pct,share,idle_us\n";
  for (const PhaseStats& p : stats.phases) {
    if (!args.phase.empty() && p.phase != args.phase) continue;
    out += fmt::format("{},(whole step),,,,{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},,,,1,{:.3f}\n", csv_field(p.phase),
                       p.steps, us(p.total_ns), us(p.busy_ns), us(p.p50_ns), us(p.p99_ns), us(p.gap_ns), us(p.idle_ns));
  }
  for (const GroupStats& g : stats.groups) {
    if (!args.phase.empty() && g.phase != args.phase) continue;
    out +=
        fmt::format("{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.0f},{:.3f},{:.3f},{:.5f},\n",
                    csv_field(g.phase), csv_field(g.path), csv_field(g.component), csv_field(g.op),
                    g.layer < 0 ? "" : std::to_string(g.layer), g.calls, us(g.total_ns), us(g.added_ns), us(g.p50_ns),
                    us(g.p99_ns), us(g.gap_ns), g.bytes, g.gbps(), peak_pct(stats, g), share_of(stats, g));
  }
  std::fputs(out.c_str(), stdout);
}

boost::json::array requests_json(const profiler::Requests& requests) {
  boost::json::array times;
  for (const RequestPercentiles& p : profiler::request_percentiles(requests)) {
    if (p.requests == 0) continue;
    times.push_back(boost::json::object{{"time", p.what},
                                        {"requests", p.requests},
                                        {"p50_us", us(p.p50_ns)},
                                        {"p90_us", us(p.p90_ns)},
                                        {"p99_us", us(p.p99_ns)},
                                        {"max_us", us(p.max_ns)}});
  }
  return times;
}

void print_json(const TraceStats& stats, const profiler::Requests& requests, const Args& args) {
  boost::json::array phases, groups, notices;
  for (const PhaseStats& p : stats.phases) {
    if (!args.phase.empty() && p.phase != args.phase) continue;
    phases.push_back(boost::json::object{{"phase", p.phase},
                                         {"steps", p.steps},
                                         {"total_us", us(p.total_ns)},
                                         {"p50_us", us(p.p50_ns)},
                                         {"p99_us", us(p.p99_ns)},
                                         {"busy_us", us(p.busy_ns)},
                                         {"gap_us", us(p.gap_ns)},
                                         {"idle_us", us(p.idle_ns)}});
  }
  for (const GroupStats& g : stats.groups) {
    if (!args.phase.empty() && g.phase != args.phase) continue;
    boost::json::object group = {{"phase", g.phase}, {"path", g.path}, {"component", g.component}, {"op", g.op}};
    if (g.layer >= 0) group["layer"] = g.layer;
    group["calls"] = g.calls;
    group["total_us"] = us(g.total_ns);
    group["added_us"] = us(g.added_ns);
    group["gap_us"] = us(g.gap_ns);
    group["p50_us"] = us(g.p50_ns);
    group["p99_us"] = us(g.p99_ns);
    group["bytes"] = g.bytes;
    group["gbps"] = g.gbps();
    if (stats.read_gbps > 0) group["peak_pct"] = peak_pct(stats, g);
    group["share"] = share_of(stats, g);
    groups.push_back(std::move(group));
  }
  for (const std::string& notice : stats.notices) notices.emplace_back(notice);
  const boost::json::object all = {{"by", args.by},
                                   {"clock", stats.kernels ? "gpu" : "cpu"},
                                   {"phases", phases},
                                   {"groups", groups},
                                   {"requests", requests_json(requests)},
                                   {"notices", notices},
                                   {"read_bandwidth_gbps", stats.read_gbps},
                                   {"steps_without_ops", stats.steps_without_ops}};
  std::printf("%s\n", json_text(all).c_str());
}

int run(const Args& args) {
  static const std::map<std::string, GroupBy> kBy = {
      {"op", GroupBy::kOp}, {"path", GroupBy::kPath}, {"layer", GroupBy::kLayer}, {"component", GroupBy::kComponent}};
  const profiler::TraceFile trace = profiler::read_trace(args.file);
  const TraceStats stats = profiler::trace_stats(trace, kBy.at(args.by));
  const profiler::Requests requests = profiler::requests_of(trace);
  for (const std::string& notice : stats.notices) spdlog::warn("{}: {}", args.file, notice);
  if (stats.groups.empty()) {
    throw Error(ErrorCode::kIo, {args.file, 0, 0},
                "it has no operations: slices of category cpu_op on the thread of the steps, or kernel, gpu_memcpy, "
                "gpu_memset");
  }
  if (stats.steps_without_ops > 0) {
    spdlog::info("{} further steps have no operations in the trace; they are not counted", stats.steps_without_ops);
  }
  if (args.format == "json") {
    print_json(stats, requests, args);
  } else if (args.format == "csv") {
    print_csv(stats, args);
  } else {
    print_table(stats, requests, args);
  }
  return kOk;
}

}  // namespace

Run add_trace_stats(CLI::App& trace) {
  CLI::App* command = trace.add_subcommand(
      "stats",
      "What operations cost, by phase: calls, total, percentiles of a call, share of the steps, the idle time before "
      "them, GB/s over what each adds to the step, share of the measured read bandwidth. Of the GPU's kernels where "
      "there are any, else of the thread that the steps are on. And percentiles of the requests' times.");
  auto args = std::make_shared<Args>();
  command->add_option("FILE", args->file, "A trace, .json or .json.gz")->required();
  command->add_option("--by", args->by, "op (layers joined), path, layer or component")
      ->check(CLI::IsMember({"op", "path", "layer", "component"}))
      ->capture_default_str();
  command->add_option("--phase", args->phase, "Only this one: prefill, decode, verify");
  command->add_option("--top", args->top, "Lines of a phase in the table; 0 = all")->capture_default_str();
  command->add_option("--format", args->format, "table, csv or json")
      ->check(CLI::IsMember({"table", "csv", "json"}))
      ->capture_default_str();
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
