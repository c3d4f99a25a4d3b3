#include "tenon/profiler/gpu_slice.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

namespace tenon::profiler {
namespace {

constexpr uint32_t kUnknown = UINT32_MAX;

std::string demangled(const std::string& name) {
  if (!name.starts_with("_Z")) return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

// Of a program: what its kernels are, in the order of their launches.
struct Launched {
  std::vector<const std::string*> names;
  std::vector<uint32_t> ops;
};

GpuSlice slice_of(const KernelRecord& k, const ProgramRun* run, uint32_t number, uint32_t op) {
  GpuSlice slice{.name = demangled(k.name),
                 .device = k.device,
                 .stream = k.stream,
                 .begin_ns = static_cast<int64_t>(k.start),
                 .end_ns = static_cast<int64_t>(k.end)};
  slice.args = {{"kernel", slice.name},
                {"device", uint64_t{k.device}},
                {"stream", uint64_t{k.stream}},
                {"correlation", uint64_t{k.correlation}},
                {"graph_node", std::to_string(k.graph_node)}};
  if (run != nullptr) slice.args.push_back({"run", uint64_t{number}});
  if (op == kUnknown) return slice;
  const ProgramOp& o = run->ops[op];
  slice.name = o.path + '/' + o.name;
  slice.args.push_back({"component", o.component});
  slice.args.push_back({"op", o.name});
  if (o.layer >= 0) slice.args.push_back({"layer", int64_t{o.layer}});
  return slice;
}

}  // namespace

std::vector<GpuSlice> name_kernels(const KernelRecording& recording, std::span<const ProgramRun> runs) {
  std::map<uint32_t, std::vector<const KernelRecord*>> by_run;
  std::vector<GpuSlice> slices;
  for (const KernelRecord& k : recording.kernels) {
    const uint64_t number = k.tag >> 32U;
    if (number == 0 || number > runs.size()) {
      slices.push_back(slice_of(k, nullptr, 0, kUnknown));
    } else {
      by_run[static_cast<uint32_t>(number - 1)].push_back(&k);
    }
  }
  std::map<const ProgramOp*, Launched> programs;
  for (auto& [number, kernels] : by_run) {
    const ProgramRun& run = runs[number];
    Launched& launched = programs[run.ops.data()];
    if (run.one_by_one) {
      std::sort(kernels.begin(), kernels.end(), [](auto* a, auto* b) { return a->correlation < b->correlation; });
      launched = {};
      for (const KernelRecord* k : kernels) {
        const auto op = static_cast<uint32_t>(k->tag);
        launched.names.push_back(&k->name);
        launched.ops.push_back(op < run.ops.size() ? op : kUnknown);
      }
    } else {
      std::sort(kernels.begin(), kernels.end(),
                [](auto* a, auto* b) { return std::tie(a->start, a->end) < std::tie(b->start, b->end); });
    }
    const bool same = std::equal(kernels.begin(), kernels.end(), launched.names.begin(), launched.names.end(),
                                 [](const KernelRecord* k, const std::string* name) { return k->name == *name; });
    for (size_t i = 0; i < kernels.size(); ++i) {
      slices.push_back(slice_of(*kernels[i], &run, number, same ? launched.ops[i] : kUnknown));
    }
  }
  return slices;
}

}  // namespace tenon::profiler
