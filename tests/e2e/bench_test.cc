#include <gtest/gtest.h>

#include <algorithm>

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
  const Outcome again = tenon_line(std::string(all[1].at("line").as_string()) + " --format json");
  ASSERT_EQ(again.code, 0) << again.err;
  const boost::json::value json = boost::json::parse(again.out);
  EXPECT_EQ(json.at_pointer("/points/0/hash"), all[1].at("hash"));
  EXPECT_EQ(json.at_pointer("/points/0/line"), all[1].at("line"));
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
