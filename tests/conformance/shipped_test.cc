// What shipped attentions and caches promise beyond their kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "conformance/attention_host.h"
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
    EXPECT_LE(planned, 5 * 40 * token + 6 * 256 + 5 * 4);  // tokens by eight, planes aligned, a table
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
