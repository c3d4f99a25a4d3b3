// These tests look at what is no trace, or half of one: a part of it with a notice, or an error; never a crash or
// absurd memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"
#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kEvent =
    R"({"ph":"X","pid":1,"tid":7,"ts":1.000,"dur":3.000,"cat":"c","name":"n","args":{"a":[1,-2.5e3,true,null]}})";

TEST(BrokenTraceFile, ACutFileGivesWhatStandsBefore) {
  const std::string two = std::string(kEvent) + ',' + std::string(kEvent);
  for (const std::string& text : {'[' + two, R"({"traceEvents":[)" + two}) {
    for (size_t size = text.size() - kEvent.size(); size < text.size() - 1; ++size) {
      const TraceFile file = read_trace_bytes(std::string_view(text).substr(0, size), "cut.json");
      ASSERT_EQ(file.slices.size(), 1U) << size;
      ASSERT_THAT(file.notices, Contains(HasSubstr("the text ends here"))) << size;
    }
  }
}

TEST(BrokenTraceFile, WhatIsNoTraceIsAnErrorThatSaysWhy) {
  for (const char* text : {"", "17", "\"text\"", "true", "[", "[]", "{\"traceEvents\":[]}", "hello", "\x1f\x8b\x08"}) {
    try {
      read_trace_bytes(text, "no.json");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo) << text;
      EXPECT_THAT(error.what(), HasSubstr("no.json")) << text;
    }
  }
}

TEST(BrokenTraceFile, EveryChangedByteIsSurvived) {
  const std::string good = "[" + std::string(kEvent) + "," + std::string(kEvent) + "]";
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'\0', '"', '{', ']', '-', '9', 'e', '\\', '\xFF'}) {
      std::string text = good;
      text[i] = c;
      try {
        const TraceFile file = read_trace_bytes(text, "changed.json");
        ASSERT_LE(file.slices.size(), 2U);
      } catch (const Error&) {
      }
    }
  }
}

TEST(BrokenTraceFile, EventsThatCannotBeShownAreCounted) {
  const TraceFile file = read_trace_bytes(
      R"([17,{"ph":"X","pid":1,"tid":1,"name":"no ts","dur":1},{"ph":"X","ts":1,"name":"no dur"},{"ph":"X","ts":1,"dur":-1},)"
      R"({"ph":7,"ts":{}},{"ph":"","ts":1},{"ts":1},{"ph":"X","ts":1e300,"dur":1},{"ph":"X","ts":1,"dur":1e300},)"
      R"({"ph":"b","ts":1,"cat":"c"},{"ph":"P","ts":1},{"ph":"X","ts":0,"dur":1,"pid":1e99,"tid":[3],"name":{"a":1},"args":7}])",
      "odd.json");
  EXPECT_EQ(file.n_events, 12U);
  EXPECT_EQ(file.slices.size(), 1U);
  EXPECT_THAT(file.notices,
              ElementsAre("1 asynchronous events have no \"id\"", "1 elements of traceEvents are no objects",
                          "2 events have no \"ph\" of one letter", "2 events have no usable \"ts\"",
                          "1 events of phase \"7\" are not shown", "1 events of phase \"P\" are not shown",
                          "1 slices have a negative \"dur\"", "2 slices have no usable \"dur\""));
}

TEST(BrokenTraceFile, DeepNestingOfJsonAndOfSlices) {
  const std::string deep = '[' + std::string(kEvent) + ",{\"args\":" + std::string(100'000, '[');
  EXPECT_THAT(read_trace_bytes(deep, "deep.json").notices, ElementsAre(HasSubstr("nesting deeper than 64")));

  std::string slices = "[";
  constexpr int kDepth = 5000;
  for (int i = 0; i < kDepth; ++i)
    slices += R"({"ph":"B","pid":1,"tid":1,"ts":)" + std::to_string(i) + R"(,"name":"f"},)";
  slices += R"({"ph":"i","ts":9000}])";
  const TraceFile file = read_trace_bytes(slices, "deep.json");
  EXPECT_EQ(file.slices.size(), 512U);
  EXPECT_THAT(file.notices, Contains(HasSubstr("slices nested deeper than 512 are left out")));
}

TEST(BrokenTraceFile, AnEventForEachOfManyThreadsAndRequests) {
  std::string text = "[";
  constexpr int kMany = 70'000;
  for (int i = 0; i < kMany; ++i) {
    const std::string n = std::to_string(i);
    text += R"({"ph":"X","ts":0,"dur":1,"pid":1,"tid":)" + n + R"(,"args":{"key)" + n + R"(":1}},)";
    text += R"({"ph":"b","ts":0,"pid":2,"cat":"c","id":)" + n + "},";
  }
  text.back() = ']';
  const TraceFile file = read_trace_bytes(text, "many.json");
  EXPECT_LE(file.tracks.size(), 65536U + 64U);
  EXPECT_THAT(file.notices, Contains(HasSubstr("tracks are left out")));
  EXPECT_THAT(file.notices, Contains(HasSubstr("sets of arguments are left out")));
}

TEST(BrokenTraceFile, LimitsEndTheReading) {
  std::string text = "[";
  for (int i = 0; i < 100; ++i) text += std::string(kEvent) + ',';
  text.back() = ']';
  EXPECT_THAT(read_trace_bytes(text, "long.json", {.max_events = 10}).notices,
              Contains(HasSubstr("more than 10 events")));
  EXPECT_EQ(read_trace_bytes(text, "long.json", {.max_bytes = 5 * kEvent.size()}).slices.size(), 4U);
  EXPECT_EQ(read_trace_bytes(text, "long.json", {.max_strings = 1}).slices.size(), 100U);
}

}  // namespace
}  // namespace tenon::profiler
