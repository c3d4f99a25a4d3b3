// These functions work out how long each op of a step takes, from when the ops ended.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/program.h"
#include "tenon/profiler/kernel_recorder.h"

namespace tenon::profiler {

// These are, for each op of a program, the names of the kernels that it launches, in order. An op may launch none.
using KernelNames = std::vector<std::vector<std::string>>;

// Works them out from one step whose ops were launched one by one, op i under the tag i + 1. Throws Error(kInternal)
// for a recording that does not tell: it has no kernel, lost records, or kernels that belong to no op.
KernelNames kernels_by_op(const KernelRecording& step, size_t ops);

// This says when a step's first op began and when each op ended, in nanoseconds of any clock.
struct StepEnds {
  uint64_t begin = 0;
  std::vector<uint64_t> ends = {};  // one for each op
};

// Finds them in a recording of whole steps that ran one after the other in any way. Throws
// Error(kInternal) unless every step has just the kernels of `names` in their order, since nobody can
// tell otherwise which op a kernel belongs to.
std::vector<StepEnds> place_kernels(const KernelRecording& steps, const KernelNames& names);

// These are means over steps, in microseconds. Kernels overlap, so an op's time is what it adds to the
// step: from the latest end of what is ahead of it to its own end, never below 0. Together with the time
// between two steps they add up to step_us.
struct OpTimes {
  std::vector<double> op_us = {};  // one for each op
  double between_us = 0;           // from the end of one step to the begin of the next
  double step_us = 0;              // from the end of one step to the end of the next
  uint32_t steps = 0;
};
// Takes the means. The first `skip` steps, at least one, only warm up. Throws
// Error(kInternal) if no other step is left.
OpTimes since_last_end(std::span<const StepEnds> steps, size_t skip);

// This is what the same op does in all layers of a step together.
struct OpGroup {
  std::string path = {};  // "layers.*.attention"
  std::string component = {}, op = {};
  uint32_t calls = 0;
  double us = 0;
  double bytes = 0;  // bytes read and written, by the program's own account

  double gbps() const { return us > 0 ? bytes / us / 1e3 : 0; }
};
// Adds up equal ops of all layers; the result has the slowest first. The step has so many rows, all of
// whose logits are wanted, and context is the sum over them of the tokens that each attends to.
std::vector<OpGroup> group_ops(std::span<const ProgramOp> ops, const OpTimes& times, double rows, double context);

}  // namespace tenon::profiler
