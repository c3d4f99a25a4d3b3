// step_ops() finds the ops; here they are grouped by what was asked (GroupBy), with sums and percentiles of each group
// and each phase. Ops outside of all steps are a phase of their own.
#include "tenon/profiler/trace_stats.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

namespace tenon::profiler {
namespace {

constexpr std::string_view kBetween = "between steps";

struct Key {
  std::string_view phase;
  std::string path;
  std::string_view component, op;
  int64_t layer;

  auto tuple() const { return std::tie(phase, path, component, op, layer); }
  bool operator<(const Key& other) const { return tuple() < other.tuple(); }
};

Key key_of(const TraceFile& trace, const TraceSlice& slice, std::string_view phase, GroupBy by) {
  Key key{phase, "", "", "", -1};
  const std::string_view component = trace.text(slice, "component").value_or(trace.category(slice));
  if (by == GroupBy::kLayer) {
    key.layer = static_cast<int64_t>(trace.number(slice, "layer").value_or(-1));
    return key;
  }
  key.component = component;
  if (by == GroupBy::kComponent) return key;
  key.path = joined_path(trace, slice, by == GroupBy::kOp);
  key.op = trace.text(slice, "op").value_or("");
  if (by == GroupBy::kPath) key.layer = static_cast<int64_t>(trace.number(slice, "layer").value_or(-1));
  return key;
}

struct Gathered {
  GroupStats stats;
  std::vector<int64_t> durations;
};

std::vector<PhaseStats> phases_of(const StepOps& all) {
  std::map<std::string_view, PhaseStats> phases;
  std::map<std::string_view, std::vector<int64_t>> durations;
  for (const StepSample& step : all.steps) {
    PhaseStats& phase = phases[step.phase];
    phase.phase = step.phase;
    ++phase.steps;
    phase.total_ns += step.duration_ns;
    durations[step.phase].push_back(step.duration_ns);
  }
  for (const OpSample& op : all.ops) {
    if (op.step == kNoIndex) continue;
    PhaseStats& phase = phases[all.steps[op.step].phase];
    phase.busy_ns += op.added_ns;
    phase.gap_ns += op.gap_ns;
  }
  std::vector<PhaseStats> list;
  for (auto& [name, phase] : phases) {
    std::vector<int64_t>& sorted = durations[name];
    std::ranges::sort(sorted);
    phase.p50_ns = percentile(sorted, 0.5);
    phase.p99_ns = percentile(sorted, 0.99);
    phase.idle_ns = std::max<int64_t>(0, phase.total_ns - phase.busy_ns - phase.gap_ns);
    list.push_back(phase);
  }
  std::ranges::stable_sort(list, std::greater(), &PhaseStats::total_ns);
  return list;
}

}  // namespace

int64_t percentile(const std::vector<int64_t>& sorted, double fraction) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

std::string joined_path(const TraceFile& trace, const TraceSlice& slice, bool join_layers) {
  std::string path(trace.name(slice));
  const std::optional<std::string_view> op = trace.text(slice, "op");
  if (op && path.ends_with(*op) && path.size() > op->size() && path[path.size() - op->size() - 1] == '/') {
    path.resize(path.size() - op->size() - 1);
  }
  const std::optional<double> layer = join_layers ? trace.number(slice, "layer") : std::nullopt;
  if (!layer) return path;
  const std::string number = '.' + std::to_string(static_cast<int64_t>(*layer));
  for (size_t at = path.find(number); at != std::string::npos; at = path.find(number, at + 1)) {
    const size_t end = at + number.size();
    if (end != path.size() && path[end] != '.') continue;
    path.replace(at + 1, number.size() - 1, "*");
    break;
  }
  return path;
}

TraceStats trace_stats(const TraceFile& trace, GroupBy by) {
  const StepOps all = step_ops(trace);
  const uint32_t read = trace.strings.find("bytes_read"), written = trace.strings.find("bytes_written");
  const uint32_t copied = trace.strings.find("bytes");
  std::map<Key, Gathered> groups;
  for (const OpSample& op : all.ops) {
    const TraceSlice& slice = trace.slices[op.slice];
    const std::string_view phase = op.step == kNoIndex ? kBetween : all.steps[op.step].phase;
    Gathered& group = groups[key_of(trace, slice, phase, by)];
    ++group.stats.calls;
    group.stats.total_ns += slice.duration_ns;
    group.stats.added_ns += op.added_ns;
    group.stats.gap_ns += op.gap_ns;
    for (const uint32_t key : {read, written, copied}) {
      group.stats.bytes += trace.args.number(slice.args, key).value_or(0);
    }
    group.durations.push_back(slice.duration_ns);
  }
  TraceStats stats;
  stats.kernels = all.kernels;
  stats.steps_without_ops = all.steps_without_ops;
  stats.phases = phases_of(all);
  for (auto& [key, group] : groups) {
    std::ranges::sort(group.durations);
    group.stats.p50_ns = percentile(group.durations, 0.5);
    group.stats.p99_ns = percentile(group.durations, 0.99);
    group.stats.phase = key.phase;
    group.stats.path = key.path;
    group.stats.component = key.component;
    group.stats.op = key.op;
    group.stats.layer = key.layer;
    stats.groups.push_back(std::move(group.stats));
  }
  const auto rank = [&](const GroupStats& g) {
    const auto at = std::ranges::find(stats.phases, g.phase, &PhaseStats::phase);
    return std::tuple(at - stats.phases.begin(), by == GroupBy::kLayer ? g.layer : -g.added_ns);
  };
  std::ranges::stable_sort(stats.groups, {}, rank);
  const std::string_view rate = trace.meta("read_bandwidth_gbps").value_or("");
  std::from_chars(rate.data(), rate.data() + rate.size(), stats.read_gbps);
  stats.notices = trace.notices;
  if (const auto problem = trace.meta("problem")) stats.notices.push_back(std::string(*problem));
  return stats;
}

}  // namespace tenon::profiler
