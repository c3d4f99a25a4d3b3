// The kernels that a process runs on its NVIDIA GPUs, as CUPTI's activity records tell them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tenon::profiler {

struct KernelRecord {
  std::string name = {};        // as the compiler mangled it
  uint64_t start = 0, end = 0;  // nanoseconds of CUPTI's clock
  uint32_t device = 0, stream = 0;
  uint32_t correlation = 0;  // of the call that launched it: rises with every call, one for all kernels of a graph
  uint64_t graph_node = 0;   // 0 = launched by itself
  uint64_t tag = 0;          // see KernelRecorder::tag
};

struct KernelRecording {
  std::vector<KernelRecord> kernels = {};  // in no order
  uint64_t untimed = 0;                    // kernels whose times CUPTI could not take; not among `kernels`
  uint64_t dropped = 0;                    // records that found no room
};

// CUPTI is loaded when a recorder is made, and stays loaded; nothing links it. It has one recorder a process at a time.
// Thread: one at a time, the one that launches.
class KernelRecorder {
 public:
  // library: a file; "" = searched for: by the loader, beside the libcudart in use, in $CUDA_HOME and /usr/local/cuda.
  // Throws Error: kIo if there is none (naming the places), kUsage if this build is without it, kPlugin for what CUPTI
  // says, such as another profiler that has it.
  explicit KernelRecorder(const std::string& library = {});
  ~KernelRecorder();
  KernelRecorder(const KernelRecorder&) = delete;
  KernelRecorder& operator=(const KernelRecorder&) = delete;

  // From now on kernels are recorded. tagged: with tags, at a greater cost a launch. Throws Error(kPlugin).
  void start(bool tagged = false);
  // Kernels that this thread launches from now on bear it; 0 = none. A tag that CUPTI does not take is none.
  void tag(uint64_t tag) noexcept;
  // Ends the recording, if there is one, and gives what it has. Call it when nothing is under way on the device. Throws
  // Error(kPlugin).
  KernelRecording stop();

 private:
  struct Cupti;
  std::unique_ptr<Cupti> cupti_;
};

}  // namespace tenon::profiler
