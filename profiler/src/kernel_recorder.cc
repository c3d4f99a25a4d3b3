// CUPTI is loaded at run time (dlopen), so that a build with it runs where it is not installed. Its callbacks run on
// its own threads and have no argument, so what they collect is one object of the process, which is never destroyed:
// CUPTI may still call when the process ends.
#include "tenon/profiler/kernel_recorder.h"

#include <cupti.h>
#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <utility>

#include "cupti_records.h"
#include "tenon/core/error.h"

namespace tenon::profiler {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20U;
// Tags belong to records of calls, so these must be recorded too.
constexpr std::initializer_list<CUpti_ActivityKind> kTagKinds = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER};
constexpr std::initializer_list<CUpti_ActivityKind> kOtherKinds = {
    CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
    CUPTI_ACTIVITY_KIND_OVERHEAD};

// CUPTI's callbacks have no argument of their own. They come from its threads, and once the library is loaded there is
// no end to them.
struct Collected {
  std::mutex mutex;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiGetCallbackName) callback_name = nullptr;
  void* subscribed = nullptr;  // this process has subscribed to it
  KernelRecorder::Wanted wanted;
  CuptiRecords records;
};
Collected& collected() {
  static auto* value = new Collected;
  return *value;
}

void CUPTIAPI buffer_wanted(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::malloc(kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *max_records = 0;
}

// The lock is never held while CUPTI is called.
void CUPTIAPI buffer_full(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Collected& all = collected();
  CuptiRecords records;
  CUpti_Activity* record = nullptr;
  while (valid > 0 && all.next_record(buffer, valid, &record) == CUPTI_SUCCESS) records.add(*record, all.callback_name);
  std::free(buffer);
  const std::lock_guard lock(all.mutex);
  all.records.append(std::move(records));
  if (all.wanted) all.records.forget(all.wanted);
}

std::optional<std::filesystem::path> folder_of_cudart() {
  std::optional<std::filesystem::path> folder;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const std::filesystem::path path = info->dlpi_name;
        if (!path.filename().string().starts_with("libcudart.so")) return 0;
        *static_cast<std::optional<std::filesystem::path>*>(out) = path.parent_path();
        return 1;
      },
      &folder);
  return folder;
}

void* load(const std::string& library) {
  std::vector<std::string> tries;
  if (!library.empty()) {
    tries.push_back(library);
  } else {
    tries.push_back(TENON_CUPTI_LIBRARY);
    if (const auto folder = folder_of_cudart()) tries.push_back(*folder / TENON_CUPTI_LIBRARY);
    const char* home = std::getenv("CUDA_HOME");
    for (const std::filesystem::path root : {home != nullptr ? home : "", "/usr/local/cuda"}) {
      if (root.empty()) continue;
      for (const char* folder : {"extras/CUPTI/lib64", "lib64", "lib"}) {
        tries.push_back(root / folder / TENON_CUPTI_LIBRARY);
      }
    }
  }
  std::string reasons;
  for (const std::string& file : tries) {
    if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    reasons += std::string("\n  ") + dlerror();
  }
  throw Error(ErrorCode::kIo,
              "recording kernels needs CUPTI, and no " TENON_CUPTI_LIBRARY
              " could be loaded; it comes with the CUDA toolkit (extras/CUPTI) and with PyPI's nvidia-cuda-cupti; set "
              "CUDA_HOME or LD_LIBRARY_PATH to where it is" +
                  reasons);
}

}  // namespace

struct KernelRecorder::Cupti {
  explicit Cupti(const std::string& library) : handle(load(library)) {
    find(get_version, "cuptiGetVersion");
    find(subscribe_to, "cuptiSubscribe_v2");
    find(register_callbacks, "cuptiActivityRegisterCallbacks");
    find(enable, "cuptiActivityEnable");
    find(disable, "cuptiActivityDisable");
    find(flush, "cuptiActivityFlushAll");
    find(count_dropped, "cuptiActivityGetNumDroppedRecords");
    find(push_tag, "cuptiActivityPushExternalCorrelationId");
    find(pop_tag, "cuptiActivityPopExternalCorrelationId");
    find(result_string, "cuptiGetResultString");
    find(collected().next_record, "cuptiActivityGetNextRecord");
    find(collected().callback_name, "cuptiGetCallbackName");
    find(set_thread_id_type, "cuptiSetThreadIdType");
  }

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr) {
      throw Error(ErrorCode::kPlugin, std::string("the CUPTI that was found has no ") + name +
                                          "; expected that of CUDA " + std::to_string(CUPTI_API_VERSION / 10000));
    }
  }

  // There is one subscriber a process. To be it is what keeps other profilers from taking the records, and tells
  // whether one does: the calls for activity records would not. Given up it might not be had again in this process.
  void subscribe() const {
    if (collected().subscribed == handle) return;
    CUpti_SubscriberHandle subscriber = nullptr;
    std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> other{};
    CUpti_SubscriberParams params{.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
                                  .subscriberName = "Tenon",
                                  .oldSubscriberName = other.data(),
                                  .oldSubscriberSize = other.size()};
    const auto ignore = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
    const CUptiResult result = subscribe_to(&subscriber, ignore, nullptr, &params);
    check(result, "subscribing", other.data());
    collected().subscribed = handle;
  }

  void check(CUptiResult result, const char* doing, const std::string& other = "") const {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    if (result_string(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown";
    std::string message = std::string("CUPTI: ") + doing + ": " + text;
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
      message += "; another profiler or debugger (" +
                 (other.empty() ? "Nsight Systems, Nsight Compute, compute-sanitizer" : other) +
                 ") has this process: run it without";
    }
    throw Error(ErrorCode::kPlugin, message);
  }

  void* handle;
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiSubscribe_v2) subscribe_to;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush;
  decltype(&cuptiActivityGetNumDroppedRecords) count_dropped;
  decltype(&cuptiActivityPushExternalCorrelationId) push_tag;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_tag;
  decltype(&cuptiGetResultString) result_string;
  decltype(&cuptiSetThreadIdType) set_thread_id_type;
  std::vector<CUpti_ActivityKind> enabled;
  bool has_tag = false, calls_wanted = false;
};

KernelRecorder::KernelRecorder(const std::string& library) : cupti_(std::make_unique<Cupti>(library)) {
  cupti_->subscribe();
  cupti_->check(cupti_->register_callbacks(&buffer_wanted, &buffer_full), "registering for activity records");
}

KernelRecorder::~KernelRecorder() {
  try {
    stop();
  } catch (const Error&) {  // nobody wants what was recorded any more
  }
}

std::string KernelRecorder::version() const {
  uint32_t version = 0;
  cupti_->check(cupti_->get_version(&version), "asking for its version");
  return std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) + '.' +
         std::to_string(version % 100);
}

void KernelRecorder::start(GpuRecords records, Wanted wanted) {
  stop();
  std::vector<CUpti_ActivityKind> kinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};
  if (records != GpuRecords::kKernels) kinds.insert(kinds.end(), kTagKinds);
  if (records >= GpuRecords::kNodes) {
    kinds.insert(kinds.end(), kOtherKinds);
    cupti_->check(cupti_->set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), "asking for threads by their ids");
  }
  if (records == GpuRecords::kGraphs) kinds.push_back(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  for (const CUpti_ActivityKind kind : kinds) {
    cupti_->check(cupti_->enable(kind), "recording kernels");
    cupti_->enabled.push_back(kind);
  }
  cupti_->calls_wanted = records >= GpuRecords::kNodes;
  const std::lock_guard lock(collected().mutex);
  collected().wanted = std::move(wanted);
}

void KernelRecorder::tag(uint64_t tag) noexcept {
  if (cupti_->has_tag) cupti_->pop_tag(kTagKind, nullptr);
  cupti_->has_tag = tag != 0 && cupti_->push_tag(kTagKind, tag) == CUPTI_SUCCESS;
}

KernelRecording KernelRecorder::stop() {
  tag(0);
  if (cupti_->enabled.empty()) return {};
  const CUptiResult flushed = cupti_->flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (const CUpti_ActivityKind kind : std::exchange(cupti_->enabled, {})) {
    cupti_->check(cupti_->disable(kind), "ending the recording");
  }
  cupti_->check(flushed, "collecting records");
  size_t dropped = 0;
  cupti_->check(cupti_->count_dropped(nullptr, 0, &dropped), "counting lost records");
  Collected& all = collected();
  const std::lock_guard lock(all.mutex);
  all.wanted = {};
  KernelRecording recording = std::exchange(all.records, {}).finish(cupti_->calls_wanted);
  recording.dropped = dropped;
  return recording;
}

}  // namespace tenon::profiler
