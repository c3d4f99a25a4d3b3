// What the ops of a trace cost, by step, without the machine that ran them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {

// One op of one step: a kernel, copy or fill where the trace has kernels, else an operation of the thread that the
// steps are on, none of those within another.
struct OpSample {
  uint32_t slice = 0;
  uint32_t step = kNoIndex;  // of the steps; kNoIndex: between them
  // What it adds: from the latest end of what is ahead of it on its device to its own end, never below 0.
  int64_t added_ns = 0;
  int64_t gap_ns = 0;  // in which its device had nothing of this step to do before it began
};

struct StepSample {
  std::string_view phase;  // "decode", "prefill", "verify"; "step" where the trace does not say, "trace" of no steps
  int64_t number = 0;
  int64_t duration_ns = 0;
};

// Of a trace that outlives it.
struct StepOps {
  std::vector<StepSample> steps;  // with an op in them
  std::vector<OpSample> ops;
  bool kernels = false;            // the ops are a GPU's
  uint64_t steps_without_ops = 0;  // of which nothing was recorded but that they took place
};
StepOps step_ops(const TraceFile& trace);

enum class GroupBy : uint8_t { kOp, kPath, kLayer, kComponent };

struct GroupStats {
  std::string phase = {}, path = {}, component = {}, op = {};  // empty where the grouping joins them
  int64_t layer = -1;                                          // kLayer, kPath; -1: none
  uint64_t calls = 0;
  int64_t total_ns = 0, added_ns = 0, gap_ns = 0;  // sums; total: of what the slices say
  int64_t p50_ns = 0, p99_ns = 0;                  // of a call's slice
  double bytes = 0;                                // read and written, as far as the trace says

  double gbps() const { return added_ns > 0 ? bytes / static_cast<double>(added_ns) : 0; }
};

struct PhaseStats {
  std::string phase = {};
  uint64_t steps = 0;
  int64_t total_ns = 0, p50_ns = 0, p99_ns = 0;  // of the steps
  int64_t busy_ns = 0;                           // some op was under way
  int64_t gap_ns = 0;                            // between ops of one step
  int64_t idle_ns = 0;                           // the rest of the steps

  double share(int64_t ns) const { return total_ns > 0 ? static_cast<double>(ns) / static_cast<double>(total_ns) : 0; }
};

struct TraceStats {
  std::vector<PhaseStats> phases;  // by falling time
  std::vector<GroupStats> groups;  // by phase, then by falling added_ns; kLayer: by layer
  double read_gbps = 0;            // that the run measured; 0: it did not
  bool kernels = false;
  uint64_t steps_without_ops = 0;
  std::vector<std::string> notices;  // of reading, and what the trace itself says of losses
};
TraceStats trace_stats(const TraceFile& trace, GroupBy by);

// What an op is called where all layers are one: "layers.*.mlp.down". Of a kernel's "path/op" the path.
std::string joined_path(const TraceFile& trace, const TraceSlice& slice, bool join_layers = true);

// The sorted values' nearest rank; 0 of none. fraction: 0 to 1.
int64_t percentile(const std::vector<int64_t>& sorted, double fraction);

}  // namespace tenon::profiler
