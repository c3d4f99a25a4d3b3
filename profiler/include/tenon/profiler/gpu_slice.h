// CUPTI's records become slices of a trace, kernels under the names of the ops that launched them. docs/glossary.md has
// the words, docs/profiling.md what a trace has of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/program.h"
#include "tenon/core/trace.h"
#include "tenon/profiler/kernel_recorder.h"

namespace tenon::profiler {

// This is a slice of a trace before it is placed: `track` and `number` say on which track it goes.
struct GpuSlice {
  enum class Track : uint8_t {
    kStream,    // it is a stream of a device
    kWaits,     // waits for that stream
    kLayers,    // it has a device's steps, and their layers nested in them
    kCalls,     // it is a thread of the host
    kOverhead,  // it is the whole process
  };
  Track track = Track::kStream;
  const char* category = "kernel";
  std::string name = {};
  uint32_t device = 0;
  uint32_t number = 0;  // kStream, kWaits: the stream, GpuActivity::kNoStream = all of them; kCalls: the thread's id
  int64_t begin_ns = 0, end_ns = 0;  // nanoseconds since the epoch
  uint32_t correlation = 0;          // a slice of kStream shares it with the kCalls that launched it; 0 = none
  std::vector<trace::Arg> args = {};
};

// This is one run of a program. Its ops were launched one by one, op i under kernel_tag(run, i), or as a graph, all
// under kernel_tag(run); `run` is its number in the recording.
struct ProgramRun {
  std::span<const ProgramOp> ops = {};
  bool one_by_one = false;
  StepLoad load = {};
  bool only_to_learn = false;  // the run becomes no slices; other runs' kernels are told by it
};
constexpr uint64_t kernel_tag(uint32_t run, uint32_t op = UINT32_MAX) {
  return (uint64_t{run} + 1) << 32U | op;
}

// Returns everything in the recording. A kernel is "layers.3.mlp.down/product", with component, op, layer, run, step,
// phase and its own name as arguments; the last kernel of an op also has the op's bytes_read, bytes_written and flops
// in that step and, over the time that the op adds to it (from the latest end of what is ahead of it to its own end),
// gbps and peak_pct. The last run of the same program that was launched one by one tells which op a graph's kernel
// belongs to; a kernel that cannot be told keeps its own name. A graph that was recorded as one bears its phase's name
// and the whole program's bytes. Steps and layers are spans around their kernels, each from the end of the one before;
// a step says for how long some kernel ran (gpu_busy_us), none did (gap_us), and the host waited (sync_wait_us).
// peak_pct is a share of read_gbps, in 1e9 bytes a second; 0 = that is not known.
std::vector<GpuSlice> gpu_slices(const KernelRecording& recording, std::span<const ProgramRun> runs,
                                 double read_gbps = 0);

}  // namespace tenon::profiler
