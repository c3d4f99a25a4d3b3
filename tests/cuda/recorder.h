// The stand-in host (conformance/op_runner.h) on a GPU for tests and benchmarks of CUDA ops, with the times of what was
// recorded. The device's library is looked for in ../lib/tenon/plugins beside the program's folder, or in the folder
// that TENON_TEST_PLUGINS names.
//
//   if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
//   CudaRecorder host(CudaRecorder::bounds(rows));
//   const tenon_tid x = host.input(TENON_F32, {rows, 64}, values), y = host.output(TENON_F32, {rows, 64});
//   host.set_live(rows - 3);                             // else all rows are live
//   sdk::Recorder recorder(host.recorder());
//   record_something(recorder, x, y);
//   ASSERT_EQ(host.run(CudaRecorder::Mode::kGraph), "");  // may be run again, also in other modes
//   EXPECT_THAT(host.f32(y), ...);
//   const double us = host.time_us(CudaRecorder::Mode::kGraph, 20);
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "conformance/op_runner.h"
#include "tenon/cuda/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {

// "", or why no kernel can run here.
inline std::string cuda_missing() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(status);
  return devices == 0 ? "no CUDA device" : "";
}

inline Registry& cuda_plugins() {
  static Registry registry;
  [[maybe_unused]] static const bool opened = [] {
    const char* named = std::getenv("TENON_TEST_PLUGINS");
    registry.add_root(named != nullptr ? std::filesystem::path(named)
                                       : std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
                                             "lib/tenon/plugins");
    return true;
  }();
  return registry;
}

// Returns the first GPU, for the process' life.
inline const conformance::Device& cuda_device() {
  static const conformance::Device device(cuda_plugins(), "cuda");
  return device;
}

class CudaRecorder : public conformance::OpRunner {
 public:
  enum class Mode {
    kList,     // ops run one after the other, each waited for and watched, and then as the others
    kOverlap,  // ops overlap by programmatic dependent launch wherever the contract allows it
    kGraph     // it is the same, captured and replayed
  };

  static tenon_bounds bounds(uint32_t rows, uint32_t seqs = 1, uint32_t kv_len = 64, uint32_t slots = 0) {
    return OpRunner::bounds({.rows = rows, .seqs = seqs, .kv_len = kv_len, .slots = slots != 0 ? slots : seqs});
  }

  explicit CudaRecorder(const tenon_bounds& bounds, uint32_t most_out_rows = 0)
      : OpRunner(bounds, cuda_device(), most_out_rows) {}

  using OpRunner::input, OpRunner::output;
  tenon_tid input(const tenon_tensor& t, const void* data) { return strided_input(t, data); }
  tenon_tid output(const tenon_tensor& t) { return strided_output(t); }
  template <class T>
  std::vector<T> download(tenon_tid id) const {
    return read<T>(id);
  }
  void upload(tenon_tid id, const void* host) { write(id, host); }
  size_t op_count() const { return program().ops().size(); }

  // Runs the recorded ops once. Returns "" or what went wrong first.
  std::string run(Mode mode = Mode::kList) {
    if (mode == Mode::kList) return OpRunner::run(1);
    return run_once(mode == Mode::kGraph ? Launch::kGraph : Launch::kOverlap);
  }

  // Returns the median of so many runs of the whole list, without a look at any byte, after one that is not counted.
  double time_us(Mode mode, int repeats) {
    const tenon_device& d = device().table();
    const size_t ops = prepare(mode != Mode::kList).ops().size();
    const auto all = [&] {
      for (size_t i = 0; i < ops; ++i) enqueue(i);
    };
    all();  // one-time work is done outside a capture
    device().wait();
    void* graph = nullptr;
    if (mode == Mode::kGraph) {
      check(d.capture_begin(d.self, device().queue(), nullptr));
      all();
      check(d.capture_end(d.self, device().queue(), &graph, nullptr));
    }
    std::vector<double> us;
    for (int i = 0; i <= repeats; ++i) {
      mark(0);
      graph != nullptr ? check(d.replay(d.self, graph, device().queue(), nullptr)) : all();
      mark(1);
      if (const double time = between(0, 1); i > 0) us.push_back(time);
    }
    if (graph != nullptr) d.graph_release(d.self, graph);
    return median(us);
  }

  // An op's time is the same for the op by itself; they come in the order of recording.
  struct OpTime {
    std::string name;
    double us;
  };
  std::vector<OpTime> op_times(int repeats) {
    const Program& planned = prepare(false);
    std::vector<std::vector<double>> us(planned.ops().size());
    for (int i = 0; i <= repeats; ++i) {
      mark(0);
      for (size_t o = 0; o < us.size(); ++o) {
        enqueue(o);
        mark(o + 1);
      }
      device().wait();
      for (size_t o = 0; i > 0 && o < us.size(); ++o) us[o].push_back(between(o, o + 1));
    }
    std::vector<OpTime> times;
    for (size_t o = 0; o < us.size(); ++o) times.push_back({planned.ops()[o].name, median(us[o])});
    return times;
  }

 private:
  struct Event {
    Event() { TENON_CUDA_CHECK(cudaEventCreate(&event)); }
    ~Event() { cudaEventDestroy(event); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    cudaEvent_t event = nullptr;
  };

  static void check(tenon_status status) {
    if (status != TENON_OK) throw sdk::Failed("the device refused a graph");
  }
  void mark(size_t i) {
    while (events_.size() <= i) events_.push_back(std::make_unique<Event>());
    TENON_CUDA_CHECK(cudaEventRecord(events_[i]->event, static_cast<cudaStream_t>(device().queue())));
  }
  double between(size_t begin, size_t end) const {
    float ms = 0;
    TENON_CUDA_CHECK(cudaEventSynchronize(events_[end]->event));
    TENON_CUDA_CHECK(cudaEventElapsedTime(&ms, events_[begin]->event, events_[end]->event));
    return 1e3 * ms;
  }
  static double median(std::vector<double>& us) {
    const auto middle = us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2);
    std::nth_element(us.begin(), middle, us.end());
    return *middle;
  }

  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace tenon::test
