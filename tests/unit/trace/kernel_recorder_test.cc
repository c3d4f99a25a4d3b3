#include "tenon/profiler/kernel_recorder.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    record.kernel.start = start, record.kernel.end = end;
    record.kernel.correlationId = correlation, record.kernel.graphNodeId = 70 + correlation;
    record.kernel.deviceId = 2, record.kernel.streamId = 13;
    fake_->records.push_back(record);
  }
  void add_tag(uint32_t correlation, uint64_t tag,
               CUpti_ExternalCorrelationKind kind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) {
    FakeRecord record{};
    record.tag.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.tag.externalKind = kind;
    record.tag.externalId = tag, record.tag.correlationId = correlation;
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
  EXPECT_TRUE(fake_->enabled.empty());
  recorder.start();
  EXPECT_EQ(fake_->enabled, std::set{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
  add_kernel("a", 10, 20), add_kernel("b", 15, 30), add_kernel("c", 0, 0);
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
  EXPECT_EQ(recording.untimed, 1u);
  EXPECT_EQ(recording.dropped, 5u);
  recorder.start();
  EXPECT_TRUE(recorder.stop().kernels.empty());
}

TEST_F(Recording, JoinsKernelsToTheirTags) {
  KernelRecorder recorder(TENON_FAKE_CUPTI);
  recorder.start(true);
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME}) {
    EXPECT_EQ(fake_->enabled.count(kind), 1u);
  }
  recorder.tag(7);
  EXPECT_EQ(fake_->tags, std::vector<uint64_t>{7});
  recorder.tag(8);
  EXPECT_EQ(fake_->tags, std::vector<uint64_t>{8});
  add_kernel("late", 20, 30, 5), add_kernel("untagged", 30, 40, 6);
  add_tag(5, 99, CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN), add_tag(5, 8);
  const KernelRecording recording = recorder.stop();
  EXPECT_TRUE(fake_->tags.empty());
  ASSERT_EQ(recording.kernels.size(), 2u);
  EXPECT_EQ(recording.kernels[0].tag, 8u);
  EXPECT_EQ(recording.kernels[1].tag, 0u);
}

TEST_F(Recording, SaysThatAnotherProfilerIsThere) {
  fake_->registering = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_THAT(failure_of([] { KernelRecorder recorder(TENON_FAKE_CUPTI); }), HasSubstr("another profiler"));
  fake_->registering = CUPTI_SUCCESS;
  KernelRecorder recorder(TENON_FAKE_CUPTI);
  fake_->enabling = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_THAT(failure_of([&] { recorder.start(); }), HasSubstr("run it without"));
}

TEST_F(Recording, EndsWithItsRecorder) {
  {
    KernelRecorder recorder(TENON_FAKE_CUPTI);
    recorder.start(true);
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
