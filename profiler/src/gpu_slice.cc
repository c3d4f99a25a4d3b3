// Kernels are sorted by the run of a program that launched them. A run whose ops were launched one by one has a tag for
// each op, and so teaches which op launches which kernels; a run as a graph has the same kernels in the same order, and
// takes the ops from there. What a run's ops add, and its gaps, follow from the kernels' ends.
#include "tenon/profiler/gpu_slice.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

namespace tenon::profiler {
namespace {

using Track = GpuSlice::Track;
constexpr uint32_t kUnknown = UINT32_MAX;

std::string demangled(const std::string& name) {
  if (!name.starts_with("_Z")) return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

std::string triple(const std::array<uint32_t, 3>& size) {
  return std::to_string(size[0]) + ',' + std::to_string(size[1]) + ',' + std::to_string(size[2]);
}

struct Cost {
  double read = 0, written = 0, flops = 0;

  void add(const ProgramOp& op, const StepLoad& load) {
    read += load.of(op, op.cost.read);
    written += load.of(op, op.cost.written);
    flops += load.of(op, op.cost.flops);
  }
  void put(GpuSlice& slice, int64_t ns, double read_gbps) const {
    slice.args.push_back({"bytes_read", static_cast<uint64_t>(read)});
    slice.args.push_back({"bytes_written", static_cast<uint64_t>(written)});
    slice.args.push_back({"flops", static_cast<uint64_t>(flops)});
    if (ns <= 0) return;
    const double gbps = (read + written) / static_cast<double>(ns);
    slice.args.push_back({"gbps", gbps});
    if (read_gbps > 0) slice.args.push_back({"peak_pct", 100 * gbps / read_gbps});
  }
};

void put_run(GpuSlice& slice, const ProgramRun& run, uint32_t number) {
  slice.args.push_back({"run", uint64_t{number}});
  slice.args.push_back({"step", run.load.step});
  slice.args.push_back({"phase", std::string(run.load.phase)});
}

GpuSlice slice_of(const KernelRecord& k, const ProgramRun* run, uint32_t number, uint32_t op) {
  GpuSlice slice{.name = demangled(k.name),
                 .device = k.device,
                 .number = k.stream,
                 .begin_ns = static_cast<int64_t>(k.start),
                 .end_ns = static_cast<int64_t>(k.end),
                 .correlation = k.correlation};
  slice.args = {{"kernel", slice.name},
                {"device", uint64_t{k.device}},
                {"stream", uint64_t{k.stream}},
                {"correlation", uint64_t{k.correlation}},
                {"grid", triple(k.grid)},
                {"block", triple(k.block)},
                {"registers per thread", uint64_t{k.registers}},
                {"shared memory", uint64_t{k.shared_bytes}}};
  if (k.graph_node != 0) {
    slice.args.push_back({"graph", uint64_t{k.graph}});
    slice.args.push_back({"graph_node", std::to_string(k.graph_node)});
  }
  if (run != nullptr) put_run(slice, *run, number);
  if (op == kUnknown) return slice;
  const ProgramOp& o = run->ops[op];
  slice.name = o.path + '/' + o.name;
  slice.args.push_back({"component", o.component});
  slice.args.push_back({"op", o.name});
  if (o.layer >= 0) slice.args.push_back({"layer", int64_t{o.layer}});
  return slice;
}

GpuSlice span_over(const KernelRecord& k, std::string name, int64_t begin) {
  return {.track = Track::kLayers,
          .category = "gpu_user_annotation",
          .name = std::move(name),
          .device = k.device,
          .begin_ns = begin,
          .end_ns = begin};
}

// This says which kernels a program launches, in the order of their launches.
struct Launched {
  std::vector<const std::string*> names;
  std::vector<uint32_t> ops;
};

// This has the kernels of one run, in order, and the ops that they belong to.
class RunSlices {
 public:
  RunSlices(const ProgramRun& run, uint32_t number, double read_gbps)
      : run_(run), number_(number), read_gbps_(read_gbps) {}

  // The run before ended at begin_ns. Returns when this one did.
  int64_t add(const std::vector<const KernelRecord*>& kernels, const std::vector<uint32_t>& ops, int64_t begin_ns,
              std::vector<GpuSlice>& slices) {
    latest_ = std::max(begin_ns, static_cast<int64_t>(kernels.front()->start));
    const size_t step = slices.size();
    slices.push_back(span_over(*kernels.front(), run_.load.phase[0] != '\0' ? run_.load.phase : "program", latest_));
    put_run(slices.back(), run_, number_);
    Cost all;
    const int64_t start = latest_;
    int64_t busy = 0;
    size_t layer_slice = 0;
    int32_t layer = -1;
    for (size_t i = 0; i < kernels.size(); ++i) {
      const uint32_t op = ops[i];
      const bool first = i == 0 || ops[i - 1] != op, last = i + 1 == kernels.size() || ops[i + 1] != op;
      if (first) op_begin_ = latest_;
      const int32_t own_layer = op != kUnknown ? run_.ops[op].layer : -1;
      if (own_layer != layer) {
        layer = own_layer;
        layer_slice = slices.size();
        if (layer >= 0) slices.push_back(span_over(*kernels[i], "layer " + std::to_string(layer), latest_));
      }
      const auto kernel_begin = static_cast<int64_t>(kernels[i]->start),
                 kernel_end = static_cast<int64_t>(kernels[i]->end);
      busy += std::max<int64_t>(0, kernel_end - std::max(latest_, kernel_begin));
      latest_ = std::max(latest_, kernel_end);
      if (layer >= 0) slices[layer_slice].end_ns = latest_;
      slices.push_back(slice_of(*kernels[i], &run_, number_, op));
      if (last && op != kUnknown) {
        Cost cost;
        cost.add(run_.ops[op], run_.load);
        all.add(run_.ops[op], run_.load);
        cost.put(slices.back(), latest_ - op_begin_, read_gbps_);
      }
    }
    slices[step].end_ns = latest_;
    slices[step].args.push_back({"gpu_busy_us", static_cast<double>(busy) / 1000});
    slices[step].args.push_back({"gap_us", static_cast<double>(latest_ - start - busy) / 1000});
    all.put(slices[step], latest_ - start, read_gbps_);
    return latest_;
  }

 private:
  const ProgramRun& run_;
  uint32_t number_;
  double read_gbps_;
  int64_t latest_ = 0, op_begin_ = 0;
};

GpuSlice slice_of(const GpuActivity& a, std::span<const ProgramRun> runs, double read_gbps) {
  using Kind = GpuActivity::Kind;
  GpuSlice slice{.name = a.name,
                 .device = a.device,
                 .number = a.stream,
                 .begin_ns = static_cast<int64_t>(a.start),
                 .end_ns = static_cast<int64_t>(a.end),
                 .correlation = a.correlation};
  const uint64_t number = a.tag >> 32U;
  const ProgramRun* run = number != 0 && number <= runs.size() ? &runs[number - 1] : nullptr;
  if (a.kind == Kind::kCall || a.kind == Kind::kOverhead || a.kind == Kind::kWait) {
    slice.track = a.kind == Kind::kCall ? Track::kCalls : a.kind == Kind::kWait ? Track::kWaits : Track::kOverhead;
    slice.category = a.kind == Kind::kCall ? "cuda_runtime" : a.kind == Kind::kWait ? "cuda_sync" : "overhead";
    if (a.kind == Kind::kCall) slice.number = a.thread;
    if (a.kind != Kind::kOverhead) slice.args.push_back({"correlation", uint64_t{a.correlation}});
    return slice;
  }
  slice.category = a.kind == Kind::kCopy ? "gpu_memcpy" : a.kind == Kind::kFill ? "gpu_memset" : "kernel";
  slice.args = {
      {"device", uint64_t{a.device}}, {"stream", uint64_t{a.stream}}, {"correlation", uint64_t{a.correlation}}};
  if (a.graph != 0) slice.args.push_back({"graph", uint64_t{a.graph}});
  if (run != nullptr) put_run(slice, *run, static_cast<uint32_t>(number - 1));
  if (a.kind != Kind::kGraph) {
    slice.args.push_back({"bytes", a.bytes});
    return slice;
  }
  slice.args.push_back({"op", std::string("graph")});
  if (run == nullptr) return slice;
  slice.name = run->load.phase[0] != '\0' ? run->load.phase : "program";
  Cost cost;
  for (const ProgramOp& op : run->ops) cost.add(op, run->load);
  cost.put(slice, slice.end_ns - slice.begin_ns, read_gbps);
  return slice;
}

// Steps are the only spans over layers that have arguments.
bool is_step(const GpuSlice& slice) {
  if (slice.track == Track::kLayers) return !slice.args.empty();
  const auto op = std::ranges::find(slice.args, "op", &trace::Arg::name);
  return slice.track == Track::kStream && op != slice.args.end() && op->value == decltype(op->value)("graph");
}

// Adds to each step for how long the host waited for the device.
void put_waits(std::span<const GpuActivity> others, std::vector<GpuSlice>& slices) {
  std::vector<std::pair<int64_t, int64_t>> waits;
  for (const GpuActivity& a : others) {
    if (a.kind == GpuActivity::Kind::kWait && !a.name.starts_with("Stream Wait")) waits.emplace_back(a.start, a.end);
  }
  std::ranges::sort(waits);
  int64_t end = 0;
  // Waits that overlap are cut, so that they lie side by side.
  for (auto& [from, to] : waits) {
    from = std::max(from, end);
    end = to = std::max(to, end);
  }
  for (GpuSlice& slice : slices) {
    if (!is_step(slice)) continue;
    int64_t waited = 0;
    auto wait = std::ranges::upper_bound(waits, slice.begin_ns, {}, &std::pair<int64_t, int64_t>::second);
    for (; wait != waits.end() && wait->first < slice.end_ns; ++wait) {
      waited += std::max<int64_t>(0, std::min(wait->second, slice.end_ns) - std::max(wait->first, slice.begin_ns));
    }
    slice.args.push_back({"sync_wait_us", static_cast<double>(waited) / 1000});
  }
}

}  // namespace

std::vector<GpuSlice> gpu_slices(const KernelRecording& recording, std::span<const ProgramRun> runs, double read_gbps) {
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
  int64_t ended = 0;
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
    if (run.only_to_learn) continue;
    const bool same = std::equal(kernels.begin(), kernels.end(), launched.names.begin(), launched.names.end(),
                                 [](const KernelRecord* k, const std::string* name) { return k->name == *name; });
    const std::vector<uint32_t> unknown(kernels.size(), kUnknown);
    ended = RunSlices(run, number, read_gbps).add(kernels, same ? launched.ops : unknown, ended, slices);
  }
  for (const GpuActivity& a : recording.others) slices.push_back(slice_of(a, runs, read_gbps));
  put_waits(recording.others, slices);
  return slices;
}

}  // namespace tenon::profiler
