// A test and the library that plays libcupti share this.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

union FakeRecord {
  CUpti_ActivityKernel10 kernel;
  CUpti_ActivityExternalCorrelation tag;
  CUpti_ActivityMemcpy6 copy;
  CUpti_ActivityMemset4 fill;
  CUpti_ActivityGraphTrace2 graph;
  CUpti_ActivityAPI call;
  CUpti_ActivitySynchronization2 wait;
  CUpti_ActivityOverhead3 overhead;
};

struct FakeCupti {
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  CUptiResult subscribing = CUPTI_SUCCESS, enabling = CUPTI_SUCCESS;
  const char* other_subscriber = "";
  std::vector<FakeRecord> records;  // handed out by the next flush
  size_t dropped = 0;
  std::set<CUpti_ActivityKind> enabled;
  std::vector<uint64_t> tags;  // pushed and not popped
  // This is what each tag that is pushed adds to the records, and, from `deliver_at` records on, what is handed out at
  // once.
  std::function<void(uint64_t tag)> on_tag;
  size_t deliver_at = SIZE_MAX;
  CUpti_ActivityThreadIdType thread_ids = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
};
