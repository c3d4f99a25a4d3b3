// Text that is no trace, or half of one, gives a finding or an error, never a crash, a hang or absurd memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

#include "temp_folder.h"
#include "tenon/core/error.h"
#include "tenon/profiler/trace_check.h"

namespace tenon::profiler {
namespace {

using testing::HasSubstr;

constexpr std::string_view kEvent =
    R"({"ph":"X","pid":1,"tid":7,"ts":1.000,"dur":3.000,"cat":"c","name":"n\u0041","args":{"a":[1,-2.5e3,true,null]}})";

std::string only_rule(const CheckReport& report) {
  return report.findings.size() == 1 ? report.findings[0].rule : std::to_string(report.findings.size()) + " findings";
}

TEST(MalformedTrace, EverySyntaxErrorIsFound) {
  for (const char* text :
       {"[1 2]", "[1,]",  "[{]",    "[{\"a\"}]", "[{\"a\":}]", "[{\"a\":1,}]", "[{a:1}]",       "[01]",
        "[+1]",  "[.5]",  "[1.]",   "[1e]",      "[-]",        "[\"\\x\"]",    "[\"\\u12g4\"]", "[tru]",
        "[nul]", "[nix]", "[-inx]", "[] []",     "[]]",        "[',']"}) {
    const CheckReport report = check_trace_bytes(text);
    EXPECT_FALSE(report.ok()) << text;
    EXPECT_TRUE(std::ranges::any_of(report.findings, [](const Finding& f) { return f.rule == "syntax"; })) << text;
  }
}

TEST(MalformedTrace, WhatIsNoTraceIsSaidToBeNone) {
  for (const char* text : {"17", "\"text\"", "true", "{}", "{\"metadata\":{}}", "{\"traceEvents\":17}"}) {
    EXPECT_EQ(only_rule(check_trace_bytes(text)), "no-trace") << text;
  }
  EXPECT_EQ(only_rule(check_trace_bytes("")), "cut");
  EXPECT_EQ(only_rule(check_trace_bytes("[]")), "empty");
}

TEST(MalformedTrace, ACutArrayFormLoadsAndACutObjectFormDoesNot) {
  const std::string array = "[" + std::string(kEvent) + "]";
  for (size_t size = 1; size < array.size(); ++size) {
    const CheckReport report = check_trace_bytes(std::string_view(array).substr(0, size));
    ASSERT_TRUE(report.ok()) << size << ' ' << to_string(report.findings[0], "cut");
    ASSERT_EQ(report.findings[0].rule, "cut") << size;
  }
  const std::string object = R"({"traceEvents":)" + array + "}";
  for (size_t size = 1; size < object.size(); ++size) {
    const CheckReport report = check_trace_bytes(std::string_view(object).substr(0, size));
    ASSERT_FALSE(report.ok()) << size;
    ASSERT_EQ(report.findings.back().rule, "cut") << size;
  }
}

TEST(MalformedTrace, EveryChangedByteIsSurvived) {
  const std::string good = "[" + std::string(kEvent) + "," + std::string(kEvent) + "]";
  for (size_t i = 0; i < good.size(); ++i) {
    for (int c = 0; c < 256; c += 3) {
      std::string text = good;
      text[i] = static_cast<char>(c);
      static_cast<void>(check_trace_bytes(text));
    }
  }
}

TEST(MalformedTrace, DeepNestingIsRefused) {
  const std::string text = "[{\"args\":{\"a\":" + std::string(1'000'000, '[');
  const CheckReport report = check_trace_bytes(text);
  ASSERT_EQ(only_rule(report), "syntax");
  EXPECT_THAT(report.findings[0].found, HasSubstr("deeper than 64"));
}

TEST(MalformedTrace, LongNumbersAndStringsAreBounded) {
  const CheckReport number = check_trace_bytes("[{\"pid\":" + std::string(100'000, '1') + "}]");
  ASSERT_EQ(only_rule(number), "syntax");
  EXPECT_THAT(number.findings[0].found, HasSubstr("more than 400"));
  const CheckReport text =
      check_trace_bytes(R"([{"ph":"i","pid":1,"ts":1,"tid":1,"name":")" + std::string(1'000'000, 'x') + "\"}]");
  EXPECT_TRUE(text.ok());
}

TEST(MalformedTrace, LimitsAreKept) {
  const std::string text = "[" + std::string(kEvent) + "," + std::string(kEvent) + "]";
  EXPECT_EQ(only_rule(check_trace_bytes(text, {.max_events = 1})), "limit");
  EXPECT_EQ(only_rule(check_trace_bytes(text, {.max_bytes = 10})), "limit");
  EXPECT_TRUE(check_trace_bytes(text, {.max_events = 2}).ok());
}

TEST(MalformedTrace, ExtremeTimesDoNotOverflow) {
  for (const char* time : {"9223372036854775807", "9223372036854775808", "1e18", "1e999999999999", "1e-999999999999",
                           "999999999999999", "999999999999999.999", "0e99999", "4611686018427387904"}) {
    const std::string text = std::string(R"([{"ph":"X","pid":1,"tid":7,"name":"x","ts":)") + time + ",\"dur\":" + time +
                             R"(},{"ph":"X","pid":1,"tid":7,"name":"y","ts":1,"dur":)" + time + "}]";
    static_cast<void>(check_trace_bytes(text));
  }
}

TEST(MalformedTrace, DamagedGzipIsALoss) {
  const TempFolder folder;
  const std::string path = folder.file("x.json.gz");
  gzFile out = gzopen(path.c_str(), "wb");
  const std::string text = "[" + std::string(kEvent) + "]";
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
  const std::string packed = folder.bytes(path);
  EXPECT_TRUE(check_trace(path).findings.empty());
  const CheckReport cut = check_trace_bytes(std::string_view(packed).substr(0, packed.size() - 4));
  EXPECT_EQ(only_rule(cut), "gzip");
  std::string damaged = packed;
  damaged[packed.size() - 6] ^= 0x55;  // in the checksum
  EXPECT_EQ(only_rule(check_trace_bytes(damaged)), "gzip");
}

TEST(MalformedTrace, AFileThatCannotBeReadIsAnError) {
  const TempFolder folder;
  for (const std::string& path : {folder.file("none.json"), folder.path()}) {
    try {
      check_trace(path);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }
}

}  // namespace
}  // namespace tenon::profiler
