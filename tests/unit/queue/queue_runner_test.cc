// On a device whose kernels fail when they are told to, this tests whom the runner blames.
#include "../../../core/src/queue/queue_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// This queue behaves as CUDA's do: a kernel that fails is heard of in the next
// call of whatever kind, and in all after it.
struct Queue {
  struct Graph {
    Queue& queue;
    std::vector<uint32_t> ops;
  };
  bool broken = false, capturing = false;
  uint32_t failing_kernel = 0, failing_launch = 0, failing_in_capture = 0;  // these are numbers of ops, from 1
  std::vector<uint32_t> captured, ran;
  std::list<Graph> graphs;
  size_t waited_for = 0;  // it has waited for so many of those that ran
  uint32_t captures = 0, releases = 0;

  tenon_status answer(tenon_reason* why) const {
    if (broken) sdk::fill_reason(why, "an illegal memory access was encountered");
    return broken ? TENON_ERROR : TENON_OK;
  }
  void run(uint32_t op) {
    broken = broken || op == failing_kernel;
    ran.push_back(op);
  }
};

struct Args {
  uint64_t number;
};

tenon_status launch_op(void*, const void* args, const tenon_launch* l, tenon_reason* why) {
  auto& queue = *static_cast<Queue*>(l->queue);
  const auto number = static_cast<uint32_t>(static_cast<const Args*>(args)->number);
  if (number == queue.failing_launch || (queue.capturing && number == queue.failing_in_capture)) {
    sdk::fill_reason(why, "invalid configuration argument");
    return TENON_ERROR;
  }
  if (queue.capturing) {
    queue.captured.push_back(number);
    return TENON_OK;
  }
  queue.run(number);
  return number == 1 ? TENON_OK : queue.answer(why);  // the kernel itself is not done yet when its launch returns
}

Queue& of(void* queue) {
  return *static_cast<Queue*>(queue);
}

tenon_device make_device() {
  auto d = sdk::abi_struct<tenon_device>();
  d.kind = "fake";
  d.wait = [](void*, void* q, tenon_reason* why) {
    of(q).waited_for = of(q).ran.size();
    return of(q).answer(why);
  };
  d.capture_begin = [](void*, void* q, tenon_reason*) {
    of(q).capturing = true;
    of(q).captured.clear();
    return tenon_status{TENON_OK};
  };
  d.capture_end = [](void*, void* q, void** graph, tenon_reason* why) {
    of(q).capturing = false;
    ++of(q).captures;
    *graph = &of(q).graphs.emplace_back(of(q), of(q).captured);
    if (of(q).failing_in_capture != 0) sdk::fill_reason(why, "the capture was invalidated");
    return tenon_status{of(q).failing_in_capture != 0 ? TENON_ERROR : TENON_OK};
  };
  d.replay = [](void*, void* graph, void* q, tenon_reason* why) {
    const tenon_status status = of(q).answer(why);
    for (const uint32_t op : static_cast<Queue::Graph*>(graph)->ops) of(q).run(op);
    return status;
  };
  d.graph_release = [](void*, void* graph) { ++static_cast<Queue::Graph*>(graph)->queue.releases; };
  return d;
}

class QueueRunnerTest : public testing::Test {
 protected:
  QueueRunnerTest() : device_(make_device()) {
    ProgramRecording recording(bounds(), storages_, {});
    record(recording, 1, "layers.0.attention.qkv", "quantization.mine", "product");
    record(recording, 2, "layers.0.attention", "attention.yours", "decode");
    record(recording, 3, "sampler", "sampler.greedy", "largest");
    program_ = recording.finish({});
    program_->bind_addresses(storages_, {}, &queue_);
  }
  static tenon_bounds bounds() {
    auto bounds = sdk::abi_struct<tenon_bounds>();
    bounds.rows = bounds.seqs = bounds.rows_per_seq = bounds.out_rows = bounds.slots = 1;
    bounds.kv_len = 16;
    return bounds;
  }
  // Returns a program of one op.
  std::unique_ptr<Program> program_of(uint64_t number, const char* component) {
    ProgramRecording recording(bounds(), storages_, {});
    record(recording, number, "step", component, "op");
    std::unique_ptr<Program> program = recording.finish({});
    program->bind_addresses(storages_, {}, &queue_);
    return program;
  }
  void record(ProgramRecording& recording, uint64_t number, const char* path, const char* component, const char* name) {
    recording.scope(path, component, 0);
    const Args args{number};
    auto op = sdk::abi_struct<tenon_op>();
    op.name = name;
    op.args = &args;
    op.args_bytes = sizeof(args);
    op.launch = &launch_op;
    const tenon_recorder* raw = recording.recorder();
    ASSERT_EQ(raw->emit(raw->ctx, &op), TENON_OK) << recording.error();
  }
  // Returns the first error of some steps.
  std::string error(Execution execution) {
    QueueRunner runner(device_, &queue_, execution, nullptr);
    runner.prepare(*program_);
    for (int step = 0; step < 3; ++step) {
      Status status = runner.run(*program_, {});
      if (status.ok()) status = runner.finish();
      if (!status.ok()) return status.message();
    }
    return "";
  }

  static constexpr Execution kAll[] = {Execution::kPerOp, Execution::kRecorded, Execution::kGraph, Execution::kAuto};
  tenon_device device_;
  Queue queue_;
  StorageTable storages_;
  std::unique_ptr<Program> program_;
};

TEST_F(QueueRunnerTest, RunsInEveryMode) {
  for (const Execution execution : kAll) EXPECT_EQ(error(execution), "");
}

TEST_F(QueueRunnerTest, EachOpIsDoneBeforeItIsToldOf) {
  for (const Execution execution : kAll) {
    QueueRunner runner(device_, &queue_, execution, nullptr);
    runner.prepare(*program_);
    queue_.ran.clear();
    std::vector<size_t> told;
    const auto done = [&](size_t op) {
      told.push_back(op);
      EXPECT_EQ(queue_.waited_for, told.size());
    };
    EXPECT_TRUE(runner.run_each(*program_, 2, done).ok());
    EXPECT_THAT(told, ElementsAre(0, 1));
    EXPECT_THAT(queue_.ran, ElementsAre(1, 2));
  }
  queue_.failing_kernel = 2;
  QueueRunner runner(device_, &queue_, Execution::kAuto, nullptr);
  EXPECT_THAT(runner.run_each(*program_, 3, [](size_t op) { EXPECT_EQ(op, 0u); }).message(),
              HasSubstr("attention.yours failed in decode: an illegal memory access"));
}

TEST_F(QueueRunnerTest, ALaunchThatFailsNamesItsOpAndItsComponent) {
  queue_.failing_launch = 2;
  for (const Execution execution : kAll) {
    EXPECT_EQ(error(execution), "layers.0.attention: attention.yours failed in decode: invalid configuration argument");
  }
}

TEST_F(QueueRunnerTest, AnOpThatFailsOnlyInACaptureIsNamedToo) {
  queue_.failing_in_capture = 3;
  EXPECT_EQ(error(Execution::kAuto), "sampler: sampler.greedy failed in largest: invalid configuration argument");
  EXPECT_FALSE(queue_.capturing);
}

TEST_F(QueueRunnerTest, AKernelThatFailsIsNamedOneByOne) {
  queue_.failing_kernel = 1;
  EXPECT_EQ(error(Execution::kPerOp),
            "layers.0.attention.qkv: quantization.mine failed in product: a kernel failed on device.fake: an illegal "
            "memory access was encountered");
}

// It is heard of in the launch after it, whose component has nothing to do with it.
TEST_F(QueueRunnerTest, AKernelThatFailsIsNotBlamedOnWhoeverHearsOfIt) {
  queue_.failing_kernel = 1;
  const std::string all =
      "a kernel failed on device.fake: an illegal memory access was encountered; it is of attention.yours, "
      "quantization.mine, sampler.greedy (pipeline.execution = \"per_op\" tells which, and which op)";
  for (const Execution execution : {Execution::kRecorded, Execution::kAuto}) {
    queue_.broken = false;
    EXPECT_EQ(error(execution),
              all +
                  "; noticed when layers.0.attention: attention.yours failed in decode: an illegal memory access was "
                  "encountered");
  }
}

TEST_F(QueueRunnerTest, AKernelThatFailsInAGraphLeavesAllOfItsComponentsAsSuspects) {
  QueueRunner runner(device_, &queue_, Execution::kAuto, nullptr);
  runner.prepare(*program_);
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(runner.run(*program_, {}).ok());
    ASSERT_TRUE(runner.finish().ok());
  }
  queue_.failing_kernel = 3;
  ASSERT_TRUE(runner.run(*program_, {}).ok());
  const std::string waiting = runner.finish().message(), next = runner.run(*program_, {}).message();
  EXPECT_THAT(waiting, AllOf(HasSubstr("it is of attention.yours, quantization.mine, sampler.greedy"),
                             Not(HasSubstr("noticed"))));
  EXPECT_THAT(next, AllOf(HasSubstr("a kernel failed on device.fake"), HasSubstr("noticed when device.fake: replay")));
}

// A step may be launched while the one before it runs, after the op that takes its tokens.
TEST_F(QueueRunnerTest, AKernelThatFailsTwoProgramsEarlierLeavesItsComponentAsASuspect) {
  const auto first = program_of(11, "draft.first"), takes = program_of(12, "device.takes"),
             second = program_of(13, "sampler.second");
  QueueRunner runner(device_, &queue_, Execution::kRecorded, nullptr);
  for (const Program* program : {first.get(), takes.get(), second.get()}) runner.prepare(*program);
  for (const Program* program : {first.get(), takes.get(), second.get()}) {
    ASSERT_TRUE(runner.run(*program, {}).ok());
  }
  queue_.broken = true;
  EXPECT_THAT(runner.finish().message(), HasSubstr("it is of device.takes, draft.first, sampler.second"));
}

TEST_F(QueueRunnerTest, ARunOneByOneHasTheNextOneCapturedAnew) {
  QueueRunner runner(device_, &queue_, Execution::kAuto, nullptr);
  runner.prepare(*program_);
  bool one_by_one = false;
  uint32_t seen = 0;
  ASSERT_TRUE(runner
                  .watch({.begin = [&](const Program&, const StepLoad&) { return std::exchange(one_by_one, false); },
                          .op = [&](const Program&, size_t) { ++seen; }})
                  .ok());
  const auto run = [&] { ASSERT_TRUE(runner.run(*program_, {}).ok()); };
  run();
  run();
  run();
  EXPECT_EQ(queue_.captures, 1u);
  EXPECT_EQ(queue_.releases, 0u);
  seen = 0;
  one_by_one = true;
  run();
  EXPECT_EQ(seen, 4u);
  EXPECT_EQ(queue_.releases, 1u);
  run();
  run();
  EXPECT_EQ(queue_.captures, 2u);
}

TEST_F(QueueRunnerTest, TwoPiecesAreBothGraphsOrNeither) {
  constexpr uint32_t kOther = 100;
  QueueRunner runner(device_, &queue_, Execution::kAuto, nullptr);
  runner.prepare(*program_);
  bool one_by_one = false;
  std::vector<size_t> seen;
  const OpWatch watch{.begin = [&](const Program&, const StepLoad&) { return std::exchange(one_by_one, false); },
                      .op = [&](const Program&, size_t op) { seen.push_back(op); }};
  ASSERT_TRUE(runner.watch(watch).ok());
  const auto run = [&](const std::function<void()>& between = {}) {
    queue_.ran.clear();
    seen.clear();
    EXPECT_TRUE(runner.run_first(*program_, {}, 2).ok());
    queue_.run(kOther);
    if (between) between();
    EXPECT_TRUE(runner.run_rest(*program_, {}, 2).ok());
    EXPECT_THAT(queue_.ran, ElementsAre(1, 2, kOther, 3));
  };
  run();
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(queue_.captures, 0u);
  for (int i = 0; i < 2; ++i) {
    run();
    EXPECT_THAT(seen, IsEmpty());
    EXPECT_EQ(queue_.captures, 2u);
  }
  one_by_one = true;
  run();
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(queue_.releases, 2u);
  run([&] { EXPECT_TRUE(runner.watch(watch).ok()); });
  EXPECT_EQ(queue_.captures, 4u);
  EXPECT_EQ(queue_.releases, 3u);
  one_by_one = true;
  run([&] { EXPECT_TRUE(runner.watch(watch).ok()); });
  EXPECT_THAT(seen, ElementsAre(0, 1));  // the new watch was not told that it began
  EXPECT_EQ(queue_.releases, 4u);
}

TEST_F(QueueRunnerTest, ALaunchThatFailsInTheSecondPieceNamesItsOp) {
  queue_.failing_launch = 3;
  QueueRunner runner(device_, &queue_, Execution::kAuto, nullptr);
  ASSERT_TRUE(runner.run_first(*program_, {}, 2).ok());
  EXPECT_EQ(runner.run_rest(*program_, {}, 2).message(),
            "sampler: sampler.greedy failed in largest: invalid configuration argument");
}

}  // namespace
}  // namespace tenon
