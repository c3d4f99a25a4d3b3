// This finds out which slices are ops, in which step each one is, and what it adds to the step. Ops are a GPU's
// kernels, copies and fills where there are kernels, else the cpu_op slices of the thread that the steps are on; one
// within another does not count. A kernel belongs to the step that its argument names, since the GPU runs later than
// the host. What ops of a device add never overlaps.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "tenon/profiler/trace_stats.h"

namespace tenon::profiler {
namespace {

constexpr std::string_view kStepName = "ProfilerStep#";

struct Steps {
  struct Interval {
    int64_t begin_ns, end_ns;
    StepSample sample;
  };
  std::vector<Interval> list;  // sorted by begin
  uint32_t track = kNoIndex;

  uint32_t at(int64_t ns) const {
    const auto after = std::upper_bound(list.begin(), list.end(), ns,
                                        [](int64_t value, const Interval& step) { return value < step.begin_ns; });
    if (after == list.begin() || (after - 1)->end_ns <= ns) return kNoIndex;
    return static_cast<uint32_t>(after - list.begin() - 1);
  }
};

// Finds the steps of the thread that has most of them: a trace may hold several
// processes' or the GPU's image of the same steps.
Steps find_steps(const TraceFile& trace) {
  std::map<uint32_t, std::vector<uint32_t>> by_track;
  for (uint32_t i = 0; i < trace.slices.size(); ++i) {
    if (trace.name(trace.slices[i]).starts_with(kStepName)) by_track[trace.slices[i].track].push_back(i);
  }
  Steps steps;
  if (by_track.empty()) {
    steps.list.push_back({trace.begin_ns, trace.end_ns + 1, {"trace", 0, trace.end_ns - trace.begin_ns}});
    return steps;
  }
  const auto most = std::ranges::max_element(by_track, {}, [](const auto& entry) { return entry.second.size(); });
  steps.track = most->first;
  for (const uint32_t i : most->second) {
    const TraceSlice& slice = trace.slices[i];
    const std::string_view digits = trace.name(slice).substr(kStepName.size());
    StepSample sample{trace.text(slice, "phase").value_or("step"), 0, slice.duration_ns};
    std::from_chars(digits.data(), digits.data() + digits.size(), sample.number);
    steps.list.push_back({slice.begin_ns, slice.end_ns(), sample});
  }
  std::ranges::sort(steps.list, {}, &Steps::Interval::begin_ns);
  return steps;
}

bool within_another(const TraceFile& trace, uint32_t slice, const std::vector<bool>& categories) {
  for (uint32_t p = trace.parent(slice); p != kNoIndex; p = trace.parent(p)) {
    if (categories[trace.slices[p].category]) return true;
  }
  return false;
}

// Returns true for the indices of these categories.
std::vector<bool> categories_of(const TraceFile& trace, std::initializer_list<std::string_view> names) {
  std::vector<bool> wanted(trace.categories.size());
  for (const std::string_view name : names) {
    const uint32_t index = trace.category_index(name);
    if (index != kNoIndex) wanted[index] = true;
  }
  return wanted;
}

// Goes through each device in turn, in the order of time.
void add_up(const TraceFile& trace, std::vector<OpSample>& ops) {
  const auto device = [&](const OpSample& op) { return trace.tracks[trace.slices[op.slice].track].process; };
  const auto begin = [&](const OpSample& op) { return trace.slices[op.slice].begin_ns; };
  std::ranges::sort(ops, {}, [&](const OpSample& op) {
    return std::tuple(device(op), begin(op), trace.slices[op.slice].end_ns(), op.slice);
  });
  int64_t latest = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const TraceSlice& slice = trace.slices[ops[i].slice];
    const bool first = i == 0 || device(ops[i - 1]) != device(ops[i]);
    if (first) latest = slice.begin_ns;
    if (!first && ops[i - 1].step == ops[i].step && ops[i].step != kNoIndex) {
      ops[i].gap_ns = std::max<int64_t>(0, slice.begin_ns - latest);
    }
    ops[i].added_ns = std::max<int64_t>(0, slice.end_ns() - std::max(slice.begin_ns, latest));
    latest = std::max(latest, slice.end_ns());
  }
}

}  // namespace

StepOps step_ops(const TraceFile& trace) {
  const Steps steps = find_steps(trace);
  std::map<int64_t, uint32_t> by_number;
  for (uint32_t i = 0; i < steps.list.size(); ++i) by_number.emplace(steps.list[i].sample.number, i);
  StepOps result;
  std::vector<bool> wanted = categories_of(trace, {"kernel", "gpu_memcpy", "gpu_memset"});
  result.kernels = std::ranges::any_of(
      trace.slices, [kernel = trace.category_index("kernel")](const TraceSlice& s) { return s.category == kernel; });
  if (!result.kernels) wanted = categories_of(trace, {"cpu_op"});
  const uint32_t step_key = trace.strings.find("step");
  for (uint32_t i = 0; i < trace.slices.size(); ++i) {
    const TraceSlice& slice = trace.slices[i];
    if (!wanted[slice.category]) continue;
    if (!result.kernels && steps.track != kNoIndex && slice.track != steps.track) continue;
    if (within_another(trace, i, wanted)) continue;
    OpSample op{.slice = i, .step = kNoIndex};
    // The GPU runs later than the host, so time alone would give its ops to later steps.
    const std::optional<double> number = result.kernels ? trace.args.number(slice.args, step_key) : std::nullopt;
    if (number) {
      const auto found = by_number.find(static_cast<int64_t>(*number));
      if (found != by_number.end()) op.step = found->second;
    } else {
      op.step = steps.at(slice.begin_ns);
    }
    result.ops.push_back(op);
  }
  add_up(trace, result.ops);
  std::vector<uint32_t> renumbered(steps.list.size(), kNoIndex);
  for (const OpSample& op : result.ops) {
    if (op.step != kNoIndex) renumbered[op.step] = 0;
  }
  for (uint32_t i = 0; i < renumbered.size(); ++i) {
    if (renumbered[i] == kNoIndex) {
      ++result.steps_without_ops;
      continue;
    }
    renumbered[i] = static_cast<uint32_t>(result.steps.size());
    result.steps.push_back(steps.list[i].sample);
  }
  for (OpSample& op : result.ops) {
    if (op.step != kNoIndex) op.step = renumbered[op.step];
  }
  return result;
}

}  // namespace tenon::profiler
