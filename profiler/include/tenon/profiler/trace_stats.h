// These functions work out from a trace what the ops of its steps took, without the machine that ran them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {

// This is one op of one step: a kernel, copy or fill if the trace has kernels, else an operation on the
// thread of the steps that lies within no other.
struct OpSample {
  uint32_t slice = 0;
  uint32_t step = kNoIndex;  // its index in the steps; kNoIndex: it lies between them
  // It adds so much to the step: from the latest end of what is ahead of it on
  // its device to its own end, never below 0.
  int64_t added_ns = 0;
  int64_t gap_ns = 0;  // for so long its device had nothing of this step to do before it began
};

struct StepSample {
  std::string_view phase;  // "decode", "prefill", "verify"; "step": the trace does not say; "trace": it has no steps
  int64_t number = 0;
  int64_t duration_ns = 0;
};

// These are all steps and ops of a trace, which outlives it.
struct StepOps {
  std::vector<StepSample> steps;  // it has only steps that have an op
  std::vector<OpSample> ops;
  bool kernels = false;            // the ops are a GPU's
  uint64_t steps_without_ops = 0;  // so many steps have nothing recorded but that they took place
};
StepOps step_ops(const TraceFile& trace);

enum class GroupBy : uint8_t { kOp, kPath, kLayer, kComponent };

struct GroupStats {
  std::string phase = {}, path = {}, component = {}, op = {};  // it is empty if the grouping joins them
  int64_t layer = -1;                                          // kLayer, kPath; -1: no layer
  uint64_t calls = 0;
  int64_t total_ns = 0, added_ns = 0, gap_ns = 0;  // sums over calls; total is that of the slices' durations
  int64_t p50_ns = 0, p99_ns = 0;                  // these are percentiles of the slices' durations
  double bytes = 0;                                // bytes read and written, as far as the trace says

  double gbps() const { return added_ns > 0 ? bytes / static_cast<double>(added_ns) : 0; }
};

struct PhaseStats {
  std::string phase = {};
  uint64_t steps = 0;
  int64_t total_ns = 0, p50_ns = 0, p99_ns = 0;  // these are the sum and percentiles of the steps' durations
  int64_t busy_ns = 0;                           // some op was under way for so long
  int64_t gap_ns = 0;                            // nothing was for so long, between ops of one step
  int64_t idle_ns = 0;                           // it is the rest of the steps' time

  double share(int64_t ns) const { return total_ns > 0 ? static_cast<double>(ns) / static_cast<double>(total_ns) : 0; }
};

struct TraceStats {
  std::vector<PhaseStats> phases;  // the longest comes first
  std::vector<GroupStats> groups;  // they go by phase, then the largest added_ns comes first; kLayer: by layer
  double read_gbps = 0;            // the run measured this rate; 0: it measured none
  bool kernels = false;
  uint64_t steps_without_ops = 0;
  std::vector<std::string> notices;  // these come from reading, and from what the trace itself says of losses
};
TraceStats trace_stats(const TraceFile& trace, GroupBy by);

// Returns the path of an op, or of a kernel's "path/op", with all layers as one: "layers.*.mlp.down".
std::string joined_path(const TraceFile& trace, const TraceSlice& slice, bool join_layers = true);

// Returns the value of the nearest rank among sorted values; 0 if there are none. fraction is 0 to 1.
int64_t percentile(const std::vector<int64_t>& sorted, double fraction);

}  // namespace tenon::profiler
