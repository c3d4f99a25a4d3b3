// What a process does on its NVIDIA GPUs, as CUPTI's activity records tell it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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
  uint32_t graph = 0;        // that was launched; 0 = none
  std::array<uint32_t, 3> grid = {}, block = {};
  uint32_t registers = 0;     // a thread
  uint32_t shared_bytes = 0;  // a block, static and dynamic
};

// Everything but kernels.
struct GpuActivity {
  enum class Kind : uint8_t {
    kCopy,      // of memory
    kFill,      // of memory
    kGraph,     // a whole run of a captured graph, in place of its kernels
    kCall,      // of CUDA's runtime or driver, by the host
    kWait,      // of the host or a stream
    kOverhead,  // of recording itself, or of CUDA
  };
  Kind kind = Kind::kCopy;
  std::string name = {};
  uint64_t start = 0, end = 0;
  uint32_t device = 0;
  uint32_t stream = 0;  // kCopy, kFill, kGraph; kWait: kNoStream where it waits for all of the device
  uint32_t thread = 0;  // kCall: the kernel's id of it
  uint32_t correlation = 0, graph = 0;
  uint64_t graph_node = 0;
  uint64_t bytes = 0;  // kCopy, kFill
  uint64_t tag = 0;    // see KernelRecorder::tag

  static constexpr uint32_t kNoStream = UINT32_MAX;
};

struct KernelRecording {
  std::vector<KernelRecord> kernels = {};  // in no order
  std::vector<GpuActivity> others = {};    // in no order
  uint64_t untimed = 0;                    // kernels whose times CUPTI could not take; not among `kernels`
  uint64_t dropped = 0;                    // records that found no room
};

enum class GpuRecords : uint8_t {
  kKernels,  // nothing else
  kTagged,   // kernels with tags, at a greater cost a launch
  kNodes,    // everything, tagged, every kernel of a graph
  kGraphs,   // everything, tagged, a graph's run as one: far cheaper
};

// CUPTI is loaded when a recorder is made, and stays loaded; nothing links it. It has one recorder a process at a time.
// Thread: one at a time, the one that launches.
class KernelRecorder {
 public:
  // library: a file; "" = searched for: by the loader, beside the libcudart in use, in $CUDA_HOME and /usr/local/cuda.
  // From the first recorder on CUPTI is this process's own: a profiler that comes later is turned down. Throws Error:
  // kIo if there is none (naming the places), kUsage if this build is without it, kPlugin for what CUPTI says, such as
  // another profiler that has it already.
  explicit KernelRecorder(const std::string& library = {});
  ~KernelRecorder();
  KernelRecorder(const KernelRecorder&) = delete;
  KernelRecorder& operator=(const KernelRecorder&) = delete;

  // Of CUPTI: "13.0.1".
  std::string version() const;

  // Whether what bears this tag is still wanted. Asked on threads of CUPTI, until stop() has returned; it must not call
  // this recorder.
  using Wanted = std::function<bool(uint64_t tag)>;
  // wanted: for a recording without end, of which little is wanted: asked now and then, for as little memory as what is
  // wanted takes, and some thousand records. What it has turned down once it is not asked about again. Throws
  // Error(kPlugin).
  void start(GpuRecords records = GpuRecords::kKernels, Wanted wanted = {});
  // What this thread asks of the device from now on bears it, calls too; 0 = none. Rising. A tag that CUPTI does not
  // take is none.
  void tag(uint64_t tag) noexcept;
  // Ends the recording, if there is one, and gives what it has. Call it when nothing is under way on the device. Throws
  // Error(kPlugin).
  KernelRecording stop();

 private:
  struct Cupti;
  std::unique_ptr<Cupti> cupti_;
};

}  // namespace tenon::profiler
