// These tests look at what ops cost by a trace: made-up traces whose sums are known.
#include "tenon/profiler/trace_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "temp_folder.h"
#include "tenon/core/error.h"
#include "tenon/profiler/trace_compare.h"
#include "tenon/profiler/trace_merge.h"

namespace tenon::profiler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Events are put together with times in whole microseconds.
class Events {
 public:
  Events& step(int number, const std::string& phase, int begin, int duration) {
    return put({1, 7, begin, duration, "user_annotation", "ProfilerStep#" + std::to_string(number),
                R"("phase":")" + phase + '"'});
  }
  Events& op(int begin, int duration, const std::string& path, const std::string& args, int tid = 7) {
    return put({1, tid, begin, duration, "cpu_op", path, args});
  }
  Events& kernel(int begin, int duration, const std::string& name, const std::string& args, int tid = 1007) {
    return put({100, tid, begin, duration, "kernel", name, args});
  }
  TraceFile read(const std::string& metadata = "") const {
    return read_trace_bytes(R"({"traceEvents":[)" + text_ +
                                R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"engine"}}],)" +
                                R"("baseTimeNanoseconds":)" + "1000000000" + R"(,"metadata":{)" + metadata + "}}",
                            "made-up.json");
  }

 private:
  struct Slice {
    int pid, tid;
    int begin, duration;  // us
    std::string category, name;
    std::string args;  // members of a JSON object
  };
  Events& put(const Slice& s) {
    text_ += R"({"ph":"X","pid":)" + std::to_string(s.pid) + R"(,"tid":)" + std::to_string(s.tid) + R"(,"ts":)" +
             std::to_string(s.begin) + R"(,"dur":)" + std::to_string(s.duration) + R"(,"cat":")" + s.category +
             R"(","name":")" + s.name + R"(","args":{)" + s.args + "}},\n";
    return *this;
  }

  std::string text_;
};

constexpr const char* kDown0 =
    R"("component":"quantization.none","op":"gemv","layer":0,"bytes_read":9000,"bytes_written":1000)";
constexpr const char* kDown1 =
    R"("component":"quantization.none","op":"gemv","layer":1,"bytes_read":9000,"bytes_written":1000)";
constexpr const char* kDraw = R"("component":"sampler.greedy","op":"draw")";

Events two_steps() {
  Events e;
  e.step(0, "prefill", 0, 50).op(0, 40, "layers.0.mlp.down", kDown0);
  e.step(1, "decode", 100, 50);
  e.op(102, 10, "layers.0.mlp.down", kDown0).op(115, 20, "layers.1.mlp.down", kDown1).op(135, 5, "sampler", kDraw);
  e.op(102, 10, "layers.0.mlp.down", kDown0, 8);  // a worker's share of the same
  e.op(60, 5, "loading", kDraw);                  // in no step
  return e;
}

std::vector<std::string> lines(const TraceStats& stats) {
  std::vector<std::string> list;
  for (const GroupStats& g : stats.groups) {
    list.push_back(g.phase + ' ' + g.path + ' ' + g.component + ' ' + g.op + ' ' + std::to_string(g.layer) + ' ' +
                   std::to_string(g.calls) + ' ' + std::to_string(g.total_ns / 1000) + ' ' +
                   std::to_string(g.gap_ns / 1000));
  }
  return list;
}

TEST(TraceStats, SumUpTheThreadOfTheSteps) {
  const TraceFile trace = two_steps().read(R"("read_bandwidth_gbps":2.5)");
  const TraceStats stats = trace_stats(trace, GroupBy::kOp);
  EXPECT_THAT(lines(stats), ElementsAre("decode layers.*.mlp.down quantization.none gemv -1 2 30 3",
                                        "decode sampler sampler.greedy draw -1 1 5 0",
                                        "prefill layers.*.mlp.down quantization.none gemv -1 1 40 0",
                                        "between steps loading sampler.greedy draw -1 1 5 0"));
  EXPECT_EQ(stats.groups[0].p50_ns, 10'000);
  EXPECT_EQ(stats.groups[0].p99_ns, 20'000);
  EXPECT_DOUBLE_EQ(stats.groups[0].gbps(), 20000.0 / 30000);
  EXPECT_EQ(stats.read_gbps, 2.5);
  ASSERT_EQ(stats.phases.size(), 2u);
  const PhaseStats& decode = stats.phases[0].phase == "decode" ? stats.phases[0] : stats.phases[1];
  EXPECT_EQ(decode.steps, 1u);
  EXPECT_EQ(decode.busy_ns, 35'000);
  EXPECT_EQ(decode.gap_ns, 3'000);
  EXPECT_EQ(decode.idle_ns, 12'000);
}

TEST(TraceStats, JoinAsTheyAreTold) {
  const TraceFile trace = two_steps().read();
  EXPECT_THAT(lines(trace_stats(trace, GroupBy::kLayer)),
              ElementsAre("decode    -1 1 5 0", "decode    0 1 10 0", "decode    1 1 20 3", "prefill    0 1 40 0",
                          "between steps    -1 1 5 0"));
  EXPECT_THAT(lines(trace_stats(trace, GroupBy::kComponent)),
              ElementsAre("decode  quantization.none  -1 2 30 3", "decode  sampler.greedy  -1 1 5 0",
                          "prefill  quantization.none  -1 1 40 0", "between steps  sampler.greedy  -1 1 5 0"));
  EXPECT_EQ(lines(trace_stats(trace, GroupBy::kPath)).front(),
            "decode layers.1.mlp.down quantization.none gemv 1 1 20 3");
}

// Kernels run later than the host and beside one another; those that say their step belong to it.
TEST(TraceStats, OfKernelsAreWhatTheyAdd) {
  Events e;
  e.step(4, "decode", 0, 100).step(5, "decode", 100, 100).step(6, "decode", 200, 10);
  e.kernel(50, 20, "layers.0.mlp.down/gemv", std::string(kDown0) + R"(,"step":4)");
  e.kernel(60, 30, "sampler/draw", std::string(kDraw) + R"(,"step":4)", 600001);
  e.kernel(105, 10, "layers.0.mlp.down/gemv", std::string(kDown0) + R"(,"step":4)");
  e.kernel(110, 10, "layers.0.mlp.down/gemv", kDown0, 600001);
  const TraceFile trace = e.read();
  const TraceStats stats = trace_stats(trace, GroupBy::kOp);
  EXPECT_TRUE(stats.kernels);
  EXPECT_EQ(stats.steps_without_ops, 1u);
  ASSERT_EQ(stats.groups.size(), 2u);
  EXPECT_EQ(stats.groups[0].path, "layers.*.mlp.down");
  EXPECT_EQ(stats.groups[0].total_ns, 40'000);
  EXPECT_EQ(stats.groups[0].added_ns, 20'000 + 10'000 + 5'000);
  EXPECT_EQ(stats.groups[0].gap_ns, 15'000);
  EXPECT_EQ(stats.groups[1].added_ns, 20'000);
  EXPECT_EQ(stats.phases[0].steps, 2u);
  EXPECT_EQ(stats.phases[0].busy_ns, 55'000);
}

TEST(TraceStats, OfATraceWithoutSteps) {
  Events e;
  e.op(0, 10, "a", "").op(20, 10, "b", "");
  const TraceStats stats = trace_stats(e.read(), GroupBy::kOp);
  ASSERT_EQ(stats.phases.size(), 1u);
  EXPECT_EQ(stats.phases[0].phase, "trace");
  EXPECT_EQ(stats.phases[0].busy_ns, 20'000);
  EXPECT_EQ(stats.phases[0].gap_ns, 10'000);
  EXPECT_TRUE(trace_stats(Events().read(), GroupBy::kOp).groups.empty());
}

TEST(TraceStats, PassOnWhatTheTraceSaysOfItself) {
  const TraceStats stats =
      trace_stats(two_steps().read(R"("dropped_records":3,"problem":"no kernels: x")"), GroupBy::kOp);
  EXPECT_THAT(stats.notices, testing::Contains(HasSubstr("3 records")));
  EXPECT_THAT(stats.notices, testing::Contains("no kernels: x"));
}

// Files are damaged in every way the fuzzers know: they give an answer or an error, and merged ones can be read again.
TEST(TraceStats, OfDamagedFilesAreSumsOrErrors) {
  const TempFolder folder;
  size_t read = 0;
  for (const char* corpus : {"trace_file", "trace_check"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(TENON_SOURCE_DIR "/tests/fuzz/corpus/" + std::string(corpus))) {
      SCOPED_TRACE(entry.path());
      std::vector<TraceFile> traces;
      try {
        traces.push_back(read_trace(entry.path()));
        traces.push_back(read_trace(entry.path()));
      } catch (const Error&) {
        continue;
      }
      ++read;
      uint64_t calls = 0;
      for (const GroupStats& g : trace_stats(traces[0], GroupBy::kOp).groups) calls += g.calls;
      EXPECT_EQ(calls, step_ops(traces[0]).ops.size());
      for (const OpChange& c : compare_traces(traces[0], traces[1])) EXPECT_EQ(c.verdict, OpChange::Verdict::kSame);
      const std::string path = folder.file("merged.json");
      merge_traces(traces, std::vector<std::string>{"a", "b"}, path);
      EXPECT_EQ(read_trace(path).slices.size(), 2 * traces[0].slices.size());
    }
  }
  EXPECT_GT(read, 5u);
}

TEST(Percentile, IsTheNearestRank) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({3}, 0.99), 3);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 0.5), 2);
  EXPECT_EQ(percentile({1, 2, 3, 4}, 0.51), 3);
  std::vector<int64_t> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  EXPECT_EQ(percentile(hundred, 0.99), 99);
}

// U is 8 of 64, with four pairs of ties: p is that of the normal distribution, worked out apart.
TEST(RankTest, IsThatOfMannAndWhitney) {
  const std::vector<double> a = {1, 2, 3, 4, 5, 6, 7, 8}, b = {5, 6, 7, 8, 9, 10, 11, 12};
  EXPECT_NEAR(rank_test(a, b), 0.013313002763816674, 1e-12);
  EXPECT_NEAR(rank_test(a, b), rank_test(b, a), 1e-12);
  EXPECT_EQ(rank_test(a, a), 1);
  EXPECT_EQ(rank_test(a, {}), 1);
  const std::vector<double> same = {4, 4, 4};
  EXPECT_EQ(rank_test(same, same), 1);
}

// Makes twenty decode steps; noise is one part in ten, the same in both.
Events run(int down_us, int lead_us = 0) {
  Events e;
  for (int i = 0; i < 20; ++i) {
    const int begin = 1000 * i, noise = i % 5;
    e.step(i, "decode", begin, lead_us + down_us + noise + 40);
    e.op(begin + lead_us, down_us + noise, "layers.0.mlp.down", kDown0);
    e.op(begin + lead_us + down_us + noise, 40, "sampler", kDraw);
  }
  return e;
}

std::vector<std::string> verdicts(const std::vector<OpChange>& changes) {
  static constexpr const char* kNames[] = {"same", "slower", "faster", "only A", "only B"};
  std::vector<std::string> list;
  for (const OpChange& c : changes) list.push_back(c.path + ' ' + kNames[static_cast<size_t>(c.verdict)]);
  return list;
}

TEST(CompareTraces, FindsWhatIsSlowerByMoreThanTheNoise) {
  const TraceFile base = run(50).read(), slower = run(60).read(), faster = run(40).read(), noise = run(51).read();
  EXPECT_THAT(verdicts(compare_traces(base, base)), ElementsAre(" same", "layers.*.mlp.down same", "sampler same"));
  EXPECT_THAT(verdicts(compare_traces(base, slower)),
              ElementsAre(" slower", "layers.*.mlp.down slower", "sampler same"));
  EXPECT_THAT(verdicts(compare_traces(base, faster)),
              ElementsAre(" faster", "layers.*.mlp.down faster", "sampler same"));
  EXPECT_THAT(verdicts(compare_traces(base, noise)), ElementsAre(" same", "layers.*.mlp.down same", "sampler same"));
  EXPECT_THAT(verdicts(compare_traces(base, slower, {.threshold = 0.5})),
              ElementsAre(" same", "layers.*.mlp.down same", "sampler same"));
  const OpChange down = compare_traces(base, slower)[1];
  EXPECT_EQ(down.us_a, 52);
  EXPECT_EQ(down.us_b, 62);
  EXPECT_EQ(down.steps_a, 20u);
}

TEST(CompareTraces, SaysWhatOnlyOneHasAndWhatTheHostAdds) {
  Events e = run(50, 30);
  e.op(5, 1, "norm", R"("op":"norm","component":"device.cpu")");
  EXPECT_THAT(verdicts(compare_traces(run(50).read(), e.read())),
              ElementsAre(" slower", "norm only B", "layers.*.mlp.down same", "sampler same"));
}

}  // namespace
}  // namespace tenon::profiler
