// How long each op of a step takes, worked out from when the ops ended.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/program.h"
#include "tenon/profiler/kernel_recorder.h"

namespace tenon::profiler {

// By op of a program: the names of the kernels that it launches, in order. An op may launch none.
using KernelNames = std::vector<std::vector<std::string>>;

// From one step whose ops were launched one by one, op i under the tag i + 1. Throws Error(kInternal) for a recording
// that does not say it: no kernel, lost records, kernels of no op.
KernelNames kernels_by_op(const KernelRecording& step, size_t ops);

// When a step's first op began and when each op ended, in nanoseconds of any clock.
struct StepEnds {
  uint64_t begin = 0;
  std::vector<uint64_t> ends = {};  // by op
};

// From whole steps that were run one after the other in any way. Throws Error(kInternal) unless every step has just the
// kernels of `names` in their order: then nobody can tell which op a kernel belongs to.
std::vector<StepEnds> place_kernels(const KernelRecording& steps, const KernelNames& names);

// Means over steps, in microseconds. Kernels overlap, so an op's time is what it adds to the step: from the latest end
// of what is ahead of it to its own end, never below 0. With what lies between two steps they add up to step_us.
struct OpTimes {
  std::vector<double> op_us = {};  // by op
  double between_us = 0;           // from the end of one step to the begin of the next
  double step_us = 0;              // from end to end
  uint32_t steps = 0;
};
// The first `skip` steps, at least one, only warm up. Throws Error(kInternal) if none is left.
OpTimes since_last_end(std::span<const StepEnds> steps, size_t skip);

// What the same op does in all layers together, in a step.
struct OpGroup {
  std::string path = {};  // "layers.*.attention"
  std::string component = {}, op = {};
  uint32_t calls = 0;
  double us = 0;
  double bytes = 0;  // read and written, by the program's own account

  double gbps() const { return us > 0 ? bytes / us / 1e3 : 0; }
};
// By falling time. rows: of the step; context: the sum over them of the tokens that each attends to.
std::vector<OpGroup> group_ops(std::span<const ProgramOp> ops, const OpTimes& times, double rows, double context);

}  // namespace tenon::profiler
