// These tests record kernels through a library that plays CUPTI.
#include "tenon/profiler/kernel_recorder.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "fake_cupti.h"
#include "tenon/core/error.h"

namespace tenon::profiler {
namespace {

using testing::HasSubstr;

class Recording : public testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen(TENON_FAKE_CUPTI, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    fake_ = reinterpret_cast<FakeCupti* (*)()>(dlsym(library, "fake_cupti"))();
    *fake_ = {};
  }

  void add_kernel(const char* name, uint64_t start, uint64_t end, uint32_t correlation = 1) {
    FakeRecord record{};
    record.kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.kernel.name = name;
    record.kernel.start = start;
    record.kernel.end = end;
    record.kernel.correlationId = correlation;
    record.kernel.graphNodeId = 70 + correlation;
    record.kernel.deviceId = 2;
    record.kernel.streamId = 13;
    record.kernel.contextId = 1;
    record.kernel.graphId = 9;
    record.kernel.gridX = 3;
    record.kernel.blockX = 128;
    record.kernel.gridY = record.kernel.gridZ = record.kernel.blockY = record.kernel.blockZ = 1;
    record.kernel.registersPerThread = 40;
    record.kernel.staticSharedMemory = 100;
    record.kernel.dynamicSharedMemory = 24;
    fake_->records.push_back(record);
  }
  void add_tag(uint32_t correlation, uint64_t tag,
               CUpti_ExternalCorrelationKind kind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) {
    FakeRecord record{};
    record.tag.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.tag.externalKind = kind;
    record.tag.externalId = tag;
    record.tag.correlationId = correlation;
    fake_->records.push_back(record);
  }
  std::string failure_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  FakeCupti* fake_ = nullptr;
};

TEST_F(Recording, GivesTheKernelsOnce) {
  KernelRecorder recorder(TENON_FAKE_CUPTI);
  EXPECT_EQ(recorder.version(), "13.0.1");
  EXPECT_TRUE(fake_->enabled.empty());
  recorder.start();
  EXPECT_EQ(fake_->enabled, std::set{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
  add_kernel("a", 10, 20);
  add_kernel("b", 15, 30);
  add_kernel("c", 0, 0);
  fake_->dropped = 5;
  const KernelRecording recording = recorder.stop();
  EXPECT_TRUE(fake_->enabled.empty());
  ASSERT_EQ(recording.kernels.size(), 2u);
  const KernelRecord& b = recording.kernels[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.start, 15u);
  EXPECT_EQ(b.end, 30u);
  EXPECT_EQ(b.device, 2u);
  EXPECT_EQ(b.stream, 13u);
  EXPECT_EQ(b.graph_node, 71u);
  EXPECT_EQ(b.graph, 9u);
  EXPECT_EQ(b.grid, (std::array<uint32_t, 3>{3, 1, 1}));
  EXPECT_EQ(b.block, (std::array<uint32_t, 3>{128, 1, 1}));
  EXPECT_EQ(b.registers, 40u);
  EXPECT_EQ(b.shared_bytes, 124u);
  EXPECT_EQ(recording.untimed, 1u);
  EXPECT_EQ(recording.dropped, 5u);
  recorder.start();
  EXPECT_TRUE(recorder.stop().kernels.empty());
}

TEST_F(Recording, JoinsKernelsToTheirTags) {
  KernelRecorder recorder(TENON_FAKE_CUPTI);
  recorder.start(GpuRecords::kTagged);
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME}) {
    EXPECT_EQ(fake_->enabled.count(kind), 1u);
  }
  recorder.tag(7);
  EXPECT_EQ(fake_->tags, std::vector<uint64_t>{7});
  recorder.tag(8);
  EXPECT_EQ(fake_->tags, std::vector<uint64_t>{8});
  add_kernel("late", 20, 30, 5);
  add_kernel("untagged", 30, 40, 6);
  add_tag(5, 99, CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN);
  add_tag(5, 8);
  const KernelRecording recording = recorder.stop();
  EXPECT_TRUE(fake_->tags.empty());
  ASSERT_EQ(recording.kernels.size(), 2u);
  EXPECT_EQ(recording.kernels[0].tag, 8u);
  EXPECT_EQ(recording.kernels[1].tag, 0u);
}

TEST_F(Recording, GivesWhatElseHappens) {
  KernelRecorder recorder(TENON_FAKE_CUPTI);
  recorder.start(GpuRecords::kNodes);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
        CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_OVERHEAD}) {
    EXPECT_EQ(fake_->enabled.count(kind), 1u) << kind;
  }
  EXPECT_EQ(fake_->enabled.count(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), 0u);  // it would take the place of kernels
  EXPECT_EQ(fake_->thread_ids, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  FakeRecord wait{};
  wait.wait.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  wait.wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  wait.wait.start = 40;
  wait.wait.end = 60;
  wait.wait.contextId = 1;
  wait.wait.streamId = 13;
  FakeRecord copy{};
  copy.copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  copy.copy.start = 30;
  copy.copy.end = 32;
  copy.copy.deviceId = 2;
  copy.copy.streamId = 14;
  copy.copy.correlationId = 8;
  copy.copy.bytes = 4096;
  FakeRecord fill{};
  fill.fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.fill.start = 33;
  fill.fill.end = 34;
  fill.fill.bytes = 64;
  FakeRecord call{};
  call.call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.call.cbid = 1;
  call.call.start = 5;
  call.call.end = 9;
  call.call.threadId = 77;
  call.call.correlationId = 1;
  FakeRecord inner = call;
  inner.call.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  inner.call.start = 6;
  inner.call.end = 8;
  FakeRecord alone = inner;
  alone.call.start = 10;
  alone.call.end = 11;
  alone.call.cbid = 2;
  FakeRecord overhead{};
  overhead.overhead.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  overhead.overhead.overheadKind = CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING;
  overhead.overhead.start = 1;
  overhead.overhead.end = 4;
  FakeRecord timeless = overhead;
  timeless.overhead.start = timeless.overhead.end = 0;
  for (const FakeRecord& record : {wait, copy, inner, fill, alone, call, overhead, timeless}) {
    fake_->records.push_back(record);
  }
  add_kernel("a", 10, 20);
  add_tag(8, 5);
  const KernelRecording recording = recorder.stop();
  std::map<std::string, GpuActivity> others;
  for (const GpuActivity& other : recording.others) others[other.name] = other;
  ASSERT_EQ(recording.others.size(), 6u);  // without the driver's call within the runtime's
  EXPECT_EQ(others.at("Memcpy DtoH").bytes, 4096u);
  EXPECT_EQ(others.at("Memcpy DtoH").stream, 14u);
  EXPECT_EQ(others.at("Memcpy DtoH").tag, 5u);
  EXPECT_EQ(others.at("Memset").kind, GpuActivity::Kind::kFill);
  EXPECT_EQ(others.at("Stream Sync").device, 2u);  // by its context
  EXPECT_EQ(others.at("Stream Sync").stream, 13u);
  EXPECT_EQ(others.at("cudaGraphLaunch").thread, 77u);
  EXPECT_EQ(others.at("cudaGraphLaunch").correlation, 1u);
  EXPECT_EQ(others.at("CUDA call").start, 10u);
  EXPECT_EQ(others.at("loading a kernel").kind, GpuActivity::Kind::kOverhead);
}

TEST_F(Recording, GivesGraphsAsOne) {
  KernelRecorder recorder(TENON_FAKE_CUPTI);
  recorder.start(GpuRecords::kGraphs);
  EXPECT_EQ(fake_->enabled.count(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), 1u);
  FakeRecord graph{};
  graph.graph.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  graph.graph.correlationId = 4;
  graph.graph.graphId = 9;
  graph.graph.start = 10;
  graph.graph.end = 90;
  fake_->records.push_back(graph);
  add_tag(4, 6);
  const KernelRecording recording = recorder.stop();
  ASSERT_EQ(recording.others.size(), 1u);
  EXPECT_EQ(recording.others[0].kind, GpuActivity::Kind::kGraph);
  EXPECT_EQ(recording.others[0].graph, 9u);
  EXPECT_EQ(recording.others[0].tag, 6u);
}

// A run has two kernels, one of which comes after the run was forgotten.
TEST_F(Recording, ForgetsWhatIsNotWanted) {
  constexpr uint32_t kRuns = 20000, kWritten = 500, kKept = 10;
  uint32_t run = 1;
  KernelRecorder recorder(TENON_FAKE_CUPTI);
  recorder.start(GpuRecords::kNodes, [&](uint64_t tag) { return tag + kKept > run || tag == kWritten; });
  fake_->deliver_at = 1000;
  for (; run <= kRuns; ++run) {
    add_tag(run, run);
    add_kernel("soon", run, run + 1, run);
    if (run > 3000) add_kernel("late", run, run + 1, run - 3000);
    recorder.tag(run);
  }
  --run;
  const KernelRecording recording = recorder.stop();
  EXPECT_LT(recording.kernels.size(), 10000u);
  const auto count = [&](uint64_t tag) { return std::ranges::count(recording.kernels, tag, &KernelRecord::tag); };
  EXPECT_EQ(count(kWritten), 2);
  for (uint32_t kept = kRuns - kKept + 1; kept <= kRuns; ++kept) EXPECT_EQ(count(kept), 1) << kept;
}

TEST_F(Recording, SaysThatAnotherProfilerIsThere) {
  // This process may have subscribed to the first one already.
  void* library = dlopen(TENON_SECOND_FAKE_CUPTI, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* held = reinterpret_cast<FakeCupti* (*)()>(dlsym(library, "fake_cupti"))();
  held->subscribing = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_THAT(failure_of([] { KernelRecorder recorder(TENON_SECOND_FAKE_CUPTI); }),
              HasSubstr("another profiler or debugger (Nsight Systems"));
  held->other_subscriber = "CUPTI for Them";
  EXPECT_THAT(failure_of([] { KernelRecorder recorder(TENON_SECOND_FAKE_CUPTI); }),
              HasSubstr("another profiler or debugger (CUPTI for Them) has this process: run it without"));
  KernelRecorder recorder(TENON_FAKE_CUPTI);
  fake_->enabling = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_THAT(failure_of([&] { recorder.start(); }), HasSubstr("run it without"));
}

TEST_F(Recording, EndsWithItsRecorder) {
  {
    KernelRecorder recorder(TENON_FAKE_CUPTI);
    recorder.start(GpuRecords::kTagged);
    recorder.tag(3);
  }
  EXPECT_TRUE(fake_->enabled.empty());
  EXPECT_TRUE(fake_->tags.empty());
}

TEST_F(Recording, NamesWhatIsMissing) {
  const std::string none = failure_of([] { KernelRecorder recorder("/none/libcupti.so"); });
  EXPECT_THAT(none, HasSubstr("needs CUPTI"));
  EXPECT_THAT(none, HasSubstr("/none/libcupti.so"));
  EXPECT_THAT(failure_of([] { KernelRecorder recorder("libdl.so.2"); }), HasSubstr("has no cupti"));
}

}  // namespace
}  // namespace tenon::profiler
