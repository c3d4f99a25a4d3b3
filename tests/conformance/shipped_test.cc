// These tests look at what shipped attentions and caches promise beyond their kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "conformance/attention_host.h"
#include "conformance/attention_views.h"
#include "conformance/kv_cache_host.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::AttentionHost;
using conformance::KvCacheHost;
using conformance::rounded;
using testing::HasSubstr;

TEST(ShippedAttention, FailsAtAPositionOutOfBounds) {
  for (const char* name : {"flash", "reference"}) {
    const Component attention("attention", name);
    const AttentionHost host({.name = "any", .sequences = {{300, 2}}}, 1);
    EXPECT_NE(host.run(attention, {.padding = 0, .kv_len = 301}).fault.find("position 301"), std::string::npos) << name;
  }
}

// The suite lets a component refuse a view; these two refuse none but for the codec.
TEST(ShippedAttention, ReadsEveryView) {
  const Component flash("attention", "flash"), reference("attention", "reference");
  for (const conformance::ViewCase& c : conformance::view_cases()) {
    EXPECT_EQ(conformance::ViewHost(c, flash, 1).run().refusal, "") << c.name;
    const std::string refusal = conformance::ViewHost(c, reference, 1).run().refusal;
    EXPECT_EQ(refusal.empty(), c.codec == TENON_F32 && c.recent == 0) << c.name << ": " << refusal;
  }
}

// On a GPU both read all of them.
TEST(ShippedAttention, ReadsEveryViewOnAGpu) {
  if (device("cuda") == nullptr) GTEST_SKIP() << "there is no device cuda here";
  for (const char* name : {"flash", "reference"}) {
    const conformance::Component attention(plugins().load("attention", name, "cuda"), *device("cuda"));
    for (const conformance::ViewCase& c : conformance::view_cases()) {
      const conformance::ViewHost::Answer answer = conformance::ViewHost(c, attention, 1).run();
      EXPECT_EQ(answer.refusal + answer.fault, "") << name << ", " << c.name;
    }
  }
}

TEST(StaticCache, PlansNoMoreThanItsTokens) {
  for (const std::string& format : choices("kv_cache", "static", "format")) {
    const Component cache("kv_cache", "static", {{"format", format}});
    const KvCacheHost host(cache, {});
    const uint64_t element = format == "fp32" ? 4 : 2;
    const uint64_t token = element * (2 * (8 + 8) + 3 * (5 + 19) + 64 + 32);
    EXPECT_EQ(host.table().used_bytes(host.self(), 10), 10 * token);
    uint64_t planned = 0;
    for (uint32_t i = 0; i < host.footprint().n_stores; ++i) planned += host.footprint().store_bytes[i];
    EXPECT_GE(planned, 5 * 37 * token);
    EXPECT_LE(planned, 5 * 40 * token + 6 * 256 + 5 * 4);  // these are tokens by eight, planes aligned, a table
  }
}

TEST(StaticCache, SaysHowMuchRoomThereIs) {
  const Component cache("kv_cache", "static");
  const KvCacheHost host(cache, {});
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  EXPECT_EQ(host.table().reserve(host.self(), 0, 38, &why), TENON_NO_SPACE);
  EXPECT_THAT(text, HasSubstr("37"));
  EXPECT_EQ(host.table().reserve(host.self(), 5, 1, &why), TENON_NO_SPACE);
  EXPECT_THAT(text, HasSubstr("5 slots"));
}

TEST(StaticCache, NamesTheFormatOfASequenceThatItRefuses) {
  const Component half("kv_cache", "static", {{"format", "fp16"}}), brain("kv_cache", "static", {{"format", "bf16"}});
  KvCacheHost host(half, {}), other(brain, {});
  std::mt19937_64 random(9);
  ASSERT_EQ(host.step({{0, 5}}, random), "");
  EXPECT_EQ(other.import_sequence(1, 5, host.export_sequence(0), host, 0), TENON_REFUSED);
  EXPECT_THAT(other.last_reason(), HasSubstr("f16"));
}

// The window is 10 and steps have up to 6 rows: at 40 tokens the ring of 17 cells has 23 to 39.
struct SinkWindow {
  explicit SinkWindow(const char* positions)
      : cache("kv_cache", "sink_window",
              {{"sinks", int64_t{3}}, {"window", int64_t{10}}, {"positions", std::string(positions)}}),
        host(cache, {.rows = 6, .seqs = 2, .slots = 3, .capacity = 64}, false) {
    while (host.length(0) < 40) EXPECT_EQ(host.step({{0, 5}}, random), "");
  }
  std::mt19937_64 random{12};
  Component cache;
  KvCacheHost host;
};

TEST(SinkWindowCache, CutsBackAsFarAsTheRingReaches) {
  for (const char* positions : {"renumbered", "original"}) {
    SinkWindow sink(positions);
    EXPECT_EQ(sink.host.truncate(0, 31), TENON_REFUSED);  // would see position 22
    EXPECT_THAT(sink.host.last_reason(), HasSubstr("sees position 22"));
    ASSERT_EQ(sink.host.truncate(0, 32), TENON_OK);
    EXPECT_EQ(sink.host.step({{0, 6}}, sink.random), "");
    EXPECT_EQ(sink.host.truncate(0, 32), TENON_OK);  // these rows took the cells of those that were cut off
    ASSERT_EQ(sink.host.truncate(0, 2), TENON_OK);   // sinks alone are left
    EXPECT_EQ(sink.host.step({{0, 3}}, sink.random), "");
    ASSERT_EQ(sink.host.truncate(0, 0), TENON_OK);
    EXPECT_EQ(sink.host.step({{0, 6}}, sink.random), "");
  }
}

TEST(SinkWindowCache, ForksWhatANextTokenSees) {
  SinkWindow sink("renumbered");
  EXPECT_EQ(sink.host.fork(0, 1, 31), TENON_REFUSED);
  ASSERT_EQ(sink.host.fork(0, 1, 32), TENON_OK);
  EXPECT_EQ(sink.host.step({{1, 3}, {0, 3}}, sink.random), "");  // each goes on by itself
  EXPECT_EQ(sink.host.truncate(1, 31), TENON_REFUSED);           // the fork never had position 22
  EXPECT_EQ(sink.host.truncate(1, 33), TENON_OK);
  EXPECT_EQ(sink.host.step({{1, 6}}, sink.random), "");
}

TEST(SinkWindowCache, ExportsWhatANextTokenSees) {
  SinkWindow from("renumbered"), to("renumbered");
  const auto at_40 = from.host.export_sequence(0);
  ASSERT_EQ(from.host.truncate(0, 33), TENON_OK);
  const auto at_33 = from.host.export_sequence(0);
  ASSERT_EQ(from.host.truncate(0, 32), TENON_OK);
  const auto at_32 = from.host.export_sequence(0);
  ASSERT_FALSE(at_32.empty());
  EXPECT_EQ(at_33.size(), at_40.size());  // there are three sinks and ten of the window, however long the text
  EXPECT_LT(at_32.size(), at_33.size());  // the ring no longer has what its last token saw
  ASSERT_EQ(to.host.import_sequence(2, 32, at_32, from.host, 0), TENON_OK);
  EXPECT_EQ(to.host.export_sequence(2), at_32);
  EXPECT_EQ(to.host.step({{2, 5}, {0, 1}}, to.random), "");
  EXPECT_EQ(to.host.truncate(2, 31), TENON_REFUSED);
}

TEST(SinkWindowCache, AnImportedSequenceCanBeCutByItsLastToken) {
  SinkWindow from("renumbered"), to("renumbered");
  const auto bytes = from.host.export_sequence(0);
  ASSERT_EQ(to.host.import_sequence(2, 40, bytes, from.host, 0), TENON_OK);
  EXPECT_EQ(to.host.truncate(2, 38), TENON_REFUSED);
  ASSERT_EQ(to.host.truncate(2, 39), TENON_OK);
  EXPECT_EQ(to.host.step({{2, 5}}, to.random), "");
}

TEST(SinkWindowCache, EndsOnlyAtTheTextsOwnPositions) {
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const SinkWindow endless("renumbered"), ends("original");
  EXPECT_EQ(endless.host.table().reserve(endless.host.self(), 1, 1000000, &why), TENON_OK) << text;
  EXPECT_EQ(ends.host.table().reserve(ends.host.self(), 1, 65, &why), TENON_NO_SPACE);
  EXPECT_THAT(text, HasSubstr("64"));
}

TEST(Rounded, IsToNearestEven) {
  EXPECT_EQ(rounded(TENON_F16, 2049.0f), 2048.0f);
  EXPECT_EQ(rounded(TENON_F16, 2051.0f), 2052.0f);
  EXPECT_EQ(rounded(TENON_F16, 65519.0f), 65504.0f);
  EXPECT_EQ(rounded(TENON_F16, 65520.0f), INFINITY);
  EXPECT_EQ(rounded(TENON_F16, 0x1p-25f), 0.0f);
  EXPECT_EQ(rounded(TENON_F16, 0x1.8p-25f), 0x1p-24f);
  EXPECT_EQ(rounded(TENON_BF16, 257.0f), 256.0f);
  EXPECT_EQ(rounded(TENON_BF16, 259.0f), 260.0f);
}

}  // namespace
}  // namespace tenon::test
