// These tests record what an engine records and read the file back.
#include "tenon/profiler/perfetto_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "temp_folder.h"
#include "tenon/profiler/trace_check.h"

namespace tenon::profiler {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using trace::OriginId;
using trace::RequestEvent;

std::string findings(const CheckReport& report) {
  std::string text;
  for (const Finding& finding : report.findings) text += to_string(finding, "trace") + '\n';
  return text;
}

// An engine records this: steps over sections over operations, a worker's share, requests, counters.
void record_run(trace::Recorder& recorder, uint64_t steps) {
  const OriginId step = recorder.add_origin(trace::step_origin("decode"));
  const OriginId layer = recorder.add_origin(trace::section_origin("layers.0"));
  const OriginId op = recorder.add_origin(trace::op_origin("layers.0.qkv", "quantization.none", "matmul", 0));
  const OriginId request = recorder.add_origin(trace::request_origin());
  const OriginId kv = recorder.add_origin(trace::counter_origin("kv_used_bytes"));
  trace::Track& track = recorder.add_track("engine");
  const uint64_t arrival[] = {0, 40, 0}, admission[] = {2, 40, 8}, token[] = {0, 1}, last[] = {steps - 1, steps};
  track.request(RequestEvent::kArrived, request, 17, arrival);
  track.request(RequestEvent::kAdmitted, request, 17, admission);
  for (uint64_t n = 0; n < steps; ++n) {
    recorder.begin_step();
    std::jthread worker([&] {
      trace::Track& share = recorder.add_track("worker " + std::to_string(n));
      trace::Span span(share, op);
      span.set({5, 6, 7});
    });
    {
      trace::Span whole(track, step);
      whole.set({n, 1, 2, 3, 4, 5, 6});
      const trace::Span inner(track, layer);
      trace::Span leaf(track, op);
      leaf.set({n, 8, 9});
    }
    worker.join();
    track.counter(kv, static_cast<double>(n) * 1024);
    recorder.end_step();
  }
  track.request(RequestEvent::kToken, request, 17, token);
  track.request(RequestEvent::kEnded, request, 17, last, "length");
}

TEST(PerfettoWriter, WritesWhatTheCheckFindsNothingIn) {
  const TempFolder folder;
  for (const char* name : {"run.json", "run.json.gz"}) {
    const std::string path = folder.file(name);
    trace::Recorder recorder({.drain_interval = milliseconds(1)},
                             make_perfetto_writer({.path = path, .metadata = {{"model", "tiny"}}}));
    record_run(recorder, 20);
    ASSERT_TRUE(recorder.stop().ok());
    const CheckReport report = check_trace(path);
    EXPECT_EQ(findings(report), "");
    EXPECT_TRUE(report.object_form);
    EXPECT_GE(report.slices, 20 * 4);
    EXPECT_EQ(report.counters, 20);
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
    EXPECT_EQ(folder.bytes(path).starts_with("\x1f\x8b"), std::string(name).ends_with(".gz"));
  }
}

TEST(PerfettoWriter, WritesTheSchema) {
  const TempFolder folder;
  const std::string path = folder.file("run.json");
  trace::Recorder recorder(
      {.drain_interval = milliseconds(0)},
      make_perfetto_writer(
          {.path = path, .metadata = {{"model", "tiny"}, {"git", "abc"}}, .devices = [] {
             return std::vector<std::vector<trace::Arg>>{{{"id", int64_t{0}}, {"name", std::string("some CPU")}}};
           }}));
  record_run(recorder, 2);
  ASSERT_TRUE(recorder.stop().ok());
  const std::string text = folder.bytes(path);
  EXPECT_THAT(
      text, AllOf(HasSubstr(R"("name":"ProfilerStep#1","args":{"phase":"decode","step":1,"n_ctx_req":1,)"),
                  HasSubstr(R"("name":"layers.0.qkv","args":{"component":"quantization.none","op":"matmul","layer":0,)"
                            R"("bytes_read":1,"bytes_written":8,"flops":9,"gbps":)"),
                  HasSubstr(R"("cat":"request_queue","name":"req 17","args":{"request":17,"prompt":40,)"),
                  HasSubstr(R"("cat":"request","name":"req 17","args":{"request":17,"prompt":40,"tokens":40,)"
                            R"("cached":8,"generated":2,"end":"length"})"),
                  HasSubstr(R"("name":"decode","args":{"request":17,"first_step":1,"last_step":1,"tokens":1})"),
                  HasSubstr(R"({"ph":"M","pid":2,"tid":103,"name":"thread_name","args":{"name":"slot 2"}})"),
                  HasSubstr(R"({"ph":"M","pid":2,"tid":1000001,"name":"thread_name","args":{"name":"queue"}})"),
                  HasSubstr(R"("name":"kv_used_bytes","args":{"value":1024})")));
  EXPECT_THAT(text, AllOf(HasSubstr(R"("deviceProperties":[{"id":0,"name":"some CPU"}])"),
                          HasSubstr(R"("metadata":{"model":"tiny","git":"abc","mode":"cpu",)"),
                          HasSubstr(R"("dropped_records":0)"), HasSubstr(R"("schemaVersion":1)"),
                          HasSubstr(R"({"ph":"M","pid":2,"name":"process_name","args":{"name":"requests"}})")));
}

// Bytes over nanoseconds are GB/s.
TEST(PerfettoWriter, GivesOpsTheirRateAndStepsTheirTokens) {
  const TempFolder folder;
  const std::string path = folder.file("run.json");
  double peak = 0;
  trace::Recorder recorder({.drain_interval = milliseconds(0), .clock = trace::ClockSource::kMonotonic},
                           make_perfetto_writer({.path = path,
                                                 .more_metadata =
                                                     [&] {
                                                       return std::vector<trace::Arg>{{"read_bandwidth_gbps", peak}};
                                                     },
                                                 .read_gbps = [&] { return peak; }}));
  const OriginId op = recorder.add_origin(trace::op_origin("lm_head", "quantization.none", "gemv", -1));
  const OriginId step = recorder.add_origin(trace::step_origin("decode"));
  trace::Track& track = recorder.add_track("main");
  recorder.drain();
  const uint64_t begin = track.now();
  const uint64_t bytes[] = {5000, 1000, 3}, counts[] = {4};
  const auto record = [&] {
    while (track.now() < begin + 4000) {
    }
    track.span(op, begin, begin + 4000, bytes);
    track.span(step, begin, begin + 4000, counts, "a\n\"b");
    recorder.drain();
  };
  record();
  peak = 6;
  record();
  track.span(op, begin, begin, bytes);
  ASSERT_TRUE(recorder.stop().ok());
  EXPECT_THAT(folder.bytes(path),
              AllOf(HasSubstr(R"("bytes_read":5000,"bytes_written":1000,"flops":3,"gbps":1.500})"),
                    HasSubstr(R"("bytes_read":5000,"bytes_written":1000,"flops":3,"gbps":1.500,"peak_pct":25.000})"),
                    HasSubstr(R"("bytes_read":5000,"bytes_written":1000,"flops":3})"),  // it took no time
                    HasSubstr(R"("args":{"phase":"decode","step":4,"tokens":"a\u000a\"b"})"),
                    HasSubstr(R"("read_bandwidth_gbps":6)")));
}

TEST(PerfettoWriter, KeepsHostileNamesAndValuesReadable) {
  const TempFolder folder;
  const std::string path = folder.file("run.json");
  trace::Recorder recorder({.drain_interval = milliseconds(0)}, make_perfetto_writer({.path = path}));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const OriginId origin = recorder.add_origin(
      {.name = std::string("a\0b\n\"\\\x1f\xff\xc3\xa9\xed\xa0\x80", 13),
       .category = "cat\t",
       .args = {{"nan", std::nan("")}, {"inf", -kInfinity}, {"big", uint64_t{1} << 63U}, {"r", 0.1}},
       .values = {"v"}});
  const OriginId counter = recorder.add_origin(trace::counter_origin("c"));
  trace::Track& track = recorder.add_track("bad\xf0name");
  {
    trace::Span span(track, origin);
    span.set({std::numeric_limits<uint64_t>::max()});
  }
  track.counter(counter, kInfinity);
  track.counter(counter, 1e300);
  ASSERT_TRUE(recorder.stop().ok());
  const std::string text = folder.bytes(path);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr(R"("a\u0000b\u000a\"\\\u001f)"
                      "\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""),
            HasSubstr(R"("nan":"NaN","inf":"-Infinity","big":"0x8000000000000000","r":0.1,"v":"0xffffffffffffffff")"),
            HasSubstr(R"("args":{"value":1e+300})")));
  const CheckReport report = check_trace(path);  // the infinite counter is counted as lost, and nothing else is wrong
  ASSERT_EQ(report.findings.size(), 1) << findings(report);
  EXPECT_EQ(report.findings[0].rule, "dropped");
  EXPECT_THAT(report.findings[0].found, HasSubstr("1 records"));
}

TEST(PerfettoWriter, SaysWhatFullRingsLost) {
  const TempFolder folder;
  const std::string path = folder.file("run.json");
  trace::Recorder recorder({.ring_records = 8, .drain_interval = milliseconds(0)},
                           make_perfetto_writer({.path = path}));
  const OriginId origin = recorder.add_origin(trace::section_origin("part"));
  trace::Track& track = recorder.add_track("engine");
  for (int i = 0; i < 20; ++i) const trace::Span span(track, origin);
  ASSERT_TRUE(recorder.stop().ok());
  const CheckReport report = check_trace(path);
  ASSERT_EQ(report.findings.size(), 1) << findings(report);
  EXPECT_EQ(report.findings[0].rule, "dropped");
  EXPECT_THAT(folder.bytes(path), HasSubstr(R"("name":"lost: ring full","args":{"events":12,"thread":"engine"})"));
}

TEST(PerfettoWriter, EndsOpenRequestsAndCountsEventsWithoutBeginning) {
  const TempFolder folder;
  const std::string path = folder.file("run.json");
  trace::Recorder recorder({.drain_interval = milliseconds(0)}, make_perfetto_writer({.path = path}));
  const OriginId request = recorder.add_origin(trace::request_origin());
  trace::Track& track = recorder.add_track("engine");
  track.request(RequestEvent::kEnded, request, 1);    // lost its beginning
  track.request(RequestEvent::kArrived, request, 2);  // never ends
  ASSERT_TRUE(recorder.stop().ok());
  const CheckReport report = check_trace(path);
  ASSERT_EQ(report.findings.size(), 1) << findings(report);
  EXPECT_EQ(report.findings[0].rule, "dropped");
  EXPECT_THAT(folder.bytes(path),
              HasSubstr(R"("name":"req 2","args":{"request":2,"prompt":0,"priority":0,"open_at_end":1,)"));
}

// A request that ends while steps are skipped is in no step of the trace.
TEST(PerfettoWriter, LeavesOutRequestsOfStepsThatAreNotRecorded) {
  const TempFolder folder;
  const std::string path = folder.file("run.json");
  trace::Recorder recorder({.skip_steps = 2, .drain_interval = milliseconds(0)}, make_perfetto_writer({.path = path}));
  const OriginId request = recorder.add_origin(trace::request_origin());
  trace::Track& track = recorder.add_track("engine");
  for (uint64_t step = 0; step < 4; ++step) {
    track.request(RequestEvent::kArrived, request, step);
    recorder.begin_step();
    recorder.end_step();
    if (step != 1) track.request(RequestEvent::kEnded, request, step);
    recorder.drain();
  }
  ASSERT_TRUE(recorder.stop().ok());
  const std::string text = folder.bytes(path);
  EXPECT_THAT(text, Not(HasSubstr(R"("req 0")")));
  for (const char* name : {R"("req 1")", R"("req 2")", R"("req 3")"}) EXPECT_THAT(text, HasSubstr(name));
}

TEST(PerfettoWriter, LeavesALoadableFileWhenItIsCutOff) {
  const TempFolder folder;
  for (const char* name : {"run.json", "run.json.gz"}) {
    const std::string path = folder.file(name);
    trace::Recorder recorder({.drain_interval = milliseconds(0)}, make_perfetto_writer({.path = path}));
    const OriginId origin = recorder.add_origin(trace::section_origin("part"));
    trace::Track& track = recorder.add_track("engine");
    for (int i = 0; i < 100; ++i) const trace::Span span(track, origin);
    recorder.drain();
    EXPECT_FALSE(std::filesystem::exists(path));
    const CheckReport report = check_trace(path + ".part");  // as a killed process would leave it
    EXPECT_FALSE(report.object_form);
    EXPECT_EQ(report.slices, 101);  // and the drain's own
    for (const Finding& finding : report.findings) EXPECT_THAT(finding.rule, testing::AnyOf("cut", "gzip"));
  }
}

TEST(PerfettoWriter, AFullDiskEndsTheTraceAndNotTheRun) {
  const TempFolder folder;
  for (const char* name : {"run.json", "run.json.gz"}) {
    const std::string path = folder.file(name);
    std::filesystem::create_symlink("/dev/full", path + ".part");
    trace::Recorder recorder({.drain_interval = milliseconds(0)}, make_perfetto_writer({.path = path}));
    const OriginId origin = recorder.add_origin(trace::section_origin("part"));
    trace::Track& track = recorder.add_track("engine");
    for (int i = 0; i < 100; ++i) const trace::Span span(track, origin);
    recorder.drain();
    EXPECT_FALSE(track.recording());
    const Status status = recorder.stop();
    EXPECT_EQ(status.code(), ErrorCode::kIo);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(path + ".part"), HasSubstr("No space left on device"), HasSubstr("without a trace")));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(path + ".part")));
  }
}

TEST(PerfettoWriter, SaysAtOnceThatItCannotWriteThere) {
  const TempFolder folder;
  const auto message = [](const std::string& path) {
    try {
      make_perfetto_writer({.path = path});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message(folder.file("none/run.json")), HasSubstr("No such file or directory"));
  EXPECT_THAT(message(folder.path()), HasSubstr("no regular file"));
  EXPECT_THAT(message("/dev/full"), HasSubstr("no regular file"));
}

TEST(PerfettoWriter, ReplacesAnEarlierTraceOnlyWhenItIsWhole) {
  const TempFolder folder;
  const std::string path = folder.file("run.json");
  std::ofstream(path) << "earlier";
  trace::Recorder recorder({.drain_interval = milliseconds(0)}, make_perfetto_writer({.path = path}));
  recorder.drain();
  EXPECT_EQ(folder.bytes(path), "earlier");
  ASSERT_TRUE(recorder.stop().ok());
  EXPECT_THAT(folder.bytes(path), AllOf(HasSubstr(R"({"traceEvents":[)"), Not(HasSubstr("earlier"))));
}

}  // namespace
}  // namespace tenon::profiler
