// This tests steps that are held back until one is slow or somebody asks.
#include "kept_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "list_sink.h"

namespace tenon::trace {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class Keeping : public testing::Test {
 protected:
  Keeping() {
    sink_.origin(0, section_origin("x"));
    sink_.track(0, {"main", 1});
  }
  void event(int64_t begin, int64_t end) { kept_.event({.begin_ns = begin, .end_ns = end}, sink_); }
  // Adds a step of one event that ends with it.
  void step(int64_t begin, int64_t end) {
    event(begin, end);
    kept_.step(number_++, begin, end);
  }
  std::vector<int64_t> ends() const {
    std::vector<int64_t> list;
    for (const auto& e : heard_.events) list.push_back(e.end_ns);
    return list;
  }

  Heard heard_;
  ListSink sink_{heard_};
  uint64_t number_ = 4;
  std::vector<std::pair<uint64_t, bool>> decided_;
  KeptSteps kept_{2, 100, [this](uint64_t step, bool written) { decided_.emplace_back(step, written); }};
};

TEST_F(Keeping, PassesOnASlowStepAndThoseBeforeIt) {
  step(0, 10);
  step(10, 20);
  step(20, 30);
  kept_.decide(sink_);
  EXPECT_THAT(ends(), IsEmpty());
  step(30, 40);
  step(40, 140);
  step(140, 150);
  kept_.decide(sink_);
  EXPECT_THAT(ends(), ElementsAre(30, 40, 140));
  EXPECT_EQ(kept_.counts().steps_seen, 6u);
  EXPECT_EQ(kept_.counts().steps_written, 3u);
  EXPECT_EQ(kept_.counts().slowest.count(), 100);
  step(150, 160);
  kept_.decide(sink_);
  kept_.pass_on(sink_);
  EXPECT_THAT(ends(), ElementsAre(30, 40, 140, 150, 160));
  kept_.pass_on(sink_);
  EXPECT_EQ(kept_.counts().steps_written, 5u);
  EXPECT_THAT(decided_, ElementsAre(Pair(4, false), Pair(5, false), Pair(6, true), Pair(7, true), Pair(8, true),
                                    Pair(9, true), Pair(10, true)));
}

TEST_F(Keeping, GivesWhatComesLateItsStepsFate) {
  step(0, 10);
  step(10, 20);
  step(20, 30);
  kept_.decide(sink_);
  event(5, 9);    // its step was forgotten
  event(15, 19);  // its step is kept
  step(30, 130);
  kept_.decide(sink_);
  EXPECT_THAT(ends(), ElementsAre(20, 19, 30, 130));
  event(100, 129);  // its step was passed on
  event(130, 135);  // its step has not ended
  EXPECT_THAT(ends(), ElementsAre(20, 19, 30, 130, 129));
}

TEST_F(Keeping, TakesInstantsByTheirMoment) {
  kept_.event({.begin_ns = 5}, sink_);
  kept_.step(0, 0, 10);
  kept_.step(1, 10, 20);
  kept_.step(2, 20, 30);
  kept_.decide(sink_);
  kept_.event({.begin_ns = 25}, sink_);
  kept_.pass_on(sink_);
  ASSERT_EQ(heard_.events.size(), 1u);
  EXPECT_EQ(heard_.events[0].begin_ns, 25);
}

struct Recorded {
  explicit Recorded(RecorderOptions options) : recorder(options, std::make_unique<ListSink>(heard)) {
    step_origin_ = recorder.add_origin(step_origin("decode"));
    request_ = recorder.add_origin(request_origin());
    track_ = &recorder.add_track("main");
  }
  void step(uint64_t number, milliseconds length = {}) {
    recorder.begin_step();
    const std::string text = "token " + std::to_string(number);
    {
      Span span(*track_, step_origin_);
      span.set({number});
      span.set_text(text);
      if (length.count() > 0) std::this_thread::sleep_for(length);
    }
    recorder.end_step();
  }
  void request(RequestEvent event) { track_->request(event, request_, 1); }
  std::vector<uint64_t> steps() const {
    std::vector<uint64_t> list;
    for (const auto& e : heard.events) {
      if (!e.values.empty()) list.push_back(e.values[0]);
    }
    return list;
  }

  Heard heard;
  Recorder recorder;

 private:
  OriginId step_origin_ = 0, request_ = 0;
  Track* track_ = nullptr;
};

TEST(KeptSteps, OfASlowStepReachTheSink) {
  for (const milliseconds interval : {milliseconds(0), milliseconds(1)}) {
    Recorded run({.keep_steps = 3, .slow_step = milliseconds(30), .drain_interval = interval});
    run.request(RequestEvent::kArrived);
    for (uint64_t i = 0; i < 100; ++i) run.step(i, milliseconds(i == 50 ? 40 : 0));
    run.request(RequestEvent::kEnded);
    ASSERT_TRUE(run.recorder.stop().ok());
    const std::vector<uint64_t> steps = run.steps();
    // The machine may be slow at others, too; the kept steps follow one another and lead up to the slow one.
    const auto slow = std::ranges::find(steps, 50u);
    ASSERT_NE(slow, steps.end());
    ASSERT_GE(slow - steps.begin(), 3);
    EXPECT_THAT(std::vector<uint64_t>(slow - 3, slow), ElementsAre(47, 48, 49));
    EXPECT_EQ(run.recorder.kept().steps_written, steps.size());
    EXPECT_EQ(run.recorder.kept().steps_seen, 100u);
    EXPECT_GE(run.recorder.kept().slowest, milliseconds(40));
    EXPECT_EQ(run.heard.events.size(), steps.size() + 2);  // the request in any case
    for (const auto& e : run.heard.events) {
      if (!e.values.empty()) {
        EXPECT_EQ(e.text, "token " + std::to_string(e.values[0]));
      }
    }
  }
}

TEST(KeptSteps, ReachTheSinkWhenSomebodyAsks) {
  Recorded run({.skip_steps = 2, .keep_steps = 3, .drain_interval = milliseconds(0)});
  for (uint64_t i = 0; i < 4; ++i) run.step(i);
  run.recorder.capture();
  run.recorder.drain();
  EXPECT_THAT(run.steps(), ElementsAre(2, 3));
  for (uint64_t i = 4; i < 20; ++i) run.step(i);
  run.recorder.drain();
  run.recorder.drain();
  EXPECT_THAT(run.steps(), ElementsAre(2, 3));
  run.recorder.capture();
  ASSERT_TRUE(run.recorder.stop().ok());
  EXPECT_THAT(run.steps(), ElementsAre(2, 3, 17, 18, 19));
}

TEST(KeptSteps, EndTheCaptureWhenAsManyAsWantedAreWritten) {
  Recorded run({.steps = 2, .keep_steps = 2, .drain_interval = milliseconds(1)});
  for (uint64_t i = 0; i < 4; ++i) run.step(i);
  run.recorder.capture();
  for (int i = 0; i < 2000 && run.recorder.capturing(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(run.recorder.capturing());
  run.step(4);
  ASSERT_TRUE(run.recorder.stop().ok());
  EXPECT_THAT(run.steps(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace tenon::trace
