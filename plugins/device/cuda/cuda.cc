// device.cuda has the memory, the streams and the graphs of one GPU. Each function makes the device the calling
// thread's current one first, and turns what CUDA says into a status with CUDA's own words.
#include <algorithm>
#include <cstdlib>

#include "generate.h"
#include "plugin.h"
#include "read_rate.h"
#include "step_ops.h"
#include "tenon/cuda/error.h"

namespace tenon::cuda_device {
namespace {

constexpr int kHopper = 90;

// CUDA's current device is the calling thread's, and a pipeline may be driven from any thread, or beside another one's:
// whatever is called makes this device the current one, for the components that are called next too.
template <class F>
tenon_status on_device(void* self, tenon_reason* why, F&& f) noexcept {
  return sdk::guard(why, [&] {
    static_cast<const CudaDevice*>(self)->make_current();
    f();
  });
}

// Throws what CUDA says of an allocation that fails, and why it may have: only the device knows what others hold of it.
[[noreturn]] void no_space(uint32_t space) {
  static_cast<void>(cudaGetLastError());
  if (space == TENON_SPACE_HOST) throw sdk::NoSpace("cudaMallocHost: the system gives no more page-locked memory");
  size_t free_bytes = 0, all_bytes = 0;
  TENON_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
  throw sdk::NoSpace("cudaMalloc: out of memory; " + std::to_string(free_bytes / 1000000) + " MB of " +
                     std::to_string(all_bytes / 1000000) + " MB are free now");
}

tenon_status alloc(void* self, uint32_t space, uint64_t bytes, void** out, tenon_reason* why) noexcept {
  return on_device(self, why, [&] {
    const cudaError_t status = space == TENON_SPACE_HOST ? cudaMallocHost(out, bytes) : cudaMalloc(out, bytes);
    if (status == cudaErrorMemoryAllocation) no_space(space);
    cuda::check(status, space == TENON_SPACE_HOST ? "cudaMallocHost" : "cudaMalloc");
  });
}
void release(void*, uint32_t space, void* p, uint64_t) noexcept {
  static_cast<void>(space == TENON_SPACE_HOST ? cudaFreeHost(p) : cudaFree(p));
}

cudaStream_t stream(void* queue) {
  return static_cast<cudaStream_t>(queue);
}

tenon_status copy(void* self, void* queue, void* dst, const void* src, uint64_t bytes, tenon_reason* why) noexcept {
  return on_device(self, why, [&] {
    if (bytes == 0) return;
    if (src != nullptr) {
      TENON_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream(queue)));
    } else {
      TENON_CUDA_CHECK(cudaMemsetAsync(dst, 0, bytes, stream(queue)));
    }
  });
}

tenon_status make_queue(void* self, void** out, tenon_reason* why) noexcept {
  return on_device(self, why, [&] { *out = static_cast<CudaDevice*>(self)->new_stream(); });
}
tenon_status wait(void* self, void* queue, tenon_reason* why) noexcept {
  return on_device(self, why, [&] { TENON_CUDA_CHECK(cudaStreamSynchronize(stream(queue))); });
}

tenon_status capture_begin(void* self, void* queue, tenon_reason* why) noexcept {
  return on_device(self, why,
                   [&] { TENON_CUDA_CHECK(cudaStreamBeginCapture(stream(queue), cudaStreamCaptureModeThreadLocal)); });
}
tenon_status capture_end(void* self, void* queue, void** out, tenon_reason* why) noexcept {
  return on_device(self, why, [&] {
    cudaGraph_t graph = nullptr;
    TENON_CUDA_CHECK(cudaStreamEndCapture(stream(queue), &graph));
    cudaGraphExec_t exec = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    cuda::check(status, "cudaGraphInstantiate");
    TENON_CUDA_CHECK(cudaGraphUpload(exec, stream(queue)));
    *out = exec;
  });
}
tenon_status replay(void* self, void* graph, void* queue, tenon_reason* why) noexcept {
  return on_device(self, why,
                   [&] { TENON_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream(queue))); });
}
void graph_release(void*, void* graph) noexcept {
  static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
}

tenon_status call_record_step_op(void*, const tenon_fop* op, tenon_tid x, tenon_tid y, const tenon_recorder* raw,
                                 tenon_reason* why) noexcept {
  return sdk::guard(why, [&] {
    sdk::Recorder recorder(raw);
    record_step_op(sdk::read_longer<sdk::VerifyOp>(op), x, y, recorder);
  });
}

tenon_status call_record_draft_pass(void*, const tenon_draft_pass* pass, const tenon_recorder* raw,
                                    tenon_reason* why) noexcept {
  return sdk::guard(why, [&] {
    sdk::Recorder recorder(raw);
    record_draft_pass(sdk::read_longer<sdk::DraftPass>(pass), recorder);
  });
}

tenon_status generate(void* self, void* queue, void* dst, const tenon_generated* what, tenon_reason* why) noexcept {
  return on_device(self, why, [&] { fill_generated(stream(queue), dst, sdk::read_abi(what)); });
}

tenon_status read_rate(void* self, void* queue, uint64_t* bytes, double* bytes_per_second, tenon_reason* why) noexcept {
  return on_device(self, why, [&] { *bytes_per_second = measure_read_rate(stream(queue), bytes); });
}

int device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice || status == cudaErrorStubLibrary) {
    throw sdk::Refused(std::string("this machine has no usable NVIDIA GPU (") + cudaGetErrorString(status) +
                       "); say device.use = \"cpu\", or install the driver");
  }
  cuda::check(status, "cudaGetDeviceCount");
  return count;
}

}  // namespace

CudaDevice::CudaDevice(const sdk::Params& params, const sdk::Env& env) {
  const int count = device_count(), ordinal = static_cast<int>(env.ordinal());
  if (ordinal >= count) {
    throw sdk::Refused("device.index is " + std::to_string(ordinal) + ", and this machine's GPUs are 0 to " +
                       std::to_string(count - 1));
  }
  table_.ordinal = static_cast<uint32_t>(ordinal);
  cudaDeviceProp properties{};
  TENON_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  // Makes the context, so that free memory is what a pipeline can have.
  cudaError_t made = cudaSetDevice(ordinal);
  if (made == cudaSuccess) made = cudaFree(nullptr);
  if (made == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    throw sdk::NoSpace("GPU " + std::to_string(ordinal) + " (" + properties.name +
                       ") has no memory left even for a context; other programs hold it: nvidia-smi lists them");
  }
  cuda::check(made, "cudaSetDevice");
  size_t free_bytes = 0, all_bytes = 0;
  TENON_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
  name_ = properties.name;
  table_.self = this;
  table_.kind = "cuda";
  table_.name = name_.c_str();
  table_.units = static_cast<uint32_t>(properties.multiProcessorCount);
  table_.arch = std::min(static_cast<uint32_t>(properties.major * 10 + properties.minor), built_arch());
  table_.flags = table_.arch >= kHopper && params.boolean("overlap") ? TENON_DEVICE_OVERLAPS : 0;
  table_.memory = free_bytes;
  table_.shared_per_unit = properties.sharedMemPerMultiprocessor;
  table_.alloc = &alloc;
  table_.release = &release;
  table_.copy = &copy;
  table_.queue = &make_queue;
  table_.wait = &wait;
  table_.capture_begin = &capture_begin;
  table_.capture_end = &capture_end;
  table_.replay = &replay;
  table_.graph_release = &graph_release;
  table_.record_step_op = &call_record_step_op;
  table_.record_draft_pass = &call_record_draft_pass;
  table_.generate = &generate;
  table_.read_rate = &read_rate;
}

CudaDevice::~CudaDevice() {
  for (cudaStream_t s : streams_) cudaStreamDestroy(s);
}

void CudaDevice::make_current() const {
  TENON_CUDA_CHECK(cudaSetDevice(static_cast<int>(table_.ordinal)));
}

cudaStream_t CudaDevice::new_stream() {
  cudaStream_t s = nullptr;
  TENON_CUDA_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  streams_.push_back(s);
  return s;
}

}  // namespace tenon::cuda_device

TENON_PLUGIN(tenon::cuda_device::CudaDevice);
