// A kernel recorder records what a process does on its NVIDIA GPUs, from CUPTI's activity records.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tenon::profiler {

struct KernelRecord {
  std::string name = {};        // it is the name as the compiler mangled it
  uint64_t start = 0, end = 0;  // nanoseconds of CUPTI's clock
  uint32_t device = 0, stream = 0;
  uint32_t correlation = 0;  // the call that launched it has it; it rises with every call, and a graph has one
  uint64_t graph_node = 0;   // 0 = the kernel was launched by itself
  uint64_t tag = 0;          // see KernelRecorder::tag
  uint32_t graph = 0;        // it is the graph that was launched; 0 = none
  std::array<uint32_t, 3> grid = {}, block = {};
  uint32_t registers = 0;     // a thread has so many
  uint32_t shared_bytes = 0;  // a block has so many, static and dynamic
};

// An activity is anything but a kernel.
struct GpuActivity {
  enum class Kind : uint8_t {
    kCopy,      // memory was copied
    kFill,      // memory was filled
    kGraph,     // a captured graph ran; its kernels are not recorded
    kCall,      // the host called CUDA's runtime or driver
    kWait,      // the host or a stream waited
    kOverhead,  // recording itself, or CUDA, took time
  };
  Kind kind = Kind::kCopy;
  std::string name = {};
  uint64_t start = 0, end = 0;
  uint32_t device = 0;
  uint32_t stream = 0;  // kCopy, kFill, kGraph, kWait; kNoStream: it waits for the whole device
  uint32_t thread = 0;  // kCall: the operating system's id of the thread
  uint32_t correlation = 0, graph = 0;
  uint64_t graph_node = 0;
  uint64_t bytes = 0;  // kCopy, kFill
  uint64_t tag = 0;    // see KernelRecorder::tag

  static constexpr uint32_t kNoStream = UINT32_MAX;
};

struct KernelRecording {
  std::vector<KernelRecord> kernels = {};  // they are in no order
  std::vector<GpuActivity> others = {};    // they are in no order
  uint64_t untimed = 0;                    // CUPTI could not time so many kernels; they are not among `kernels`
  uint64_t dropped = 0;                    // so many records found no room
};

enum class GpuRecords : uint8_t {
  kKernels,  // it has kernels alone
  kTagged,   // kernels with tags, at a greater cost a launch
  kNodes,    // it has everything, with tags, and every kernel of a graph
  kGraphs,   // everything, with tags, and a graph's run as one record, which is far cheaper
};

// CUPTI is loaded when a recorder is made, and stays loaded; nothing links it. It has one recorder a process at a time.
// Thread: one at a time, the one that launches.
class KernelRecorder {
 public:
  // library is CUPTI's file; if it is "", the loader is asked for it, and it is looked for beside the libcudart in use,
  // in $CUDA_HOME and in /usr/local/cuda. From the first recorder on CUPTI belongs to this process: a profiler that
  // comes later is turned down. Throws Error: kIo if there is no CUPTI (naming the places), kUsage if this build is
  // without it, kPlugin for an error of CUPTI, such as that another profiler has it already.
  explicit KernelRecorder(const std::string& library = {});
  ~KernelRecorder();
  KernelRecorder(const KernelRecorder&) = delete;
  KernelRecorder& operator=(const KernelRecorder&) = delete;

  // Returns CUPTI's version: "13.0.1".
  std::string version() const;

  // Returns true if records with this tag are still wanted. Threads of CUPTI call it until stop() has
  // returned; it must not call this recorder.
  using Wanted = std::function<bool(uint64_t tag)>;
  // Begins a recording. `wanted` is for one without end, of which little is wanted: it is asked now and then, so that
  // the recording takes no more memory than the wanted records and some thousand others. It is not asked again about a
  // tag that it has turned down. Throws Error(kPlugin).
  void start(GpuRecords records = GpuRecords::kKernels, Wanted wanted = {});
  // Everything that this thread asks of the device from now on bears the tag, calls too; 0 = no tag. Tags must rise. If
  // CUPTI does not take a tag, the records have none.
  void tag(uint64_t tag) noexcept;
  // Ends the recording, if there is one, and gives what it has. Call it when nothing is under way on the device. Throws
  // Error(kPlugin).
  KernelRecording stop();

 private:
  struct Cupti;
  std::unique_ptr<Cupti> cupti_;
};

}  // namespace tenon::profiler
