// Each op becomes a series, its time in every step; the two series of an op are compared by their medians and by a rank
// test, which asks nothing of how times are distributed. A change counts if it is unlikely by chance, larger than the
// threshold, and of an op that matters to the step.
#include "tenon/profiler/trace_compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "tenon/profiler/trace_stats.h"

namespace tenon::profiler {
namespace {

struct Series {
  std::string component;
  std::map<uint32_t, double> us_by_step;

  std::vector<double> values() const {
    std::vector<double> list;
    for (const auto& [step, us] : us_by_step) list.push_back(us);
    return list;
  }
};

using Name = std::tuple<std::string, std::string, std::string>;  // phase, path, op; path "" is the step

struct Side {
  std::map<Name, Series> series;
  std::map<std::string, double> step_us;  // medians, by phase
};

Side side_of(const TraceFile& trace) {
  const StepOps all = step_ops(trace);
  Side side;
  for (uint32_t i = 0; i < all.steps.size(); ++i) {
    const StepSample& step = all.steps[i];
    side.series[{std::string(step.phase), "", ""}].us_by_step[i] = static_cast<double>(step.duration_ns) / 1e3;
  }
  for (const OpSample& op : all.ops) {
    if (op.step == kNoIndex) continue;
    const TraceSlice& slice = trace.slices[op.slice];
    Series& series = side.series[{std::string(all.steps[op.step].phase), joined_path(trace, slice),
                                  std::string(trace.text(slice, "op").value_or(""))}];
    series.component = trace.text(slice, "component").value_or("");
    series.us_by_step[op.step] += static_cast<double>(op.added_ns) / 1e3;
  }
  for (const auto& [name, series] : side.series) {
    if (std::get<1>(name).empty()) side.step_us[std::get<0>(name)] = median(series.values());
  }
  return side;
}

}  // namespace

double median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// Mann and Whitney, On a Test of Whether one of Two Random Variables is Stochastically Larger than the Other, 1947.
double rank_test(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) return 1;
  std::vector<std::pair<double, bool>> all;
  for (const double value : a) all.emplace_back(value, true);
  for (const double value : b) all.emplace_back(value, false);
  std::ranges::sort(all);
  double rank_sum = 0, ties = 0;
  for (size_t i = 0; i < all.size();) {
    size_t end = i;
    while (end < all.size() && all[end].first == all[i].first) ++end;
    const double rank = static_cast<double>(i + end + 1) / 2;  // the mean of ranks i + 1 to end
    for (size_t k = i; k < end; ++k) rank_sum += all[k].second ? rank : 0;
    const auto tied = static_cast<double>(end - i);
    ties += tied * tied * tied - tied;
    i = end;
  }
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size()), n = na + nb;
  const double u = rank_sum - na * (na + 1) / 2;
  const double variance = na * nb / 12 * (n + 1 - (n > 1 ? ties / (n * (n - 1)) : 0));
  if (variance <= 0) return 1;
  const double distance = std::max(0.0, std::abs(u - na * nb / 2) - 0.5);
  return std::erfc(distance / std::sqrt(2 * variance));
}

std::vector<OpChange> compare_traces(const TraceFile& a, const TraceFile& b, const CompareOptions& options) {
  const Side sides[2] = {side_of(a), side_of(b)};
  std::set<Name> names;
  for (const Side& side : sides) {
    for (const auto& [name, series] : side.series) names.insert(name);
  }
  std::vector<OpChange> changes;
  for (const Name& name : names) {
    OpChange change;
    std::tie(change.phase, change.path, change.op) = name;
    std::vector<double> values[2];
    for (size_t i = 0; i < 2; ++i) {
      const auto found = sides[i].series.find(name);
      if (found == sides[i].series.end()) continue;
      values[i] = found->second.values();
      (i == 0 ? change.component_a : change.component_b) = found->second.component;
      const double step_us = sides[i].step_us.at(change.phase);
      if (step_us > 0) change.share = std::max(change.share, median(values[i]) / step_us);
    }
    const bool whole = change.path.empty();
    if (!whole && (!sides[0].step_us.contains(change.phase) || !sides[1].step_us.contains(change.phase))) continue;
    change.steps_a = values[0].size();
    change.steps_b = values[1].size();
    change.us_a = median(values[0]);
    change.us_b = median(values[1]);
    change.p = rank_test(values[0], values[1]);
    using Verdict = OpChange::Verdict;
    if (change.steps_b == 0) {
      change.verdict = Verdict::kOnlyA;
    } else if (change.steps_a == 0) {
      change.verdict = Verdict::kOnlyB;
    } else if (change.p < options.alpha && change.share >= options.min_share &&
               std::abs(change.us_b - change.us_a) >= options.threshold * change.us_a) {
      change.verdict = change.us_b > change.us_a ? Verdict::kSlower : Verdict::kFaster;
    }
    changes.push_back(std::move(change));
  }
  std::ranges::stable_sort(
      changes, {}, [](const OpChange& c) { return std::tuple(c.phase, !c.path.empty(), -std::abs(c.us_b - c.us_a)); });
  return changes;
}

}  // namespace tenon::profiler
