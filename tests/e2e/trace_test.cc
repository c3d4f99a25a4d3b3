// This runs `tenon trace` over what `tenon generate --trace` writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <ostream>
#include <sstream>

#include "program.h"

namespace tenon::e2e {
namespace {

using testing::HasSubstr;

// Returns a trace, which is written once for all tests.
const std::string& recorded() {
  static const std::string text = [] {
    const std::string path = temporary_folder() / "t.json";
    const Outcome run = tenon({"generate", kStories, "-p", "Once", "-n", "12", "--ignore-end", "--trace", path});
    return run.code == 0 ? read_file(path) : "";
  }();
  return text;
}

// Changes or drops the first event that says `what`, which stands on a line of its own.
std::string with_event(const std::string& what, const std::function<std::string(std::string)>& change) {
  std::string text = recorded();
  const size_t at = text.find(what);
  if (at == std::string::npos) return "";
  const size_t begin = text.rfind('\n', at) + 1, end = text.find('\n', at);
  return text.replace(begin, end - begin, change(text.substr(begin, end - begin)));
}

std::function<std::string(std::string)> replaced(const std::string& from, const std::string& to) {
  return [=](std::string line) {
    const size_t at = line.find(from);
    if (at == std::string::npos) return std::string();
    const size_t end = from.ends_with(':') ? line.find_first_of(",}", at + from.size()) : at + from.size();
    return line.replace(at, end - at, to);
  };
}

std::function<std::string(std::string)> followed_by(const std::string& event) {
  return [=](const std::string& line) { return line + '\n' + event; };
}

struct Loss {
  const char* name;
  const char* rule;
  const char* event;
  std::function<std::string(std::string)> change;
};

void PrintTo(const Loss& loss, std::ostream* out) {
  *out << loss.name;
}

class SilentLoss : public testing::TestWithParam<Loss> {};

TEST_P(SilentLoss, OfARealTraceIsFound) {
  ASSERT_NE(recorded(), "");
  const Loss& loss = GetParam();
  const std::string text = with_event(loss.event, loss.change);
  ASSERT_NE(text, "") << "no event has " << loss.event;
  ASSERT_NE(text, recorded());
  const std::filesystem::path path = temporary_folder() / (std::string(loss.name) + ".json");
  write_file(path, text);
  const Outcome check = tenon({"trace", "check", path});
  EXPECT_EQ(check.code, 1) << check.out;
  EXPECT_THAT(check.out, HasSubstr(std::string("loss[") + loss.rule + ']'));
}

constexpr const char* kOp = R"("cat":"cpu_op")";
constexpr const char* kStep = R"("name":"ProfilerStep#)";
constexpr const char* kCounter = R"("ph":"C")";
constexpr const char* kDropped = R"("dropped_records":)";

INSTANTIATE_TEST_SUITE_P(
    Times, SilentLoss,
    testing::Values(Loss{"FourDecimals", "decimals", kOp, replaced(R"("ts":)", R"("ts":5000000.0001)")},
                    Loss{"EpochValue", "epoch", kOp, replaced(R"("ts":)", R"("ts":1763716000123456.789)")},
                    Loss{"NegativeTime", "negative", kOp, replaced(R"("ts":)", R"("ts":-1.000)")},
                    Loss{"NegativeDuration", "negative", kOp, replaced(R"("dur":)", R"("dur":-1.000)")},
                    Loss{"ChildLongerThanItsParent", "overlap", R"("cat":"user_annotation","name":"prefill"})",
                         replaced(R"("dur":)", R"("dur":900000000.000)")},
                    Loss{"NoDuration", "missing-field", kOp, replaced(R"("dur":)", R"("x":1)")}),
    [](const auto& param) { return std::string(param.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Tracks, SilentLoss,
    testing::Values(Loss{"TidZero", "tid", kOp, replaced(R"("tid":)", R"("tid":0)")},
                    Loss{"TidNegative", "tid", kOp, replaced(R"("tid":)", R"("tid":-7)")},
                    Loss{"TidTooLarge", "tid", kOp, replaced(R"("tid":)", R"("tid":4294967296)")},
                    Loss{"AsyncWithoutEnd", "async-unpaired", kCounter,
                         followed_by(R"({"ph":"b","pid":2,"ts":1.000,"cat":"request","id":"0x99","name":"a"},)")},
                    Loss{"BeginBeforeEndAtEqualTime", "async-order", R"("ph":"C")",
                         followed_by(R"({"ph":"b","pid":2,"ts":1.000,"cat":"request","id":"0x99","name":"a"},)"
                                     R"({"ph":"b","pid":2,"ts":2.000,"cat":"request","id":"0x99","name":"b"},)"
                                     R"({"ph":"e","pid":2,"ts":2.000,"cat":"request","id":"0x99","name":"a"},)"
                                     R"({"ph":"e","pid":2,"ts":3.000,"cat":"request","id":"0x99","name":"b"},)")},
                    Loss{"FlowToNowhere", "flow-unpaired", kOp,
                         followed_by(R"({"ph":"s","pid":1,"tid":1,"ts":1.000,"cat":"ac2g","name":"ac2g","id":5},)")}),
    [](const auto& param) { return std::string(param.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Values, SilentLoss,
    testing::Values(
        Loss{"NotANumber", "non-finite", kOp, replaced(R"("flops":)", R"("flops":NaN)")},
        Loss{"Infinity", "non-finite", kOp, replaced(R"("flops":)", R"("flops":-Infinity)")},
        Loss{"AboveInt64", "integer-range", kOp, replaced(R"("flops":)", R"("flops":18446744073709551615)")},
        Loss{"CounterNull", "counter-value", kCounter, replaced(R"("value":)", R"("value":null)")},
        Loss{"RawControlCharacter", "control-character", kOp, replaced(R"("name":")", "\"name\":\"\x01")},
        Loss{"NoUtf8", "utf8", kOp, replaced(R"("name":")", "\"name\":\"\xff")},
        Loss{"RecordsDropped", "dropped", kDropped, replaced(kDropped, R"("dropped_records":12)")},
        Loss{"KernelsPromised", "no-kernels", R"("mode":"cpu")", replaced(R"("mode":"cpu")", R"("mode":"graph")")},
        Loss{"NotClosed", "syntax", kStep, [](const std::string& line) { return line.substr(0, line.size() - 2); }}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(Trace, HasASliceForWhatADraftTook) {
  const std::filesystem::path path = temporary_folder() / "draft.json";
  const Outcome run = tenon(Words{"generate", kStories, "-p", "1 2 3 1 2 3", "-n", "12", "--ignore-end", "--trace",
                                  path, "--set", "draft.use=ngram"} +
                            greedy());
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string text = read_file(path);
  EXPECT_THAT(text,
              HasSubstr(R"("cat":"user_annotation","name":"draft","args":{"component":"draft.ngram","proposed":)"));
  EXPECT_EQ(tenon({"trace", "check", path}).code, 0);
}

TEST(TraceCheck, FindsThatAFileWasCutAnywhere) {
  const std::string& text = recorded();
  const std::filesystem::path path = temporary_folder() / "cut.json";
  for (const size_t parts : {2, 3, 10}) {
    write_file(path, text.substr(0, text.size() / parts));
    EXPECT_EQ(tenon({"trace", "check", path}).code, 1);
  }
}

class Recorded : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(recorded(), "");
    write_file(path_, recorded());
  }
  const std::filesystem::path path_ = temporary_folder() / "t.json";
};

TEST_F(Recorded, HasWhatARunIsMadeOf) {
  for (const char* key :
       {R"("pipeline_toml":")", R"("negotiation":")", R"("memory_plan":")", R"("read_bandwidth_gbps":)",
        R"("tokens":")", R"("gbps":)", R"("peak_pct":)", R"("name":"kv_used_bytes")",
        R"("name":"kv_blocks_used","args":{"value":1})", R"("name":"tok_per_s")", R"("name":"read_gbps")",
        R"("deviceProperties":[{"id":0,"name":")"}) {
    EXPECT_THAT(recorded(), HasSubstr(key));
  }
  EXPECT_EQ(recorded().find("hbm_read_gbps"), std::string::npos);  // only a GPU's memory has it
}

// Every way to group has the same sums, and they are those of the slices.
TEST_F(Recorded, StatsAddUp) {
  double total = -1;
  for (const char* by : {"op", "path", "layer", "component"}) {
    const boost::json::value stats = tenon_json({"trace", "stats", path_, "--by", by, "--format", "json"});
    double sum = 0, busy = 0;
    int64_t calls = 0;
    for (const auto& group : stats.at("groups").as_array()) {
      sum += group.at("total_us").to_number<double>();
      calls += group.at("calls").to_number<int64_t>();
    }
    for (const auto& phase : stats.at("phases").as_array()) busy += phase.at("busy_us").to_number<double>();
    if (total < 0) total = sum;
    EXPECT_NEAR(sum, total, 0.01) << by;
    EXPECT_NEAR(busy, total, 0.01) << by;  // nothing overlaps on a thread
    EXPECT_GT(calls, 12 * 6) << by;
  }
  const Outcome table = tenon({"trace", "stats", path_, "--phase", "decode"});
  EXPECT_EQ(table.code, 0);
  EXPECT_THAT(table.out, HasSubstr("layers.*.mlp.down"));
  const Outcome csv = tenon({"trace", "stats", path_, "--format", "csv"});
  EXPECT_THAT(csv.out, HasSubstr("phase,path,component,op,layer,calls,"));
  EXPECT_THAT(csv.out, HasSubstr("\"decode\",(whole step),,,,11,"));
  std::istringstream lines(csv.out);
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(std::ranges::count(line, ','), 15) << line;
}

// There is one request of twelve tokens: one of its prompt, eleven of the decode steps.
TEST_F(Recorded, StatsHaveTheTimesOfRequests) {
  const boost::json::value stats = tenon_json({"trace", "stats", path_, "--format", "json"});
  std::map<std::string, double> times;
  for (const auto& time : stats.at("requests").as_array()) {
    EXPECT_EQ(time.at("requests"), 1);
    times[time.at("time").as_string().c_str()] = time.at("p50_us").to_number<double>();
  }
  ASSERT_EQ(times.size(), 4U);
  EXPECT_LE(times["queue"], times["first token"]);
  EXPECT_NEAR(times["first token"] + 11 * times["per token"], times["total"], 1);
  EXPECT_THAT(tenon({"trace", "stats", path_}).out, testing::ContainsRegex("\nrequests +with it +p50 ms"));
  EXPECT_THAT(recorded(), HasSubstr(R"("generated":12,"end":"length")"));
  EXPECT_THAT(recorded(), HasSubstr(R"("slots":)"));
}

TEST_F(Recorded, ComparesEqualToItself) {
  const Outcome same = tenon({"trace", "compare", path_, path_});
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_THAT(same.out, HasSubstr("0 slower, 0 faster"));
}

TEST_F(Recorded, MergesToATraceWithoutLosses) {
  const std::filesystem::path merged = temporary_folder() / "m.json.gz";
  ASSERT_EQ(tenon({"trace", "merge", path_, path_, "-o", merged}).code, 0);
  const Outcome check = tenon({"trace", "check", merged});
  EXPECT_EQ(check.code, 0) << check.out;
}

TEST(TraceStats, SaysThatAFileHasNothingToSumUp) {
  const std::filesystem::path path = temporary_folder() / "empty.json";
  write_file(path, R"([{"ph":"i","pid":1,"tid":1,"ts":1,"name":"x"}])");
  const Outcome stats = tenon({"trace", "stats", path});
  EXPECT_EQ(stats.code, 7);
  EXPECT_THAT(stats.err, HasSubstr("no operations"));
  const Outcome compare = tenon({"trace", "compare", path, path});
  EXPECT_EQ(compare.code, 2) << compare.err;
}

TEST(SlowSteps, AloneAreWritten) {
  const std::filesystem::path path = temporary_folder() / "slow.json";
  const Words words = {"generate",     kStories,  "-p",      "Once", "-n",   "12",
                       "--ignore-end", "--force", "--trace", path,   "--set"};
  const Outcome none = tenon(words + Words{"trace.slow_step_ms=1e9"});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.err, HasSubstr("the trace has no steps"));
  EXPECT_EQ(read_file(path).find("ProfilerStep#"), std::string::npos);
  const Outcome all = tenon(words + Words{"trace.slow_step_ms=1e-6"});
  EXPECT_THAT(all.err, HasSubstr("12 of 12 steps"));
  EXPECT_EQ(tenon({"trace", "check", path}).code, 0);
}

TEST(KeptSteps, AreWrittenOnASignal) {
  const std::filesystem::path path = temporary_folder() / "t.json", part = path.string() + ".part";
  Running process({"generate", kStories, "-p", "Once", "-n", "8000", "--ignore-end", "--set", "kv_cache.capacity=8192",
                   "--trace", path, "--set", "trace.keep_steps=3"});
  process.wait_for_output();  // that is within the first step, so one signal might come too early
  while (read_file(part).find("ProfilerStep#") == std::string::npos) {
    process.signal(SIGUSR1);
    process.wait_for_output();
  }
  process.interrupt();
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.err.find("has no steps"), std::string::npos) << outcome.err;
  EXPECT_EQ(tenon({"trace", "check", path}).code, 0);
}

}  // namespace
}  // namespace tenon::e2e
