// Kernels as slices of a trace, under the names of the ops that launched them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/program.h"
#include "tenon/core/trace.h"
#include "tenon/profiler/kernel_recorder.h"

namespace tenon::profiler {

struct GpuSlice {
  std::string name = {};
  uint32_t device = 0, stream = 0;
  int64_t begin_ns = 0, end_ns = 0;  // since the epoch
  std::vector<trace::Arg> args = {};
};

// One run of a program. Its ops were launched one by one, op i under kernel_tag(run, i), or as a graph, all under
// kernel_tag(run). run: its number in the recording.
struct ProgramRun {
  std::span<const ProgramOp> ops = {};
  bool one_by_one = false;
};
constexpr uint64_t kernel_tag(uint32_t run, uint32_t op = UINT32_MAX) {
  return (uint64_t{run} + 1) << 32U | op;
}

// "layers.3.mlp.down/product", with component, op, layer, run and the kernel's own name as arguments. Which op a
// graph's kernel belongs to follows from the last run of the same program that was launched one by one; a kernel that
// cannot be told keeps its own name.
std::vector<GpuSlice> name_kernels(const KernelRecording& recording, std::span<const ProgramRun> runs);

}  // namespace tenon::profiler
