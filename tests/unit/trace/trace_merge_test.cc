// These tests merge traces of several processes, whose numbers, names and ids are the same on purpose: nothing of one
// may become part of another, and what happened at once stands at one time.
#include "tenon/profiler/trace_merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <tuple>

#include "temp_folder.h"
#include "tenon/core/error.h"
#include "tenon/profiler/trace_check.h"

namespace tenon::profiler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Returns the events of one process and one GPU. Times are in microseconds; `rank` is in the names.
std::string events(const std::string& rank, int begin) {
  const auto at = [&](int us) { return R"("ts":)" + std::to_string(begin + us); };
  return R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"engine"}},
{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":5}},
{"ph":"M","pid":2,"name":"process_name","args":{"name":"GPU 0"}},
{"ph":"M","pid":2,"name":"process_sort_index","args":{"sort_index":1}},
{"ph":"M","pid":1,"tid":7,"name":"thread_name","args":{"name":"worker"}},
{"ph":"M","pid":1,"tid":8,"name":"thread_name","args":{"name":"worker"}},
{"ph":"X","pid":1,"tid":7,)" +
         at(0) + R"(,"dur":40,"name":"step )" + rank + R"("},
{"ph":"X","pid":1,"tid":7,)" +
         at(10) + R"(,"dur":5,"cat":"cuda_runtime","name":"launch )" + rank +
         R"(","args":{"a":1,"b":[1,2],"c":true,"d":"x\n","e":0.1,"f":null}},
{"ph":"X","pid":1,"tid":8,)" +
         at(0) + R"(,"dur":40,"name":"share )" + rank + R"("},
{"ph":"X","pid":2,"tid":7,)" +
         at(20) + R"(,"dur":5,"cat":"kernel","name":"gemv )" + rank + R"("},
{"ph":"s","pid":1,"tid":7,)" +
         at(10) + R"(,"cat":"ac2g","name":"ac2g","id":5},
{"ph":"f","pid":2,"tid":7,)" +
         at(20) + R"(,"cat":"ac2g","name":"ac2g","id":5,"bp":"e"},
{"ph":"i","pid":1,"tid":7,)" +
         at(11) + R"(,"s":"t","name":"mark )" + rank + R"("},
{"ph":"C","pid":1,)" +
         at(11) + R"(,"name":"kv )" + rank + R"(","args":{"value":4.5}},
{"ph":"b","pid":1,)" +
         at(1) + R"(,"cat":"request","id":"0x1","name":"request )" + rank + R"("},
{"ph":"b","pid":1,)" +
         at(2) + R"(,"cat":"request","id":"0x1","name":"decode )" + rank + R"("},
{"ph":"e","pid":1,)" +
         at(30) + R"(,"cat":"request","id":"0x1","name":"decode )" + rank + R"("},
{"ph":"e","pid":1,)" +
         at(31) + R"(,"cat":"request","id":"0x1","name":"request )" + rank + R"("})";
}

TraceFile trace(const std::string& rank, int begin, int64_t base_ns, const std::string& metadata = "") {
  return read_trace_bytes(R"({"traceEvents":[)" + events(rank, begin) + R"(],"baseTimeNanoseconds":)" +
                              std::to_string(base_ns) + R"(,"metadata":{)" + metadata + "}}",
                          rank + ".json");
}

class MergeTraces : public ::testing::Test {
 protected:
  // What the merged file says of itself is checked as `tenon trace check` does.
  TraceFile merged(const std::vector<TraceFile>& traces, const std::vector<std::string>& names) {
    notices_ = merge_traces(traces, names, path_);
    for (const Finding& f : check_trace(path_).findings) ADD_FAILURE() << to_string(f, path_);
    return read_trace(path_);
  }

  TempFolder folder_;
  std::string path_ = folder_.file("merged.json");
  std::vector<std::string> notices_;
};

// Returns everything that has a time, by name, in nanoseconds since the epoch: begin and end.
std::set<std::tuple<std::string, int64_t, int64_t>> times(const TraceFile& t) {
  const int64_t base = std::stoll(std::string(t.meta("baseTimeNanoseconds").value_or("0")));
  std::set<std::tuple<std::string, int64_t, int64_t>> all;
  for (const TraceSlice& s : t.slices) all.emplace(t.name(s), base + s.begin_ns, base + s.end_ns());
  for (const TraceInstant& i : t.instants) all.emplace(t.strings[i.name], base + i.ns, base + i.ns);
  for (const TraceCounter& c : t.counters) {
    for (const TraceCounter::Point& p : c.points) all.emplace(c.name, base + p.ns, base + p.ns);
  }
  return all;
}

// Whichever comes first on the command line, and wherever a trace's own zero is.
TEST_F(MergeTraces, KeepEveryTimeSinceTheEpoch) {
  std::vector<TraceFile> traces;
  traces.push_back(trace("a", 100, 1'700'000'000'000'500'000));
  traces.push_back(trace("b", 3000, 1'700'000'000'000'000'123));
  traces.push_back(trace("c", 0, 1'700'000'000'000'300'000));
  std::set<std::tuple<std::string, int64_t, int64_t>> expected;
  for (const TraceFile& t : traces) expected.merge(times(t));
  ASSERT_EQ(expected.size(), 3 * 8u);
  std::vector<std::string> names = {"a", "b", "c"};
  for (int turn = 0; turn < 3; ++turn) {
    const TraceFile all = merged(traces, names);
    EXPECT_THAT(notices_, IsEmpty());
    EXPECT_EQ(times(all), expected);
    EXPECT_EQ(all.begin_ns, 0);  // that of the earliest trace
    EXPECT_EQ(all.meta("baseTimeNanoseconds"), "1700000000000300000");
    std::rotate(traces.begin(), traces.begin() + 1, traces.end());
    std::rotate(names.begin(), names.begin() + 1, names.end());
  }
}

TEST_F(MergeTraces, ShowTheProcessesOfEachBesideOneAnother) {
  std::vector<TraceFile> traces;
  traces.push_back(trace("b", 0, 2'000'000));
  traces.push_back(trace("a", 0, 1'000'000));
  const TraceFile all = merged(traces, {"second", "first"});
  std::vector<std::string> names;
  std::set<int64_t> pids;
  for (const TraceTrack& t : all.tracks) {
    const std::string& name = all.processes[t.process].name;
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  for (const TraceProcess& p : all.processes) pids.insert(p.pid);
  EXPECT_THAT(names, ElementsAre("second: GPU 0", "second: engine", "first: GPU 0", "first: engine"));
  EXPECT_EQ(pids.size(), 4u);
}

TEST_F(MergeTraces, KeepTracksOfEqualNamesApart) {
  std::vector<TraceFile> traces;
  traces.push_back(trace("a", 0, 1'000'000));
  traces.push_back(trace("b", 0, 1'005'000));  // within the other one's slices
  const TraceFile all = merged(traces, {"one", "two"});
  std::vector<std::string> found;
  for (const TraceTrack& t : all.tracks) {
    if (t.kind != TraceTrack::Kind::kThread || t.name != "worker") continue;
    std::string text = all.processes[t.process].name + ' ' + std::to_string(t.tid) + ':';
    for (size_t depth = 0; depth < t.depth(); ++depth) {
      for (uint32_t s = t.lanes[depth]; s < t.lanes[depth + 1]; ++s) {
        text += ' ' + std::to_string(depth) + ' ' + std::string(all.name(all.slices[s]));
      }
    }
    found.push_back(std::move(text));
  }
  EXPECT_THAT(found, UnorderedElementsAre("one: engine 7: 0 step a 1 launch a", "one: engine 8: 0 share a",
                                          "two: engine 7: 0 step b 1 launch b", "two: engine 8: 0 share b"));
}

TEST_F(MergeTraces, KeepRequestsAndFlowsOfEqualIdsApart) {
  std::vector<TraceFile> traces;
  traces.push_back(trace("a", 0, 1'000'000));
  traces.push_back(trace("b", 0, 1'005'000));
  const TraceFile all = merged(traces, {"one", "two"});
  std::vector<std::string> inner, flows;
  for (uint32_t s = 0; s < all.slices.size(); ++s) {
    if (!all.name(all.slices[s]).starts_with("decode")) continue;
    ASSERT_NE(all.parent(s), kNoIndex);
    inner.push_back(std::string(all.name(all.slices[s])) + " in " + std::string(all.name(all.slices[all.parent(s)])));
  }
  for (const TraceFlow& f : all.flows) {
    flows.push_back(std::string(all.name(all.slices[f.from])) + " to " + std::string(all.name(all.slices[f.to])));
  }
  EXPECT_THAT(inner, UnorderedElementsAre("decode a in request a", "decode b in request b"));
  EXPECT_THAT(flows, UnorderedElementsAre("launch a to gemv a", "launch b to gemv b"));
}

TEST_F(MergeTraces, KeepArgumentsAndCounters) {
  path_ = folder_.file("merged.json.gz");
  std::vector<TraceFile> traces;
  traces.push_back(trace("a", 0, 1'000'000));
  traces.push_back(trace("b", 0, 1'000'000));
  const TraceFile all = merged(traces, {"one", "two"});
  EXPECT_THAT(folder_.bytes(path_).substr(0, 2), "\x1f\x8b");
  size_t launches = 0;
  for (const TraceSlice& s : all.slices) {
    if (!all.name(s).starts_with("launch")) continue;
    ++launches;
    EXPECT_EQ(all.category(s), "cuda_runtime");
    EXPECT_EQ(all.args.all(s.args).size(), 6u);
    EXPECT_EQ(all.number(s, "e"), 0.1);
    EXPECT_EQ(all.text(s, "d"), "x\n");
  }
  EXPECT_EQ(launches, 2u);
  std::vector<std::string> counters;
  for (const TraceCounter& c : all.counters) {
    counters.push_back(all.processes[c.process].name + ' ' + c.name);
    EXPECT_EQ(c.points.at(0).value, 4.5);
  }
  EXPECT_THAT(counters, UnorderedElementsAre("one: engine kv a", "two: engine kv b"));
}

TEST_F(MergeTraces, SayWhatEachSaidOfItself) {
  std::vector<TraceFile> traces;
  traces.push_back(trace("a", 0, 0, R"("model":"x","dropped_records":2,"list":"[1]")"));
  traces.push_back(trace("b", 0, 0, R"("model":"y","dropped_records":3)"));
  merge_traces(traces, std::vector<std::string>{"one", "two"}, path_);
  const TraceFile all = read_trace(path_);
  EXPECT_EQ(all.meta("model"), "x");
  EXPECT_EQ(all.meta("two.model"), "y");
  EXPECT_EQ(all.meta("list"), "[1]");
  EXPECT_EQ(all.meta("dropped_records"), "5");
}

// A trace of another program has no base: it begins when the earliest of the others does.
TEST_F(MergeTraces, SayWhichHaveNoClock) {
  std::vector<TraceFile> traces;
  traces.push_back(read_trace_bytes("[" + events("a", 700) + "]", "a.json"));
  traces.push_back(trace("b", 10, 1'000'000));
  const TraceFile all = merged(traces, {"one", "two"});
  EXPECT_THAT(notices_, ElementsAre(HasSubstr("a.json: it has no baseTimeNanoseconds")));
  std::vector<int64_t> begins;
  for (const TraceSlice& s : all.slices) {
    if (all.name(s).starts_with("step")) begins.push_back(s.begin_ns);
  }
  EXPECT_THAT(begins, ElementsAre(0, 0));
  EXPECT_EQ(all.meta("baseTimeNanoseconds"), "1010000");
}

// Of a file that is cut anywhere, what stands before the cut is merged, and the
// notices say of which file something is missing.
TEST_F(MergeTraces, TakeWhatIsLeftOfADamagedFile) {
  const std::string whole = R"({"baseTimeNanoseconds":1000000,"traceEvents":[)" + events("b", 0) + "]}";
  size_t cut_files = 0, slices = 0;
  for (size_t length = whole.size(); length > 0; length -= std::min<size_t>(length, 13)) {
    SCOPED_TRACE(length);
    std::vector<TraceFile> traces;
    traces.push_back(trace("a", 0, 1'000'000));
    try {
      traces.push_back(read_trace_bytes(whole.substr(0, length), "b.json"));
    } catch (const Error&) {
      continue;  // there was nothing to be read
    }
    const TraceFile all = merged(traces, {"one", "two"});
    EXPECT_EQ(all.slices.size(), traces[0].slices.size() + traces[1].slices.size());
    slices = std::max(slices, traces[1].slices.size());
    if (length == whole.size()) {
      EXPECT_THAT(notices_, IsEmpty());
    } else {
      ++cut_files;
      EXPECT_THAT(notices_, Contains(testing::StartsWith("b.json: ")));
    }
  }
  EXPECT_EQ(slices, 6u);
  EXPECT_GT(cut_files, 50u);
}

TEST_F(MergeTraces, LeaveAFileThatIsThere) {
  std::vector<TraceFile> traces;
  traces.push_back(trace("a", 0, 0));
  std::ofstream(path_) << "mine";
  EXPECT_THROW(merge_traces(traces, std::vector<std::string>{"a"}, path_, false), Error);
  EXPECT_EQ(folder_.bytes(path_), "mine");
}

}  // namespace
}  // namespace tenon::profiler
