// These tests record events from many threads and look at what is drained: order, loss, names, and what a closed gate
// leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <limits>
#include <map>
#include <thread>

#include "list_sink.h"

namespace tenon::trace {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

const RecorderOptions kManual{.drain_interval = milliseconds(0)};

std::vector<std::string> names(const Heard& heard) {
  std::vector<std::string> result;
  for (const auto& event : heard.events) result.push_back(event.origin);
  return result;
}

TEST(Recorder, PassesOnEveryKindOfEvent) {
  Heard heard;
  Recorder recorder(kManual, std::make_unique<ListSink>(heard));
  const OriginId op = recorder.add_origin(op_origin("layers.3.attention.qkv", "quantization.int8wo", "matmul", 3));
  const OriginId mark =
      recorder.add_origin({.kind = OriginKind::kInstant, .name = "mark", .category = "cpu_op", .values = {"n"}});
  const OriginId kv = recorder.add_origin(counter_origin("kv_used_bytes"));
  const OriginId request = recorder.add_origin(request_origin());
  Track& track = recorder.add_track("engine");

  const uint64_t counts[] = {3, 5};
  track.request(RequestEvent::kArrived, request, 17);
  {
    Span span(track, op);
    EXPECT_TRUE(span.active());
    span.set({100, 20, 3});
  }
  const uint64_t payload = 7;
  track.instant(mark, {&payload, 1});
  track.counter(kv, 4096.5);
  track.request(RequestEvent::kEnded, request, 17, counts, "length");
  ASSERT_TRUE(recorder.stop().ok());

  ASSERT_THAT(names(heard), ElementsAre("req ", "layers.3.attention.qkv", "mark", "kv_used_bytes", "req "));
  EXPECT_EQ(heard.tracks.at(0).name, "engine");
  EXPECT_EQ(heard.tracks.at(0).tid, gettid());
  EXPECT_EQ(heard.events[0].id, 17);
  EXPECT_THAT(heard.events[1].values, ElementsAre(100, 20, 3));
  EXPECT_LE(heard.events[1].begin_ns, heard.events[1].end_ns);
  EXPECT_THAT(heard.events[2].values, ElementsAre(7));
  EXPECT_EQ(heard.events[3].value, 4096.5);
  EXPECT_EQ(heard.events[4].request, RequestEvent::kEnded);
  EXPECT_THAT(heard.events[4].values, ElementsAre(3, 5));
  EXPECT_EQ(heard.events[4].text, "length");
  EXPECT_TRUE(heard.finished);
  EXPECT_EQ(heard.summary.dropped, 0);
}

TEST(Recorder, CarriesAnyNumberOfValues) {
  Heard heard;
  Recorder recorder(kManual, std::make_unique<ListSink>(heard));
  const OriginId origin = recorder.add_origin(step_origin("decode"));
  Track& track = recorder.add_track("engine");
  std::vector<uint64_t> values;
  for (size_t n = 0; n <= kMaxValues + 1; ++n) {
    track.span(origin, track.now(), track.now(), values);
    values.push_back(1000 + n);
  }
  ASSERT_TRUE(recorder.stop().ok());
  ASSERT_EQ(heard.events.size(), kMaxValues + 2);
  for (size_t n = 0; n < heard.events.size(); ++n) {
    ASSERT_EQ(heard.events[n].values.size(), std::min(n, kMaxValues));
    for (size_t i = 0; i < heard.events[n].values.size(); ++i) EXPECT_EQ(heard.events[n].values[i], 1000 + i);
  }
}

TEST(Recorder, CarriesATextBesideTheValues) {
  Heard heard;
  Recorder recorder({.ring_records = 64, .drain_interval = milliseconds(0)}, std::make_unique<ListSink>(heard));
  const OriginId origin = recorder.add_origin(step_origin("decode"));
  Track& track = recorder.add_track("engine");
  std::vector<std::string> texts = {"",
                                    "a",
                                    std::string(29, 'b'),
                                    std::string(30, 'c'),
                                    std::string(31, 'd'),
                                    std::string("nul\0", 4),
                                    std::string(kMaxText, 'e')};
  for (const std::string& text : texts) {
    for (const size_t values : {0, 1, 7}) {
      {
        Span span(track, origin);
        if (values == 1) span.set({1});
        if (values == 7) span.set({1, 2, 3, 4, 5, 6, 7});
        span.set_text(text);
      }
      recorder.drain();
      ASSERT_EQ(heard.events.back().text, text);
      ASSERT_EQ(heard.events.back().values.size(), values);
      if (values > 0) {
        EXPECT_EQ(heard.events.back().values.back(), values);
      }
    }
  }
  EXPECT_EQ(recorder.dropped(), 0u);
}

TEST(Recorder, CutsALongTextBetweenCharacters) {
  Heard heard;
  Recorder recorder(kManual, std::make_unique<ListSink>(heard));
  const OriginId origin = recorder.add_origin(step_origin("decode"));
  Track& track = recorder.add_track("engine");
  std::string text = "x";
  while (text.size() <= kMaxText) text += "\u00e9";
  track.span(origin, track.now(), track.now(), {}, text);
  ASSERT_TRUE(recorder.stop().ok());
  EXPECT_EQ(heard.events.at(0).text, text.substr(0, kMaxText - 1));
}

TEST(Recorder, CountsATextThatFindsNoRoom) {
  Heard heard;
  Recorder recorder({.ring_records = 8, .drain_interval = milliseconds(0)}, std::make_unique<ListSink>(heard));
  const OriginId origin = recorder.add_origin(step_origin("decode"));
  Track& track = recorder.add_track("engine");
  track.span(origin, track.now(), track.now(), {}, std::string(300, 'x'));
  track.span(origin, track.now(), track.now(), {}, "y");
  ASSERT_TRUE(recorder.stop().ok());
  ASSERT_EQ(heard.events.size(), 1u);
  EXPECT_EQ(heard.events[0].text, "y");
  EXPECT_EQ(recorder.dropped(), 1u);
}

TEST(Recorder, RefusesAOriginWithTooManyValues) {
  Heard heard;
  Recorder recorder(kManual, std::make_unique<ListSink>(heard));
  EXPECT_THROW(recorder.add_origin({.name = "wide", .values = std::vector<std::string>(kMaxValues + 1, "v")}), Error);
}

TEST(Recorder, CountsWhatAFullRingRefusesAndKeepsTheRest) {
  Heard heard;
  Recorder recorder({.ring_records = 8, .drain_interval = milliseconds(0)}, std::make_unique<ListSink>(heard));
  const OriginId origin = recorder.add_origin(section_origin("part"));
  Track& track = recorder.add_track("engine");
  const std::array<uint64_t, 6> six{1, 2, 3, 4, 5, 6};
  for (int i = 0; i < 3; ++i)
    track.span(origin, track.now(), track.now(), six);  // three records each; the third does not fit
  track.span(origin, track.now(), track.now());
  recorder.drain();
  EXPECT_EQ(recorder.dropped(), 1);
  EXPECT_EQ(heard.events.size(), 3);
  for (int i = 0; i < 30; ++i) track.span(origin, track.now(), track.now());
  ASSERT_TRUE(recorder.stop().ok());
  EXPECT_EQ(heard.events.size(), 3 + 8);
  EXPECT_THAT(heard.events[1].values, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(recorder.dropped(), 1 + 22);
  EXPECT_EQ(heard.drop_notes, 1 + 22);
  EXPECT_EQ(heard.summary.dropped, 1 + 22);
}

TEST(Recorder, RecordsOnlyTheWindowOfSteps) {
  Heard heard;
  Recorder recorder({.skip_steps = 2, .steps = 3, .drain_interval = milliseconds(0)},
                    std::make_unique<ListSink>(heard));
  const OriginId step = recorder.add_origin(step_origin("decode"));
  const OriginId load = recorder.add_origin(section_origin("load"));
  Track& track = recorder.add_track("engine");
  { const Span span(track, load); }
  for (uint64_t n = 0; n < 10; ++n) {
    recorder.begin_step();
    EXPECT_EQ(recorder.capturing(), n >= 2 && n < 5);
    Track& late = recorder.add_track("late");  // a thread that comes in later sees the same window
    EXPECT_EQ(late.recording(), n >= 2 && n < 5);
    {
      Span span(track, step);
      span.set({n});
    }
    recorder.end_step();
  }
  ASSERT_TRUE(recorder.stop().ok());
  ASSERT_EQ(heard.events.size(), 3);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(heard.events[i].values.at(0), 2 + i);
}

TEST(Recorder, RecordsBeforeTheFirstStepWhenNoneIsSkipped) {
  Heard heard;
  Recorder recorder({.steps = 1, .drain_interval = milliseconds(0)}, std::make_unique<ListSink>(heard));
  const OriginId load = recorder.add_origin(section_origin("load"));
  Track& track = recorder.add_track("engine");
  for (int i = 0; i < 3; ++i) {
    {
      const Span span(track, load);
    }
    recorder.begin_step();
    recorder.end_step();
  }
  ASSERT_TRUE(recorder.stop().ok());
  EXPECT_EQ(heard.events.size(), 1);
}

TEST(Recorder, RecordsRequestsWhileStepsAreSkipped) {
  Heard heard;
  Recorder recorder({.skip_steps = 1, .steps = 1, .drain_interval = milliseconds(0)},
                    std::make_unique<ListSink>(heard));
  const OriginId request = recorder.add_origin(request_origin());
  const OriginId kv = recorder.add_origin(counter_origin("kv_used_bytes"));
  Track& track = recorder.add_track("engine");
  track.request(RequestEvent::kArrived, request, 1);
  track.counter(kv, 1);
  for (int i = 0; i < 2; ++i) {
    recorder.begin_step();
    recorder.end_step();
  }
  track.request(RequestEvent::kEnded, request, 1);  // after the window: the writer ends it
  ASSERT_TRUE(recorder.stop().ok());
  EXPECT_THAT(names(heard), ElementsAre("req "));
}

TEST(Recorder, HandsOnTheCaptureWhenItsLastStepEnds) {
  Heard heard;
  std::latch finished(1);
  class Announcing final : public Sink {
   public:
    Announcing(Heard& heard, std::latch& finished) : inner_(heard), finished_(finished) {}
    void begin(const TimeBase& s) override { inner_.begin(s); }
    void origin(OriginId id, const OriginInfo& info) override { inner_.origin(id, info); }
    void track(uint32_t i, const TrackInfo& info) override { inner_.track(i, info); }
    void event(const Event& e) override { inner_.event(e); }
    Status drained(const Drain& d) override { return inner_.drained(d); }
    Status finish(const Summary& s) override {
      Status status = inner_.finish(s);
      finished_.count_down();
      return status;
    }

   private:
    ListSink inner_;
    std::latch& finished_;
  };
  Recorder recorder({.steps = 1, .drain_interval = milliseconds(1000'000)},
                    std::make_unique<Announcing>(heard, finished));
  const OriginId step = recorder.add_origin(step_origin("decode"));
  Track& track = recorder.add_track("engine");
  recorder.begin_step();
  { const Span span(track, step); }
  recorder.end_step();
  finished.wait();
  EXPECT_EQ(heard.events.size(), 1);
  EXPECT_TRUE(recorder.stop().ok());
}

TEST(Recorder, GoesOnWithoutATraceWhenTheSinkFails) {
  Heard heard;
  Recorder recorder(kManual, std::make_unique<ListSink>(heard));
  const OriginId origin = recorder.add_origin(section_origin("part"));
  Track& track = recorder.add_track("engine");
  heard.fail = true;
  { const Span span(track, origin); }
  recorder.drain();
  heard.fail = false;
  EXPECT_FALSE(track.recording());
  { const Span span(track, origin); }
  recorder.begin_step();
  recorder.end_step();
  const Status status = recorder.stop();
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  EXPECT_EQ(status.message(), "no room");
  EXPECT_EQ(recorder.stop().message(), "no room");
  EXPECT_FALSE(heard.finished);
  EXPECT_EQ(heard.events.size(), 1);
}

TEST(Recorder, AnUntracedTrackRecordsNothing) {
  Track off;
  EXPECT_FALSE(off.recording());
  const Span span(off, 0);
  EXPECT_FALSE(span.active());
  off.span(0, 0, 0);
  off.instant(0);
  off.counter(0, 1);
  off.request(RequestEvent::kArrived, 0, 1);
}

void record_nested(Track& track, OriginId outer, OriginId inner, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    Span out(track, outer);
    out.set({i});
    {
      Span in(track, inner);
      in.set({i, i, i, i});
    }
  }
}

// Each thread's events arrive in order, whole and nested, while the drain thread runs beside them.
TEST(Recorder, RecordsFromManyThreadsWhileDraining) {
  for (const ClockSource clock : {ClockSource::kBest, ClockSource::kMonotonic}) {
    constexpr uint64_t kSpans = 20'000;
    constexpr int kThreads = 4;
    Heard heard;
    Recorder recorder({.ring_records = 1U << 20U, .drain_interval = milliseconds(1), .clock = clock},
                      std::make_unique<ListSink>(heard));
    const OriginId outer = recorder.add_origin(section_origin("outer"));
    const OriginId inner = recorder.add_origin(section_origin("inner"));
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back(
          [&, t] { record_nested(recorder.add_track("worker " + std::to_string(t)), outer, inner, kSpans); });
    }
    threads.clear();
    ASSERT_TRUE(recorder.stop().ok());
    EXPECT_EQ(recorder.dropped(), 0);
    ASSERT_EQ(heard.events.size(), 2 * kSpans * kThreads);
    std::map<std::string, std::vector<Heard::Copy>> by_track;
    for (auto& event : heard.events) by_track[event.track].push_back(std::move(event));
    ASSERT_EQ(by_track.size(), kThreads);
    for (const auto& [name, events] : by_track) {
      int64_t previous_end = 0;
      for (uint64_t i = 0; i < kSpans; ++i) {
        const auto& in = events.at(2 * i);
        const auto& out = events.at(2 * i + 1);
        ASSERT_THAT(in.values, ElementsAre(i, i, i, i));
        ASSERT_THAT(out.values, ElementsAre(i));
        ASSERT_LE(previous_end, out.begin_ns);
        ASSERT_LE(out.begin_ns, in.begin_ns);
        ASSERT_LE(in.begin_ns, in.end_ns);
        ASSERT_LE(in.end_ns, out.end_ns);
        previous_end = out.end_ns;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::trace
