// These tests look at the stand-in host itself: what it runs, and what it sees of an op that is wrong.
#include "support/op_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum Fault : int64_t { kNone, kWritesInput, kWritesPastEnd, kWritesGap, kScratchPastEnd, kFails, kReadsTemp };
struct DoubleArgs {
  int64_t columns, fault;
};

// Computes y = 2 x, one chunk a row.
void twice(const DoubleArgs& a, const sdk::Part& part) {
  auto* x = part.ptr<float>(0);
  auto* y = part.ptr<float>(1);
  if (a.fault == kFails) throw sdk::Failed("on purpose");
  for (uint32_t r = part.begin(); r < part.end(); ++r) {
    for (int64_t c = 0; c < a.columns; ++c) y[r * 4 + c] = 2 * x[r * a.columns + c];
    if (a.fault == kWritesInput) x[r * a.columns] += 1;
    if (a.fault == kWritesPastEnd) reinterpret_cast<volatile float*>(y)[2 * 4 + 3] = 0;
    if (a.fault == kWritesGap) y[3] = 0;
    if (a.fault == kScratchPastEnd) part.thread_scratch<volatile float>()[16] = 0;
  }
}

class OpRunnerTest : public ::testing::Test {
 protected:
  OpRunnerTest() : host_(OpRunner::bounds({.rows = 3})) {
    x_ = host_.input(TENON_F32, {3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
    tenon_tensor t = sdk::tensor(TENON_F32, {3, 2});
    t.stride[0] = 16;  // there is a gap of two floats between the rows
    y_ = host_.strided_output(t);
  }
  std::string run(Fault fault) {
    sdk::Recorder recorder(host_.recorder());
    const tenon_tid from = fault == kReadsTemp ? recorder.temp(sdk::tensor(TENON_F32, {3, 2})) : x_;
    const tenon_operand operands[] = {{from, TENON_READ}, {y_, TENON_WRITE}};
    recorder.emit<twice>({.name = "twice", .operands = operands, .chunks = {3}, .thread_scratch_bytes = 64},
                         DoubleArgs{2, fault});
    return host_.run(1);
  }

  OpRunner host_;
  tenon_tid x_, y_;
};

TEST_F(OpRunnerTest, RunsOps) {
  EXPECT_EQ(run(kNone), "");
  EXPECT_THAT(host_.f32(y_), ElementsAre(2, 4, 6, 8, 10, 12));
}

TEST_F(OpRunnerTest, ReadsSlices) {
  tenon_tensor column = sdk::tensor(TENON_F32, {3});
  column.stride[0] = 16;
  const tenon_tid second = host_.slice(y_, column, 4);
  EXPECT_EQ(run(kNone), "");
  EXPECT_THAT(host_.f32(second), ElementsAre(4, 8, 12));
}

TEST_F(OpRunnerTest, NamesTheFault) {
  EXPECT_THAT(run(kWritesInput), HasSubstr("twice: wrote byte"));
}
TEST_F(OpRunnerTest, SeesGapsBetweenRows) {
  EXPECT_THAT(run(kWritesGap), HasSubstr("wrote byte 12 of tensor"));
}
TEST_F(OpRunnerTest, SeesFailures) {
  EXPECT_EQ(run(kFails), "twice: failed: on purpose");
}
TEST_F(OpRunnerTest, SeesUnwrittenTemporaries) {
  EXPECT_THAT(run(kReadsTemp), HasSubstr("which nothing has written"));
}

#if !defined(__SANITIZE_ADDRESS__)  // there the sanitizer stops the program
TEST_F(OpRunnerTest, SeesWritesPastTheEnd) {
  EXPECT_THAT(run(kWritesPastEnd), HasSubstr("past the end of tensor"));
}
TEST_F(OpRunnerTest, SeesScratchOverruns) {
  EXPECT_THAT(run(kScratchPastEnd), HasSubstr("past the end of thread scratch"));
}
#endif

TEST_F(OpRunnerTest, RefusesMalformedOps) {
  sdk::Recorder recorder(host_.recorder());
  const tenon_operand operands[] = {{99, TENON_READ}};
  EXPECT_THROW(recorder.emit<twice>({.name = "bad", .operands = operands, .chunks = {1}}, DoubleArgs{2, kNone}),
               sdk::Failed);
  EXPECT_THAT(host_.run(1), HasSubstr("an operand that is no tensor"));
}

}  // namespace
}  // namespace tenon::test
