// For each silent loss a good trace is spoiled in one place. Each must be found, and nothing else.
#include "tenon/profiler/trace_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tenon::profiler {
namespace {

using testing::HasSubstr;

constexpr std::string_view kGood = R"({"traceEvents":[
{"ph":"M","pid":1,"name":"process_name","args":{"name":"engine"}},
{"ph":"M","pid":1,"tid":7,"name":"thread_name","args":{"name":"main"}},
{"ph":"X","pid":1,"tid":7,"ts":2.000,"dur":1.500,"cat":"cpu_op","name":"child","args":{"flops":12,"bytes":3.5}},
{"ph":"X","pid":1,"tid":7,"ts":3.500,"dur":0.500,"cat":"cpu_op","name":"second child","args":{}},
{"ph":"X","pid":1,"tid":7,"ts":1.000,"dur":3.000,"cat":"cpu_op","name":"parent"},
{"ph":"i","pid":1,"tid":7,"ts":1.5,"s":"t","name":"mark"},
{"ph":"b","pid":2,"ts":0.000,"cat":"request","id":"0x11","name":"req 17"},
{"ph":"b","pid":2,"ts":0.000,"cat":"request","id":"0x11","name":"queued"},
{"ph":"e","pid":2,"ts":2.000,"cat":"request","id":"0x11","name":"queued"},
{"ph":"b","pid":2,"ts":2.000,"cat":"request","id":17,"name":"prefill"},
{"ph":"n","pid":2,"ts":2.500,"cat":"request","id":"0x11","name":"first token"},
{"ph":"e","pid":2,"ts":3.000,"cat":"request","id":"0x11","name":"prefill"},
{"ph":"e","pid":2,"ts":3.000,"cat":"request","id":"0x11","name":"req 17"},
{"ph":"C","pid":3,"ts":2.000,"name":"kv_used_bytes","args":{"value":4096}},
{"ph":"X","pid":100,"tid":1007,"ts":5.000,"dur":1.000,"cat":"kernel","name":"gemv","args":{"stream":7}},
{"ph":"s","pid":1,"tid":7,"ts":2.500,"cat":"ac2g","name":"ac2g","id":5},
{"ph":"f","pid":100,"tid":1007,"ts":5.000,"cat":"ac2g","name":"ac2g","id":"0x5","bp":"e"},
{"ph":"f","pid":100,"tid":1007,"ts":5.500,"cat":"ac2g","name":"ac2g","id":5,"bp":"e"}
],"baseTimeNanoseconds":1763716000123456789,"metadata":{"mode":"graph","dropped_records":0}})";

TEST(TraceCheck, FindsNothingInAGoodTrace) {
  const CheckReport report = check_trace_bytes(kGood);
  for (const Finding& finding : report.findings) ADD_FAILURE() << to_string(finding, "good");
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.events, 18);
  EXPECT_EQ(report.slices, 4);
  EXPECT_EQ(report.counters, 1);
  EXPECT_EQ(report.request_events, 7);
  EXPECT_EQ(report.flow_events, 3);
}

struct Spoiled {
  const char* test;
  std::string_view from;
  std::string_view to;
  std::string_view rule;
  std::string_view event;
  std::string_view found;
  Severity severity = Severity::kLoss;
};

void PrintTo(const Spoiled& spoiled, std::ostream* out) {
  *out << spoiled.test;
}

std::string test_name(const testing::TestParamInfo<Spoiled>& spoiled) {
  return spoiled.param.test;
}

class SilentLoss : public testing::TestWithParam<Spoiled> {};

TEST_P(SilentLoss, IsFound) {
  const Spoiled& spoiled = GetParam();
  std::string text(kGood);
  const size_t at = text.find(spoiled.from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, spoiled.from.size(), spoiled.to);
  const CheckReport report = check_trace_bytes(text);
  std::string all;
  for (const Finding& finding : report.findings) all += to_string(finding, "spoiled") + '\n';
  ASSERT_EQ(report.findings.size(), 1) << all;
  const Finding& finding = report.findings[0];
  EXPECT_EQ(finding.rule, spoiled.rule);
  EXPECT_EQ(finding.event, spoiled.event);
  EXPECT_EQ(finding.severity, spoiled.severity);
  EXPECT_EQ(report.ok(), spoiled.severity == Severity::kNotice);
  EXPECT_THAT(finding.found, HasSubstr(spoiled.found));
  EXPECT_FALSE(finding.right.empty());
}

constexpr std::string_view kQueuedEnd = R"({"ph":"e","pid":2,"ts":2.000,"cat":"request","id":"0x11","name":"queued"},
{"ph":"b","pid":2,"ts":2.000,"cat":"request","id":17,"name":"prefill"},)";
constexpr std::string_view kPrefillFirst = R"({"ph":"b","pid":2,"ts":2.000,"cat":"request","id":17,"name":"prefill"},
{"ph":"e","pid":2,"ts":2.000,"cat":"request","id":"0x11","name":"queued"},)";
constexpr std::string_view kRequestEnd =
    R"({"ph":"e","pid":2,"ts":3.000,"cat":"request","id":"0x11","name":"req 17"},)";
constexpr std::string_view kStart = R"({"ph":"s","pid":1,"tid":7,"ts":2.500,"cat":"ac2g","name":"ac2g","id":5},)";
constexpr std::string_view kLoneStart = R"({"ph":"s","pid":1,"tid":7,"ts":2.500,"cat":"ac2g","name":"ac2g","id":5},
{"ph":"s","pid":1,"tid":7,"ts":2.500,"cat":"ac2g","name":"ac2g","id":6},)";
constexpr std::string_view kMark = R"({"ph":"i","pid":1,"tid":7,"ts":1.5,"s":"t","name":"mark"},)";

INSTANTIATE_TEST_SUITE_P(
    Numbers, SilentLoss,
    testing::Values(
        Spoiled{"NotANumber", R"("flops":12)", R"("flops":NaN)", "non-finite", "child", "NaN"},
        Spoiled{"PrintedNan", R"("flops":12)", R"("flops":nan)", "non-finite", "child", "nan"},
        Spoiled{"PrintedNegativeNan", R"("flops":12)", R"("flops":-nan)", "non-finite", "child", "-nan"},
        Spoiled{"Infinity", R"("bytes":3.5)", R"("bytes":-Infinity)", "non-finite", "child", "-Infinity"},
        Spoiled{"PrintedInfinity", R"("bytes":3.5)", R"("bytes":inf)", "non-finite", "child", "inf"},
        Spoiled{"BeyondDouble", R"("bytes":3.5)", R"("bytes":1e999)", "non-finite", "child", "1e999"},
        Spoiled{"NestedNotANumber", R"("bytes":3.5)", R"("bytes":{"a":[1,NaN]})", "non-finite", "child", "NaN"},
        Spoiled{"BeyondInt64", R"("flops":12)", R"("flops":9223372036854775808)", "integer-range", "child",
                "9223372036854775808"},
        Spoiled{"FourDecimals", R"("ts":2.000,"dur":1.500)", R"("ts":2.0001,"dur":1.4)", "decimals", "child", "2.0001"},
        Spoiled{"SmallExponent", R"("ts":2.000,"dur":1.500)", R"("ts":2,"dur":15e-5)", "decimals", "child", "15e-5"},
        Spoiled{"NegativeDuration", R"("dur":1.500)", R"("dur":-0.001)", "negative", "child", "-0.001"},
        Spoiled{"NegativeTime", R"("ts":1.5,)", R"("ts":-1.5,)", "negative", "mark", "-1.5"},
        Spoiled{"EpochTime", R"("ts":1.5,)", R"("ts":1763716000123456.789,)", "epoch", "mark", "1763716000123456.789"},
        Spoiled{"CounterNull", R"("value":4096)", R"("value":null)", "counter-value", "kv_used_bytes", "no number"},
        Spoiled{"CounterText", R"("value":4096)", R"("value":"4096")", "counter-value", "kv_used_bytes", "no number"},
        Spoiled{"CounterEmpty", R"("value":4096)", "", "counter-value", "kv_used_bytes", "no value"},
        Spoiled{"CounterInfinite", R"("value":4096)", R"("value":1,"more":1e400)", "non-finite", "kv_used_bytes",
                "1e400"}),
    test_name);

INSTANTIATE_TEST_SUITE_P(
    Tracks, SilentLoss,
    testing::Values(Spoiled{"ChildOneNanosecondLate", R"("ts":3.500,"dur":0.500)", R"("ts":3.500,"dur":0.501)",
                            "overlap", "second child", "ends 1 ns after \"parent\""},
                    Spoiled{"NeighboursOverlap", R"("ts":2.000,"dur":1.500)", R"("ts":2.000,"dur":1.501)", "overlap",
                            "second child", "after \"child\""},
                    Spoiled{"TidZero", R"("tid":7,"ts":2.000)", R"("tid":0,"ts":2.000)", "tid", "child", "tid 0"},
                    Spoiled{"TidNegative", R"("tid":7,"ts":2.000)", R"("tid":-7,"ts":2.000)", "tid", "child", "tid -7"},
                    Spoiled{"TidTooLarge", R"("tid":7,"ts":2.000)", R"("tid":4294967296,"ts":2.000)", "tid", "child",
                            "tid 4294967296"},
                    Spoiled{"ThreadNameTidZero", R"("tid":7,"name":"thread_name")", R"("tid":0,"name":"thread_name")",
                            "tid", "thread_name", "tid 0"},
                    Spoiled{"BeginWithoutEnd", kMark, R"({"ph":"B","pid":1,"tid":8,"ts":1,"name":"open"},)",
                            "begin-end", "open", "B without E"},
                    Spoiled{"EndWithoutBegin", kMark, R"({"ph":"E","pid":1,"tid":8,"ts":1,"name":"shut"},)",
                            "begin-end", "shut", "E without"}),
    test_name);

INSTANTIATE_TEST_SUITE_P(
    Pairs, SilentLoss,
    testing::Values(
        Spoiled{"RequestWithoutEnd", kRequestEnd, "", "async-unpaired", "req 17", "b without e"},
        Spoiled{"RequestEndOfAnotherId", R"("id":"0x11","name":"first token"})",
                R"("id":"0x11","name":"first token"},{"ph":"e","pid":2,"ts":1,"cat":"request","id":"0x12","name":"x"})",
                "async-unpaired", "x", "e without an open b"},
        Spoiled{"RequestEndInAnotherScope", kRequestEnd,
                R"({"ph":"e","pid":2,"ts":3.000,"cat":"request","id":"0x11","name":"req 17"},
{"ph":"e","pid":2,"ts":3.000,"cat":"request","id2":{"local":"0x11"},"name":"x"},)",
                "async-unpaired", "x", "e without an open b"},
        Spoiled{"BeginBeforeEndAtEqualTime", kQueuedEnd, kPrefillFirst, "async-order", "queued", "of the same time"},
        Spoiled{"FlowStartWithoutEnd", kStart, kLoneStart, "flow-unpaired", "ac2g", "s without"},
        Spoiled{"FlowEndWithoutStart", R"("ts":5.500,"cat":"ac2g","name":"ac2g","id":5)",
                R"("ts":5.500,"cat":"ac2g","name":"ac2g","id":6)", "flow-unpaired", "ac2g", "f without"},
        Spoiled{"FlowCategoriesDiffer", R"("ts":5.500,"cat":"ac2g")", R"("ts":5.500,"cat":"flow")", "flow-mismatch",
                "ac2g", "another cat"},
        Spoiled{"FlowNamesDiffer", R"("ts":5.500,"cat":"ac2g","name":"ac2g")", R"("ts":5.500,"cat":"ac2g","name":"x")",
                "flow-mismatch", "x", "another cat or name"},
        Spoiled{"FlowWithoutBind", R"("id":"0x5","bp":"e")", R"("id":"0x5")", "flow-bind", "ac2g", "bp"},
        Spoiled{"FlowOutsideOfSlices", R"("tid":1007,"ts":5.500)", R"("tid":1007,"ts":6.500)", "flow-unbound", "ac2g",
                "no slice"}),
    test_name);

INSTANTIATE_TEST_SUITE_P(
    Events, SilentLoss,
    testing::Values(
        Spoiled{"ControlCharacter", "second child", "second\x01 child", "control-character", "second\x01 child",
                "control character 1"},
        Spoiled{"RawNewline", R"("name":"mark")", "\"name\":\"a\nb\"", "control-character", "a\nb",
                "control character 10"},
        Spoiled{"InvalidUtf8", R"("name":"mark")", "\"name\":\"\xff\"", "utf8", "\xEF\xBF\xBD", "no UTF-8"},
        Spoiled{"HalfASurrogatePair", R"("name":"mark")", R"("name":"\ud800")", "utf8", "\xEF\xBF\xBD", "surrogate"},
        Spoiled{"NoPhase", R"("ph":"i",)", "", "missing-field", "mark", "has no ph"},
        Spoiled{"NoTime", R"("ts":1.5,)", "", "missing-field", "mark", "has no ts"},
        Spoiled{"NoDuration", R"("ts":2.000,"dur":1.500)", R"("ts":2.000)", "missing-field", "child", "has no dur"},
        Spoiled{"NoPid", R"("ph":"i","pid":1)", R"("ph":"i")", "missing-field", "mark", "has no pid"},
        Spoiled{"NoTid", R"("tid":7,"ts":2.000)", R"("ts":2.000)", "missing-field", "child", "has no tid"},
        Spoiled{"TextAsTime", R"("ts":1.5,)", R"("ts":"1.5",)", "wrong-type", "mark", "no number"},
        Spoiled{"TextAsPid", R"("ph":"i","pid":1)", R"("ph":"i","pid":"one")", "wrong-type", "mark", "no int64"},
        Spoiled{"NoObject", kMark, "17,", "missing-field", "", "no object"},
        Spoiled{"DroppedRecords", R"("dropped_records":0)", R"("dropped_records":3)", "dropped", "", "3 records"},
        Spoiled{"NoKernel", R"("cat":"kernel")", R"("cat":"cpu_op")", "no-kernels", "", "no event of cat \"kernel\""},
        Spoiled{"ProcessLabels", kMark, R"({"ph":"M","pid":1,"name":"process_labels","args":{"labels":"x"}},)",
                "ignored", "process_labels", "process_labels", Severity::kNotice},
        Spoiled{"ColourName", R"("s":"t")", R"("s":"t","cname":"good")", "ignored", "mark", "cname", Severity::kNotice},
        Spoiled{"StackFrames", R"("baseTimeNanoseconds":)", R"("stackFrames":{},"baseTimeNanoseconds":)", "ignored", "",
                "stackFrames", Severity::kNotice}),
    test_name);

TEST(TraceCheck, FindsFlowIdsThatAreNeitherIntegerNorHex) {
  std::string text(kGood);
  for (const std::string_view id : {R"("id":5})", R"("id":"0x5","bp")", R"("id":5,"bp")"}) {
    text.replace(text.find(id), id.size(), id.ends_with('}') ? R"("id":"five"})" : R"("id":"five","bp")");
  }
  const CheckReport report = check_trace_bytes(text);
  ASSERT_EQ(report.findings.size(), 3);
  for (const Finding& finding : report.findings) EXPECT_EQ(finding.rule, "flow-id");
}

TEST(TraceCheck, SaysWhyThereAreNoKernels) {
  std::string text(kGood);
  for (const auto& [from, to] : {std::pair(R"("cat":"kernel")", R"("cat":"cpu_op")"),
                                 std::pair(R"("mode":"graph")", R"("problem":"no CUPTI","mode":"graph")")}) {
    text.replace(text.find(from), std::string_view(from).size(), to);
  }
  const CheckReport report = check_trace_bytes(text);
  ASSERT_EQ(report.findings.size(), 1);
  EXPECT_EQ(report.findings[0].rule, "no-kernels");
  EXPECT_THAT(report.findings[0].found, HasSubstr("the trace says: no CUPTI"));
}

TEST(TraceCheck, SaysWhere) {
  std::string text(kGood);
  const size_t at = text.find("-1");
  ASSERT_EQ(at, std::string::npos);
  const std::string_view from = R"("ts":1.5,)";
  const size_t spoil = text.find(from);
  text.replace(spoil, from.size(), R"("ts":-1.5,)");
  const CheckReport report = check_trace_bytes(text);
  ASSERT_EQ(report.findings.size(), 1);
  EXPECT_EQ(report.findings[0].offset, spoil + 5);
  EXPECT_EQ(report.findings[0].line, 7);
  EXPECT_THAT(to_string(report.findings[0], "a.json"),
              HasSubstr("a.json:7: loss[negative]: \"mark\": \"ts\" is -1.5; "));
}

TEST(TraceCheck, CountsAllButKeepsAFew) {
  std::string text = "[";
  for (int i = 0; i < 100; ++i) text += R"({"ph":"i","pid":1,"ts":-1,"name":"x"},)";
  text.back() = ']';
  const CheckReport report = check_trace_bytes(text, {.max_per_rule = 3});
  EXPECT_EQ(report.losses, 100);
  EXPECT_EQ(report.findings.size(), 3);
}

TEST(TraceCheck, AcceptsTimesInAnyNotationThatIsExact) {
  for (const char* time : {"2", "2.0", "2.000000", "2e0", "0.002e3", "2000e-3", "2E+0", "0", "0.001", "1e3"}) {
    const std::string text = R"([{"ph":"i","pid":1,"tid":1,"name":"x","ts":)" + std::string(time) + "}]";
    const CheckReport report = check_trace_bytes(text);
    EXPECT_TRUE(report.findings.empty()) << to_string(report.findings[0], time);
  }
}

}  // namespace
}  // namespace tenon::profiler
