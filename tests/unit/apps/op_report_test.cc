// These tests print made-up times of ops as text, JSON and CSV.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "bench.h"

namespace tenon::app {
namespace {

using testing::HasSubstr;

OpReport report() {
  OpReport r;
  r.clock = "CUPTI's records of the kernels";
  r.groups = {{"layers.*.attention", "attention.flash", "attention", 32, 60, 3e5},
              {"embedding", "quantization.none", "rows", 1, 30, 6e4}};
  r.between_us = 10;
  r.step_us = 100;
  r.steps = 20;
  r.context = 116;
  r.tok_per_s = 9000;
  r.unrecorded_tok_per_s = 10000;
  return r;
}

BenchRow row(OpReport ops) {
  BenchRow r{.point = {.prompt_tokens = 16, .new_tokens = 200, .batch = 1, .threads = 132}};
  r.decode = {10000, 9900, 10100};
  r.ops = std::move(ops);
  r.hash = "0";
  r.line = "tenon bench a,\"b\"";
  return r;
}

std::string printed(const std::string& format, const std::vector<BenchRow>& rows) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* file = open_memstream(&text, &size);
  const auto output = make_bench_output(format, file, {"model", 1, 3, true});
  for (const BenchRow& r : rows) output->row(r);
  output->end();
  std::fclose(file);
  std::string out(text, size);
  std::free(text);
  return out;
}

// Returns the fields of one line, quotes taken off.
std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> out(1);
  bool inside = false;
  for (const char c : line) {
    if (c == '"') {
      inside = !inside;
    } else if (c == ',' && !inside) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

TEST(OpReport, IsATable) {
  std::string out = printed("table", {row(report())});
  out.erase(std::unique(out.begin(), out.end(), [](char a, char b) { return a == ' ' && b == ' '; }), out.end());
  EXPECT_THAT(out, HasSubstr("ops of a step, prompt 16, new 200, batch 1"));
  EXPECT_THAT(out, HasSubstr("mean of 20 steps at a context of 116 tokens; times by CUPTI's records of the kernels"));
  EXPECT_THAT(out, HasSubstr("\n layers.*.attention attention.flash attention 32 60.0 60.0 % 300 kB 5.0\n"));
  EXPECT_THAT(out, HasSubstr("\n between steps 10.0 10.0 %\n"));
  EXPECT_THAT(out, HasSubstr("\n step 33 100.0 100.0 % 360 kB 3.6\n"));
  EXPECT_THAT(out, HasSubstr("decode 9000.0 tok/s while recording, 10000.0 without: -10.0 %"));
}

TEST(OpReport, IsJson) {
  const boost::json::value json = boost::json::parse(printed("json", {row(report())}));
  const boost::json::value& ops = json.at_pointer("/points/0/ops");
  EXPECT_EQ(ops.at("steps").to_number<int>(), 20);
  EXPECT_EQ(ops.at("step_us").to_number<double>(), 100);
  EXPECT_EQ(ops.at("between_us").to_number<double>(), 10);
  EXPECT_EQ(ops.at("recorded_tok_per_s").to_number<double>(), 9000);
  const boost::json::value& group = ops.at("groups").at(0);
  EXPECT_EQ(group.at("module").as_string(), "layers.*.attention");
  EXPECT_EQ(group.at("calls").to_number<int>(), 32);
  EXPECT_EQ(group.at("bytes").to_number<double>(), 3e5);
  EXPECT_NEAR(group.at("share").to_number<double>(), 0.6, 1e-9);
}

TEST(OpReport, IsCsvWithTheSameColumnsInEveryLine) {
  BenchRow failed{.point = {.prompt_tokens = 8}};
  failed.error = "no memory";
  std::istringstream csv(printed("csv", {row(report()), row({.problem = "no CUPTI, \"none\""}), failed}));
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(csv, line);) lines.push_back(fields(line));
  ASSERT_EQ(lines.size(), 7u);
  const std::vector<std::string>& names = lines[0];
  for (const auto& line : lines) EXPECT_EQ(line.size(), names.size());
  const auto at = [&](size_t line, const std::string& name) {
    return lines[line][static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
  };
  EXPECT_EQ(at(1, "decode_tok_per_s"), "10000.000");
  EXPECT_EQ(at(1, "step_us"), "100.000");
  EXPECT_EQ(at(1, "module"), "");
  EXPECT_EQ(at(2, "module"), "layers.*.attention");
  EXPECT_EQ(at(2, "prompt_tokens"), "16");
  EXPECT_EQ(at(2, "us"), "60.000");
  EXPECT_EQ(at(2, "decode_tok_per_s"), "");
  EXPECT_EQ(at(4, "module"), "between steps");
  EXPECT_EQ(at(5, "ops_error"), "no CUPTI, none");
  EXPECT_EQ(at(5, "decode_tok_per_s"), "10000.000");
  EXPECT_EQ(at(6, "error"), "no memory");
}

// RFC 4180 doubles a quote within a field.
TEST(CsvField, IsQuotedWithItsQuotesDoubled) {
  EXPECT_EQ(csv_field(""), "\"\"");
  EXPECT_EQ(csv_field("a, b"), "\"a, b\"");
  EXPECT_EQ(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
}

TEST(OpReport, SaysWhyThereAreNoTimes) {
  const OpReport none{.problem = "CUPTI recorded no kernel"};
  EXPECT_THAT(printed("table", {row(none)}), HasSubstr("no times of the ops: CUPTI recorded no kernel"));
  const boost::json::value json = boost::json::parse(printed("json", {row(none)}));
  EXPECT_EQ(json.at_pointer("/points/0/ops/error").as_string(), "CUPTI recorded no kernel");
}

}  // namespace
}  // namespace tenon::app
