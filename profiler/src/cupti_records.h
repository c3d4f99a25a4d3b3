// CUPTI's records in this library's terms.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <map>
#include <unordered_map>

#include "tenon/profiler/kernel_recorder.h"

static_assert(CUPTI_API_VERSION >= 130000);  // it has CUpti_ActivityKernel10

namespace tenon::profiler {

inline constexpr auto kTagKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

// Thread: one at a time.
class CuptiRecords {
 public:
  using CallbackName = decltype(&cuptiGetCallbackName);
  // Records of other kinds, or of no time, say nothing, but for kernels of no time, which are counted.
  void add(const CUpti_Activity& record, CallbackName callback_name);
  void append(CuptiRecords&& more);
  // Leaves out what bears a tag that is not wanted, once there is so much that this is worth the time.
  void forget(const KernelRecorder::Wanted& wanted);
  // Returns the recording with each record's tag (found by the call that it came of) and each wait's device (that of
  // its context). If calls are nested, only the outermost stays. Calls are wanted only if `calls` is true.
  KernelRecording finish(bool calls) &&;

 private:
  KernelRecording recording_;
  std::unordered_map<uint32_t, uint64_t> tags_;     // keyed by correlation
  std::map<uint32_t, uint32_t> device_of_context_;  // waits bear the context's id for the device's
  size_t worth_forgetting_ = 0;                     // records
};

}  // namespace tenon::profiler
