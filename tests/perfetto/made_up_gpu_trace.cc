// `made_up_gpu_trace FILE node|graph` writes what a GPU's decode steps look like in a trace, of records that no GPU
// made.
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "tenon/profiler/perfetto_writer.h"

namespace tenon::profiler {
namespace {

constexpr uint32_t kSteps = 24, kLayers = 4;
constexpr uint64_t kStepNs = 60'000;

ProgramOp op_of(std::string path, std::string name, std::string component, int32_t layer, double bytes) {
  ProgramOp op;
  op.path = std::move(path);
  op.name = std::move(name);
  op.component = std::move(component);
  op.layer = layer;
  op.cost.read[0] = bytes;
  op.cost.flops[0] = 2 * bytes;
  return op;
}

std::vector<ProgramOp> program() {
  std::vector<ProgramOp> ops;
  for (uint32_t l = 0; l < kLayers; ++l) {
    const std::string layer = "layers." + std::to_string(l);
    const auto n = static_cast<int32_t>(l);
    ops.push_back(op_of(layer + ".attention.qkv", "gemv", "quantization.none", n, 4e6));
    ops.push_back(op_of(layer + ".attention", "attention", "attention.flash", n, 1e5));
    ops.push_back(op_of(layer + ".mlp.down", "gemv", "quantization.none", n, 9e6));
  }
  ops.push_back(op_of("sampler", "draw", "sampler.greedy", -1, 1e3));
  return ops;
}

// Steps follow one another; each kernel begins before the one ahead of it ends, as under programmatic launches.
class MadeUp {
 public:
  // The steps start at starts_ns.
  MadeUp(bool nodes, const std::vector<uint64_t>& starts_ns) : nodes_(nodes) {
    for (uint32_t s = 0; s < starts_ns.size(); ++s) add_step(s, starts_ns[s]);
  }
  GpuSlices slices() const { return {gpu_slices(recording_, runs_, 4000), 0}; }

 private:
  using Kind = GpuActivity::Kind;

  uint32_t call(const char* name, uint64_t start, uint64_t end) {
    recording_.others.push_back({.kind = Kind::kCall,
                                 .name = name,
                                 .start = start,
                                 .end = end,
                                 .thread = static_cast<uint32_t>(gettid()),
                                 .correlation = ++correlation_});
    return correlation_;
  }

  void add_step(uint32_t step, uint64_t start) {
    const bool one_by_one = nodes_ && step == 0;
    runs_.push_back({ops_, one_by_one, {.rows = 1, .context = 10, .step = step, .phase = "decode"}});
    uint32_t launch = one_by_one ? 0 : call("cudaGraphLaunch", start, start + 4000);
    const uint64_t first = start + 5000;
    uint64_t at = first;
    for (uint32_t i = 0; i < ops_.size(); ++i) {
      const uint64_t took = 500 + static_cast<uint64_t>(ops_[i].cost.read[0] / 3000) + (step * 7 + i * 3) % 50;
      if (one_by_one) launch = call("cudaLaunchKernelExC", start + i * 300, start + i * 300 + 250);
      if (nodes_) {
        recording_.kernels.push_back({.name = "_Z4gemvi",
                                      .start = i == 0 ? at : at - 300,
                                      .end = at + took,
                                      .stream = 7,
                                      .correlation = launch,
                                      .graph_node = one_by_one ? 0 : i + 1,
                                      .tag = one_by_one ? kernel_tag(step, i) : kernel_tag(step),
                                      .graph = one_by_one ? 0U : 5U,
                                      .grid = {132, 1, 1},
                                      .block = {256, 1, 1}});
      }
      at += took;
    }
    const auto other = [&](Kind kind, const char* name, uint64_t begin, uint64_t end) {
      recording_.others.push_back({.kind = kind,
                                   .name = name,
                                   .start = begin,
                                   .end = end,
                                   .stream = 7,
                                   .correlation = kind == Kind::kGraph ? launch : ++correlation_,
                                   .graph = kind == Kind::kGraph ? 5U : 0U,
                                   .bytes = kind == Kind::kCopy ? 4U : 0U,
                                   .tag = kernel_tag(step)});
    };
    if (!nodes_) other(Kind::kGraph, "graph 5", first, at);
    other(Kind::kCopy, "Memcpy DtoH", at, at + 900);
    other(Kind::kWait, "Stream Sync", start + 4500, at + 1000);
    if (step == 0) other(Kind::kOverhead, "loading a kernel", start + 100, start + 200);
  }

  const bool nodes_;
  const std::vector<ProgramOp> ops_ = program();
  uint32_t correlation_ = 100;
  KernelRecording recording_;
  std::vector<ProgramRun> runs_;
};

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int write(const std::string& path, const std::string& mode) {
  std::vector<uint64_t> starts;
  PerfettoOptions options{.path = path, .mode = mode, .metadata = {{"read_bandwidth_gbps", 4000.0}}};
  options.devices = [] {
    return std::vector<std::vector<trace::Arg>>{{{"id", int64_t{0}}, {"name", std::string("made up")}}};
  };
  options.kernels = [&] { return MadeUp(mode == "node", starts).slices(); };
  trace::Recorder recorder({}, make_perfetto_writer(std::move(options)));
  trace::Track& track = recorder.add_track("main");
  const trace::OriginId origin = recorder.add_origin(trace::step_origin("decode"));
  for (uint64_t step = 0; step < kSteps; ++step) {
    recorder.begin_step();
    {
      trace::Span span(track, origin);
      span.set({step, 0, 0, 1, 1, 0, 0});
      span.set_text(" token");
      starts.push_back(now_ns());
      while (now_ns() < starts.back() + kStepNs) continue;  // its kernels lie within it
    }
    recorder.end_step();
  }
  const Status status = recorder.stop();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace tenon::profiler

int main(int argc, char** argv) {
  return argc == 3 ? tenon::profiler::write(argv[1], argv[2]) : 2;
}
