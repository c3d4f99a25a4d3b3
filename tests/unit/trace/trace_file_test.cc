// Traces of every writer become tracks, slices and arguments.
#include "tenon/profiler/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "temp_folder.h"
#include "tenon/core/error.h"

namespace tenon::profiler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TraceFile read(std::string_view events) {
  return read_trace_bytes('[' + std::string(events) + ']', "test.json");
}

std::string lane_names(const TraceFile& file, uint32_t track, size_t depth) {
  std::string names;
  const auto& lanes = file.tracks[track].lanes;
  for (uint32_t i = lanes[depth]; i < lanes[depth + 1]; ++i) names += std::string(file.name(file.slices[i])) + ' ';
  return names;
}

std::string slice(const std::string& name, int begin, int duration, const std::string& more = {}) {
  return R"({"ph":"X","pid":1,"tid":7,"ts":)" + std::to_string(begin) + R"(,"dur":)" + std::to_string(duration) +
         R"(,"name":")" + name + '"' + more + "},";
}

TEST(TraceFile, SlicesNestWhateverTheirOrderInTheFile) {
  const TraceFile file = read(slice("inner", 2, 3) + slice("next", 20, 1) + slice("outer", 0, 10) +
                              slice("second", 5, 5) + R"({"ph":"X","pid":1,"tid":7,"ts":2,"dur":1,"name":"leaf"})");
  ASSERT_EQ(file.tracks.size(), 1U);
  ASSERT_EQ(file.tracks[0].depth(), 3U);
  EXPECT_EQ(lane_names(file, 0, 0), "outer next ");
  EXPECT_EQ(lane_names(file, 0, 1), "inner second ");
  EXPECT_EQ(lane_names(file, 0, 2), "leaf ");
  const uint32_t inner = file.slice_at(0, 1, 2000);
  EXPECT_EQ(file.name(file.slices[file.parent(inner)]), "outer");
  const auto [first, last] = file.children(file.parent(inner));
  EXPECT_EQ(last - first, 2U);
  EXPECT_EQ(file.slice_at(0, 1, 1999), kNoIndex);
  EXPECT_EQ(file.slice_at(0, 0, 15'000), kNoIndex);
  EXPECT_EQ(file.begin_ns, 0);
  EXPECT_EQ(file.end_ns, 21'000);
  EXPECT_TRUE(file.notices.empty());
}

TEST(TraceFile, OverlappingSlicesAreAllKeptAndSaid) {
  const TraceFile file = read(slice("a", 0, 10) + slice("b", 5, 10) + slice("c", 12, 1) +
                              R"({"ph":"X","pid":1,"tid":7,"ts":15,"dur":1,"name":"d"})");
  EXPECT_EQ(lane_names(file, 0, 0), "a d ");
  EXPECT_EQ(lane_names(file, 0, 1), "b ");
  EXPECT_EQ(lane_names(file, 0, 2), "c ");
  EXPECT_THAT(file.notices, ElementsAre(HasSubstr("1 slices end after the one they begin in")));
}

TEST(TraceFile, ArgumentsOfEveryKindComeBack) {
  const TraceFile file =
      read(R"({"ph":"X","pid":1,"tid":7,"ts":0,"dur":1,"name":"n","args":{"i":-3,"big":9007199254740993,"d":3512.125,)"
           R"("third":0.3333333333333333,"text":"gemv","t":true,"f":false,"none":null,"list":[1, {"a": "b"}]}})");
  const TraceSlice& s = file.slices[0];
  EXPECT_EQ(file.number(s, "i"), -3);
  EXPECT_EQ(file.args.find(s.args, file.strings.find("big"))->integer, 9007199254740993);
  EXPECT_EQ(file.number(s, "d"), 3512.125);
  EXPECT_EQ(file.number(s, "third"), 0.3333333333333333);
  EXPECT_EQ(file.text(s, "text"), "gemv");
  EXPECT_EQ(file.number(s, "t"), 1);
  EXPECT_EQ(file.number(s, "f"), 0);
  EXPECT_EQ(file.number(s, "none"), std::nullopt);
  EXPECT_EQ(file.text(s, "list"), R"([1,{"a":"b"}])");
  EXPECT_EQ(file.number(s, "text"), std::nullopt);
  EXPECT_EQ(file.text(s, "absent"), std::nullopt);
  EXPECT_EQ(file.args.all(s.args).size(), 9U);
}

TEST(TraceFile, BeginsPairWithEnds) {
  const TraceFile file = read(
      R"({"ph":"B","pid":1,"tid":7,"ts":0,"name":"a"},{"ph":"B","pid":1,"tid":7,"ts":1,"name":"b"},)"
      R"({"ph":"E","pid":1,"tid":7,"ts":4,"args":{"x":1}},{"ph":"E","pid":1,"tid":7,"ts":9},{"ph":"E","pid":1,"tid":7,"ts":9},)"
      R"({"ph":"B","pid":1,"tid":7,"ts":10,"name":"open"},{"ph":"i","pid":1,"tid":7,"ts":12,"name":"now","s":"t"})");
  EXPECT_EQ(lane_names(file, 0, 0), "a open ");
  const TraceSlice& b = file.slices[file.tracks[0].lanes[1]];
  EXPECT_EQ(b.duration_ns, 3000);
  EXPECT_EQ(file.number(b, "x"), 1);
  EXPECT_EQ(file.slices[1].duration_ns, 2000);
  EXPECT_EQ(file.instants.size(), 1U);
  EXPECT_THAT(file.notices, ElementsAre(HasSubstr("1 ends without a begin"), HasSubstr("1 begins without an end")));
}

TEST(TraceFile, AsynchronousSpansShareRowsWhereTheyDoNotOverlap) {
  const auto span = [](const char* id, int from, int to) {
    const auto event = [&](const char* phase, int ts) {
      return std::string(R"({"ph":")") + phase + R"(","pid":2,"cat":"request","name":"req","id2":{"local":")" + id +
             R"("},"ts":)" + std::to_string(ts) + "},";
    };
    return event("b", from) + event("b", from) + event("e", from + 1) + event("e", to);
  };
  const TraceFile file = read(span("0x1", 0, 10) + span("0x2", 5, 20) + span("0x3", 10, 12) +
                              R"({"ph":"n","pid":2,"cat":"request","name":"first","id2":{"local":"0x2"},"ts":6})");
  ASSERT_EQ(file.tracks.size(), 2U);
  EXPECT_EQ(file.tracks[0].name, "request");
  EXPECT_EQ(file.tracks[0].kind, TraceTrack::Kind::kAsync);
  EXPECT_EQ(lane_names(file, 0, 0), "req req ");
  EXPECT_EQ(lane_names(file, 1, 1), "req ");
  ASSERT_EQ(file.instants.size(), 1U);
  EXPECT_EQ(file.instants[0].track, 1U);
}

TEST(TraceFile, TracksAreNamedAndSorted) {
  const TraceFile file = read(
      R"({"ph":"X","pid":9,"tid":1,"ts":0,"dur":1,"name":"x"},{"ph":"X","pid":"Spans","tid":"PyTorch","ts":0,"dur":1,"name":"x"},)"
      R"({"ph":"X","pid":1,"tid":4,"ts":0,"dur":1,"name":"x"},{"ph":"X","pid":1,"tid":3,"ts":0,"dur":1,"name":"x"},)"
      R"({"ph":"M","pid":1,"tid":4,"name":"thread_sort_index","args":{"sort_index":-1}},)"
      R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"engine"}},)"
      R"({"ph":"M","pid":"Spans","name":"process_sort_index","args":{"sort_index":5}},)"
      R"({"ph":"M","pid":"Spans","name":"process_name","args":{"name":"spans"}},)"
      R"({"ph":"M","pid":1,"tid":3,"name":"thread_name","args":{"name":"main"}})");
  std::vector<std::string> names;
  for (const TraceTrack& t : file.tracks) names.push_back(file.processes[t.process].name + '/' + t.name);
  EXPECT_THAT(names, ElementsAre("engine/thread 4", "engine/main", "process 9/thread 1", "spans/PyTorch"));
}

TEST(TraceFile, CountersHaveASeriesForEachKey) {
  const TraceFile file = read(
      R"({"ph":"C","pid":3,"ts":2,"name":"kv","args":{"value":7}},{"ph":"C","pid":3,"ts":1,"name":"kv","args":{"value":5.5}},)"
      R"({"ph":"C","pid":3,"ts":1,"name":"mem","args":{"used":1,"free":2}},{"ph":"C","pid":3,"ts":1,"name":"mem","args":{"used":null}})");
  ASSERT_EQ(file.counters.size(), 3U);
  EXPECT_EQ(file.counters[0].name, "kv");
  ASSERT_EQ(file.counters[0].points.size(), 2U);
  EXPECT_EQ(file.counters[0].points[0].value, 5.5);
  EXPECT_EQ(file.counters[1].name, "mem used");
  EXPECT_THAT(file.notices, ElementsAre(HasSubstr("no value")));
}

TEST(TraceFile, FlowsLeadFromTheLaunchToEveryKernel) {
  const std::string flow = R"("pid":1,"tid":7,"cat":"ac2g","name":"ac2g")";
  const TraceFile file =
      read(slice("launch", 0, 2) + slice("k1", 10, 5) + slice("k2", 20, 5) + R"({"ph":"s","id":1,"ts":1,)" + flow +
           R"(},{"ph":"f","bp":"e","id":1,"ts":10,)" + flow + R"(},{"ph":"f","bp":"e","id":1,"ts":20,)" + flow +
           R"(},{"ph":"f","id":2,"ts":20,)" + flow + R"(},{"ph":"s","id":3,"ts":7,)" + flow + '}');
  ASSERT_EQ(file.flows.size(), 2U);
  EXPECT_EQ(file.name(file.slices[file.flows[1].from]), "launch");
  EXPECT_EQ(file.name(file.slices[file.flows[1].to]), "k2");
  EXPECT_THAT(file.notices, ElementsAre(HasSubstr("2 flows lead")));
}

TEST(TraceFile, MetadataOfTheObjectForm) {
  const std::string toml(100'000, '#');
  const TraceFile file =
      read_trace_bytes(R"({"schemaVersion":1,"deviceProperties":[{"id":0,"name":"H100"}],"traceEvents":[)" +
                           slice("a", 0, 1) + R"({"ph":"X","pid":1,"tid":7,"ts":3,"dur":1,"name":"b"}],)" +
                           R"("metadata":{"model":"m\"n","pipeline_toml":")" + toml +
                           R"(","read_bandwidth_gbps":3012.5,"dropped_records":4}})",
                       "test.json");
  EXPECT_EQ(file.meta("model"), "m\"n");
  EXPECT_EQ(file.meta("pipeline_toml")->size(), toml.size());
  EXPECT_EQ(file.meta("read_bandwidth_gbps"), "3012.5");
  EXPECT_EQ(file.meta("deviceProperties"), R"([{"id":0,"name":"H100"}])");
  EXPECT_EQ(file.meta("absent"), std::nullopt);
  EXPECT_THAT(file.notices, ElementsAre(HasSubstr("4 records were lost")));
}

TEST(TraceFile, NanosecondsSince1970AreKept) {
  const TraceFile file = read(
      R"({"ph":"X","pid":1,"tid":7,"ts":1795300433403399.504,"dur":0.001,"name":"a"},{"ph":"X","pid":1,"tid":7,"ts":"5","dur":1,"name":"quoted"})");
  EXPECT_EQ(file.slices[1].begin_ns, 1795300433403399504);
  EXPECT_EQ(file.slices[1].duration_ns, 1);
}

TEST(TraceFile, GzippedAndPlainFilesReadTheSame) {
  const std::string text = '[' + slice("a", 0, 1) + R"({"ph":"X","pid":1,"tid":7,"ts":3,"dur":1,"name":"b"}])";
  const TempFolder folder;
  const gzFile out = gzopen(folder.file("t.json.gz").c_str(), "wb");
  ASSERT_EQ(gzwrite(out, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(out);
  EXPECT_EQ(read_trace(folder.file("t.json.gz")).slices.size(), 2U);
  EXPECT_THROW(read_trace(folder.file("absent.json")), Error);
}

TEST(TraceFile, AKernelWithAllItsArgumentsTakesLessThan120Bytes) {
  std::string events;
  constexpr int kEvents = 100'000;
  for (int i = 0; i < kEvents; ++i) {
    const std::string n = std::to_string(i);
    events += slice("layers." + std::to_string(i % 32) + ".mlp.down/product", 10 * i, 9,
                    R"(,"cat":"kernel","args":{"kernel":"gemv","device":0,"stream":7,"correlation":)" + n +
                        R"(,"graph_node":")" + std::to_string(i % 161) + R"(","run":)" + n +
                        R"(,"component":"quantization.int4wo","op":"product","layer":3,"bytes_read":33554432,)" +
                        R"("bytes_written":8192,"flops":67108864,"gbps":3)" + n + R"(.125,"peak_pct":61.)" + n + "}");
  }
  events.pop_back();
  const TraceFile file = read(events);
  EXPECT_EQ(file.slices.size(), static_cast<size_t>(kEvents));
  EXPECT_LT(static_cast<double>(file.bytes()) / kEvents, 120);
}

}  // namespace
}  // namespace tenon::profiler
