// Each record becomes a KernelRecord or a GpuActivity, with a name to show. Of calls that make other calls only the
// outermost is kept. In a recording without end forget() drops the records of tags that nobody wants any more.
#include "cupti_records.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace tenon::profiler {
namespace {

using Kind = GpuActivity::Kind;

template <class Record>
const Record& as(const CUpti_Activity& record) {
  return reinterpret_cast<const Record&>(record);
}

uint32_t size_of(int32_t value) {
  return static_cast<uint32_t>(std::max(value, 0));
}

KernelRecord kernel_of(const CUpti_ActivityKernel10& k) {
  return {.name = k.name != nullptr ? k.name : "",
          .start = k.start,
          .end = k.end,
          .device = k.deviceId,
          .stream = k.streamId,
          .correlation = k.correlationId,
          .graph_node = k.graphNodeId,
          .tag = 0,
          .graph = k.graphNodeId != 0 ? k.graphId : 0,
          .grid = {size_of(k.gridX), size_of(k.gridY), size_of(k.gridZ)},
          .block = {size_of(k.blockX), size_of(k.blockY), size_of(k.blockZ)},
          .registers = k.registersPerThread,
          .shared_bytes = size_of(k.staticSharedMemory) + size_of(k.dynamicSharedMemory)};
}

std::string copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return "Memcpy HtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

// Copies and fills.
template <class Record>
GpuActivity transfer_of(const Record& r, Kind kind, std::string name) {
  return {.kind = kind,
          .name = std::move(name),
          .start = r.start,
          .end = r.end,
          .device = r.deviceId,
          .stream = r.streamId,
          .correlation = r.correlationId,
          .graph = r.graphNodeId != 0 ? r.graphId : 0,
          .graph_node = r.graphNodeId,
          .bytes = r.bytes};
}

// "cudaLaunchKernelExC_v11060" is cudaLaunchKernelExC.
std::string call_name(const CUpti_ActivityAPI& call, CuptiRecords::CallbackName callback_name) {
  const CUpti_CallbackDomain domain =
      call.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
  const char* text = nullptr;
  if (callback_name(domain, call.cbid, &text) != CUPTI_SUCCESS || text == nullptr) return "CUDA call";
  std::string name = text;
  const size_t version = name.rfind("_v");
  if (version != std::string::npos && name.find_first_not_of("0123456789", version + 2) == std::string::npos) {
    name.resize(version);
  }
  return name;
}

std::string wait_name(CUpti_ActivitySynchronizationType type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return "Event Sync";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      return "Stream Wait Event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return "Stream Sync";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return "Context Sync";
    default:
      return "Sync";
  }
}

std::string overhead_name(CUpti_ActivityOverheadKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER:
      return "compiling";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH:
      return "CUPTI: emptying a buffer";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION:
      return "CUPTI: instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE:
      return "CUPTI: resources";
    case CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING:
      return "loading a module";
    case CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING:
      return "loading a kernel";
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL:
      return "the launch queue was full";
    case CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST:
      return "CUPTI: asking for a buffer";
    default:
      return "overhead";
  }
}

// A runtime's call makes the driver's calls within it.
void keep_outermost_calls(std::vector<GpuActivity>& others) {
  const auto calls =
      std::partition(others.begin(), others.end(), [](const GpuActivity& a) { return a.kind != Kind::kCall; });
  std::sort(calls, others.end(), [](const GpuActivity& a, const GpuActivity& b) {
    return std::tuple(a.thread, a.start, b.end) < std::tuple(b.thread, b.start, a.end);
  });
  uint64_t end = 0;
  uint32_t thread = 0;
  const auto nested = [&](const GpuActivity& call) {
    if (call.thread == thread && call.end <= end) return true;
    thread = call.thread;
    end = call.end;
    return false;
  };
  auto kept = calls;
  for (auto call = calls; call != others.end(); ++call) {
    if (nested(*call)) continue;
    if (kept != call) *kept = std::move(*call);
    ++kept;
  }
  others.erase(kept, others.end());
}

GpuActivity graph_of(const CUpti_ActivityGraphTrace2& graph) {
  return {.kind = Kind::kGraph,
          .name = "graph " + std::to_string(graph.graphId),
          .start = graph.start,
          .end = graph.end,
          .device = graph.deviceId,
          .stream = graph.streamId,
          .correlation = graph.correlationId,
          .graph = graph.graphId};
}

GpuActivity call_of(const CUpti_ActivityAPI& call, CuptiRecords::CallbackName callback_name) {
  return {.kind = Kind::kCall,
          .name = call_name(call, callback_name),
          .start = call.start,
          .end = call.end,
          .thread = call.threadId,
          .correlation = call.correlationId};
}

GpuActivity wait_of(const CUpti_ActivitySynchronization2& wait) {
  return {.kind = Kind::kWait,
          .name = wait_name(wait.type),
          .start = wait.start,
          .end = wait.end,
          .device = wait.contextId,
          .stream = wait.streamId,
          .correlation = wait.correlationId};
}

GpuActivity overhead_of(const CUpti_ActivityOverhead3& overhead) {
  return {.kind = Kind::kOverhead,
          .name = overhead_name(overhead.overheadKind),
          .start = overhead.start,
          .end = overhead.end,
          .correlation = overhead.correlationId};
}

}  // namespace

void CuptiRecords::add(const CUpti_Activity& record, CallbackName callback_name) {
  GpuActivity other;
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = as<CUpti_ActivityKernel10>(record);
      device_of_context_[kernel.contextId] = kernel.deviceId;
      if (kernel.end == 0) {
        ++recording_.untimed;
      } else {
        recording_.kernels.push_back(kernel_of(kernel));
      }
      return;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& tag = as<CUpti_ActivityExternalCorrelation>(record);
      if (tag.externalKind == kTagKind) tags_[tag.correlationId] = tag.externalId;
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = as<CUpti_ActivityMemcpy6>(record);
      other = transfer_of(copy, Kind::kCopy, copy_name(copy.copyKind));
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET:
      other = transfer_of(as<CUpti_ActivityMemset4>(record), Kind::kFill, "Memset");
      break;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
      const auto& graph = as<CUpti_ActivityGraphTrace2>(record);
      device_of_context_[graph.contextId] = graph.deviceId;
      other = graph_of(graph);
      break;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      other = call_of(as<CUpti_ActivityAPI>(record), callback_name);
      break;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      other = wait_of(as<CUpti_ActivitySynchronization2>(record));
      break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      other = overhead_of(as<CUpti_ActivityOverhead3>(record));
      break;
    default:
      return;
  }
  if (other.end != 0) recording_.others.push_back(std::move(other));
}

void CuptiRecords::append(CuptiRecords&& more) {
  KernelRecording& theirs = more.recording_;
  recording_.untimed += theirs.untimed;
  std::ranges::move(theirs.kernels, std::back_inserter(recording_.kernels));
  std::ranges::move(theirs.others, std::back_inserter(recording_.others));
  for (const auto& [correlation, tag] : more.tags_) tags_[correlation] = tag;
  for (const auto& [context, device] : more.device_of_context_) device_of_context_[context] = device;
}

// A call's number rises from call to call, and what bears no tag is what came before its tag, or long after.
void CuptiRecords::forget(const KernelRecorder::Wanted& wanted) {
  constexpr size_t kFew = 4096;
  const auto held = [this] { return recording_.kernels.size() + recording_.others.size() + tags_.size(); };
  if (held() < std::max(kFew, worth_forgetting_)) return;
  uint32_t newest = 0;
  std::erase_if(tags_, [&](const auto& tag) {
    const bool unwanted = !wanted(tag.second);
    if (unwanted) newest = std::max(newest, tag.first);
    return unwanted;
  });
  const auto unwanted = [&](const auto& record) {
    return record.correlation <= newest && !tags_.contains(record.correlation);
  };
  std::erase_if(recording_.kernels, unwanted);
  std::erase_if(recording_.others, unwanted);
  worth_forgetting_ = 2 * held();
}

KernelRecording CuptiRecords::finish(bool calls) && {
  for (GpuActivity& wait : recording_.others) {
    if (wait.kind != Kind::kWait) continue;
    const auto device = device_of_context_.find(wait.device);
    wait.device = device != device_of_context_.end() ? device->second : 0;
  }
  const auto join = [&](auto& record) {
    const auto tag = tags_.find(record.correlation);
    if (tag != tags_.end()) record.tag = tag->second;
  };
  for (KernelRecord& kernel : recording_.kernels) join(kernel);
  for (GpuActivity& other : recording_.others) join(other);
  if (calls) {
    keep_outermost_calls(recording_.others);
  } else {
    std::erase_if(recording_.others, [](const GpuActivity& a) { return a.kind == Kind::kCall; });
  }
  return std::move(recording_);
}

}  // namespace tenon::profiler
