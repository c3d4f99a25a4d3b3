// These tests run `tenon bench`: every combination, the forms of its results, points that fail, the times of ops, and
// traces.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "program.h"

namespace tenon::e2e {
namespace {

const Words kSmall = {"bench", kStories, "--warmups", "0", "--runs", "1", "--prompt-tokens", "8"};

boost::json::array points(const Words& words) {
  const boost::json::value json = tenon_json(kSmall + words + Words{"--format", "json"});
  return json.is_object() ? json.at("points").as_array() : boost::json::array();
}

TEST(Bench, MeasuresEveryCombination) {
  const boost::json::array all = points({"--new-tokens", "4,6", "--batch", "1,4", "--threads", "2"});
  ASSERT_EQ(all.size(), 4u);
  for (const boost::json::value& point : all) {
    for (const char* speed : {"/prefill_tok_per_s/median", "/decode_tok_per_s/median", "/decode_gbps/median",
                              "/read_gbps", "/bandwidth_share", "/memory/planned_bytes", "/memory/resident_bytes"}) {
      EXPECT_GT(point.at_pointer(speed).to_number<double>(), 0) << speed;
    }
    EXPECT_EQ(point.at("threads").as_int64(), 2);
    EXPECT_EQ(point.at_pointer("/memory/planned_bytes"), point.at_pointer("/memory/allocated_bytes"));
  }
  EXPECT_EQ(all[3].at("batch").as_int64(), 4);
  EXPECT_EQ(all[3].at("new_tokens").as_int64(), 6);
}

TEST(Bench, GivesTheSameTokensWithAnyThreadsAndByItsOwnLine) {
  const boost::json::array all = points({"--new-tokens", "6", "--batch", "4", "--threads", "1,3"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("hash"), all[1].at("hash"));
  const Outcome again = tenon_line(std::string(all[1].at("line").as_string()));
  ASSERT_EQ(again.code, 0) << again.err;
  const boost::json::value json = boost::json::parse(again.out);
  EXPECT_EQ(json.at_pointer("/points/0/hash"), all[1].at("hash"));
  EXPECT_EQ(json.at_pointer("/points/0/line"), all[1].at("line"));
}

// There are more requests than slots: those that find none wait, and the rate counts the whole run.
TEST(Bench, KeepsAStatedScheduler) {
  const Words continuous = {"--new-tokens",         "6", "--batch", "5", "--set", "scheduler.use=continuous", "--set",
                            "scheduler.sequences=2"};
  const boost::json::array all = points(continuous), together = points({"--new-tokens", "6", "--batch", "5"});
  ASSERT_EQ(all.size(), 1u);
  ASSERT_EQ(together.size(), 1u);
  EXPECT_EQ(all[0].at("hash"), together[0].at("hash"));
  EXPECT_LT(all[0].at_pointer("/memory/planned_bytes").to_number<double>(),
            together[0].at_pointer("/memory/planned_bytes").to_number<double>());
  const auto rate = [](const boost::json::value& point, const char* key) {
    return point.at_pointer(std::string("/") + key + "/median").to_number<double>();
  };
  EXPECT_GT(rate(all[0], "new_tok_per_s"), 0);
  // In step the first of six tokens is a prompt's; the run takes at least what its steps take.
  const double steps = 5 * 8 / rate(together[0], "prefill_tok_per_s") + 5 * 5 / rate(together[0], "decode_tok_per_s");
  EXPECT_GE(5 * 6 / rate(together[0], "new_tok_per_s"), steps * (1 - 1e-9));
  const Outcome again = tenon_line(std::string(all[0].at("line").as_string()));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(boost::json::parse(again.out).at_pointer("/points/0/line"), all[0].at("line"));
  const Outcome table = tenon(kSmall + continuous);
  EXPECT_NE(table.out.find("new tok/s of the whole run by scheduler.continuous"), std::string::npos) << table.out;
  EXPECT_EQ(tenon(kSmall + Words{"--new-tokens", "4", "--batch", "2"}).out.find("of the whole run"), std::string::npos);
}

TEST(Bench, PrintsATable) {
  const Outcome outcome = tenon(kSmall + Words{"--new-tokens", "4"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part :
       {"decode tok/s", "read bandwidth", "an embedding that is only looked up not", "  tenon bench"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " in\n" << outcome.out;
}

TEST(Bench, WritesCsvAndGoesOnAfterAPointThatFails) {
  const std::string file = temporary_folder() / "bench.csv";
  const Outcome outcome = tenon({"bench", kStories, "--warmups", "0", "--runs", "1", "--prompt-tokens", "100,8",
                                 "--new-tokens", "4", "--set", "kv_cache.capacity=64", "--format", "csv", "-o", file});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const std::string csv = read_file(file);
  ASSERT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3) << csv;
  const size_t second = csv.find('\n') + 1, third = csv.find('\n', second) + 1;
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_EQ(commas(csv.substr(0, second)), commas(csv.substr(third)));
  const std::string failed = csv.substr(second, third - second);
  EXPECT_NE(failed.find("the prompt has 100 tokens"), std::string::npos) << failed;
}

// The first point's cache takes terabytes.
TEST(Bench, GoesOnAfterAPointThatDoesNotFitTheMemory) {
  const Words sweep = kSmall + Words{"--new-tokens", "1000000,4", "--batch", "256"};
  const Outcome table = tenon(sweep), json = tenon(sweep + Words{"--format", "json"});
  EXPECT_EQ(table.code, 1) << table.err;
  const size_t failed = table.out.find("  failed: the pipeline needs "), next = table.out.find('\n', failed);
  ASSERT_NE(failed, std::string::npos) << table.out;
  EXPECT_NE(table.out.substr(failed, next - failed).find(" and device cpu has "), std::string::npos) << table.out;
  EXPECT_EQ(table.out.compare(next + 1, 12, "     8     4"), 0) << table.out;
  const boost::json::array all = boost::json::parse(json.out).at("points").as_array();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].as_object().contains("error"));
  EXPECT_FALSE(all[1].as_object().contains("error"));
  EXPECT_TRUE(all[1].as_object().contains("hash"));
}

// Every op of the program is in the table, with the program's bytes, and the times add up to the step.
TEST(Bench, TimesTheOpsOfAStep) {
  const boost::json::array all = points({"--new-tokens", "12", "--batch", "2", "--ops"});
  ASSERT_EQ(all.size(), 1u);
  const boost::json::value& ops = all[0].at("ops");
  ASSERT_FALSE(ops.as_object().contains("error")) << ops;
  const boost::json::value program =
      tenon_json({"inspect", "--program", kStories, "--json", "--rows", "2", "--context", "16", "--set",
                  "scheduler.use=lockstep", "--set", "scheduler.sequences=2", "--set", "kv_cache.capacity=24"});
  double us = ops.at("between_us").to_number<double>(), bytes = 0;
  int64_t calls = 0;
  std::set<std::string> measured, recorded;
  for (const boost::json::value& group : ops.at("groups").as_array()) {
    us += group.at("us").to_number<double>();
    bytes += group.at("bytes").to_number<double>();
    calls += group.at("calls").to_number<int64_t>();
    measured.insert(std::string(group.at("component").as_string()) + ' ' + std::string(group.at("op").as_string()));
  }
  for (const boost::json::value& op : program.at("ops").as_array()) {
    recorded.insert(std::string(op.at("component").as_string()) + ' ' + std::string(op.at("op").as_string()));
  }
  EXPECT_EQ(measured, recorded);
  EXPECT_EQ(calls, static_cast<int64_t>(program.at("ops").as_array().size()));
  EXPECT_EQ(ops.at("steps").to_number<int>(), 7);
  EXPECT_EQ(ops.at("context").to_number<double>(), 16);
  EXPECT_NEAR(bytes, program.at("bytes_read").to_number<double>() + program.at("bytes_written").to_number<double>(), 1);
  const double step = ops.at("step_us").to_number<double>();
  EXPECT_NEAR(us, step, 1e-3 * step);
  EXPECT_NEAR(ops.at("recorded_tok_per_s").to_number<double>(), 2e6 / step, 1e-3 * 2e6 / step);
}

TEST(Bench, SaysWhyThereAreNoTimesOfOps) {
  const Outcome few = tenon(kSmall + Words{"--new-tokens", "2", "--ops"});
  EXPECT_EQ(few.code, 1);
  EXPECT_NE(few.out.find("expected --new-tokens 3 or more, found 2"), std::string::npos) << few.out;
  EXPECT_NE(few.out.find("The same again"), std::string::npos) << few.out;
  const Outcome drafts = tenon(kSmall + Words{"--new-tokens", "8", "--ops", "--set", "draft.use=ngram"});
  EXPECT_EQ(drafts.code, 1);
  EXPECT_NE(drafts.out.find("leave out [draft]"), std::string::npos) << drafts.out;
}

TEST(Bench, WritesATraceForEveryPoint) {
  const std::filesystem::path folder = temporary_folder();
  const Words words = kSmall + Words{"--new-tokens", "4", "--trace", folder / "t.json.gz"};
  EXPECT_EQ(tenon(words).code, 0);
  EXPECT_EQ(tenon(words + Words{"--threads", "1,2"}).code, 0);
  for (const char* name : {"t.json.gz", "t-1.json.gz", "t-2.json.gz"}) {
    EXPECT_EQ(tenon({"trace", "check", folder / name}).code, 0) << name;
  }
}

TEST(Bench, RefusesAConfigurationBeforeItMeasures) {
  EXPECT_EQ(tenon({"bench", kStories, "--set", "attention.use=none_such"}).code, 3);
  EXPECT_EQ(tenon({"bench", kStories, "--batch", "0"}).code, 2);
}

}  // namespace
}  // namespace tenon::e2e
