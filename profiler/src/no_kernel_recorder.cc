// This stands in for CUPTI if its headers were not found when Tenon was configured.
#include "tenon/core/error.h"
#include "tenon/profiler/kernel_recorder.h"

namespace tenon::profiler {

struct KernelRecorder::Cupti {};

KernelRecorder::KernelRecorder(const std::string&) {
  throw Error(ErrorCode::kUsage,
              "this tenon was built without CUPTI, so it cannot record kernels: configure it where the CUDA toolkit "
              "(13 or later) has cupti.h");
}
KernelRecorder::~KernelRecorder() = default;
std::string KernelRecorder::version() const {
  return "";
}
void KernelRecorder::start(GpuRecords, Wanted) {}
void KernelRecorder::tag(uint64_t) noexcept {}
KernelRecording KernelRecorder::stop() {
  return {};
}

}  // namespace tenon::profiler
