// This plays libcupti: it hands out what a test has put in.
#include "fake_cupti.h"

#include <vector>

namespace {

FakeCupti state;

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE FakeCupti* fake_cupti() {
  return &state;
}

FAKE CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = 130001;
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*, CUpti_SubscriberParams* params) {
  std::strncpy(params->oldSubscriberName, state.other_subscriber, params->oldSubscriberSize - 1);
  return state.subscribing;
}

FAKE CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                CUpti_BuffersCallbackCompleteFunc complete) {
  state.request = request;
  state.complete = complete;
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (state.enabling == CUPTI_SUCCESS) state.enabled.insert(kind);
  return state.enabling;
}

FAKE CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  state.enabled.erase(kind);
  return CUPTI_SUCCESS;
}

// Gives two records a buffer.
FAKE CUptiResult cuptiActivityFlushAll(uint32_t) {
  for (size_t at = 0; at < state.records.size();) {
    uint8_t* buffer = nullptr;
    size_t size = 0, most = 0, used = 0;
    state.request(&buffer, &size, &most);
    for (size_t n = 0; n < 2 && at < state.records.size(); ++n, ++at) {
      std::memcpy(buffer + used, &state.records[at], sizeof(FakeRecord));
      used += sizeof(FakeRecord);
    }
    state.complete(nullptr, 0, buffer, size, used);
  }
  state.records.clear();
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t size, CUpti_Activity** record) {
  uint8_t* next = *record == nullptr ? buffer : reinterpret_cast<uint8_t*>(*record) + sizeof(FakeRecord);
  if (next >= buffer + size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  *dropped = state.dropped;
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t id) {
  state.tags.push_back(id);
  if (state.on_tag) state.on_tag(id);
  if (state.records.size() >= state.deliver_at) cuptiActivityFlushAll(0);
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, uint64_t*) {
  if (state.tags.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  state.tags.pop_back();
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  state.thread_ids = type;
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
  if (id != 1) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = domain == CUPTI_CB_DOMAIN_RUNTIME_API ? "cudaGraphLaunch_v10000" : "cuGraphLaunch";
  return CUPTI_SUCCESS;
}

FAKE CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                                                   : "CUPTI_ERROR_OTHER";
  return CUPTI_SUCCESS;
}
