// What every cache owes: it is a list of tokens by slot, whatever happens to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "kv_cache_host.h"

namespace tenon::test {
namespace {

using ::testing::HasSubstr;

struct Subject {
  std::string name, format;
  uint64_t isa;
  std::string label;
};
void PrintTo(const Subject& s, std::ostream* out) {
  *out << s.label;
}

// Every cache in every format, with and without vectors.
std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const std::string& name : installed("kv_cache")) {
    for (const std::string& format : choices("kv_cache", name, "format")) {
      all.push_back({name, format, 0, name + "_" + format + "_scalar"});
      if (machine_isa() != 0) all.push_back({name, format, machine_isa(), name + "_" + format});
    }
  }
  return all;
}

class KvCacheTest : public ::testing::TestWithParam<Subject> {
 protected:
  KvCacheTest() : cache_("kv_cache", GetParam().name, {{"format", GetParam().format}}, GetParam().isa) {}
  Component cache_;
};

// Some slots with some rows each, within the host's bounds.
std::vector<KvCacheHost::Append> random_appends(const KvCacheHost& host, std::mt19937_64& random) {
  std::vector<uint32_t> slots(host.shape().slots);
  for (uint32_t i = 0; i < slots.size(); ++i) slots[i] = i;
  std::shuffle(slots.begin(), slots.end(), random);
  std::vector<KvCacheHost::Append> appends;
  uint32_t room = host.shape().rows;
  for (const uint32_t slot : slots) {
    const uint32_t most = std::min(room, host.shape().capacity - host.length(slot));
    if (appends.size() == host.shape().seqs || most == 0) continue;
    appends.push_back({slot, 1 + static_cast<uint32_t>(random() % most)});
    room -= appends.back().rows;
  }
  return appends;
}

TEST_P(KvCacheTest, IsAListOfTokensBySlot) {
  KvCacheHost host(cache_, {});
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    const auto slot = static_cast<uint32_t>(random() % host.shape().slots);
    const auto other = static_cast<uint32_t>(random() % host.shape().slots);
    const auto part = static_cast<uint32_t>(random() % (host.length(slot) + 1));
    switch (random() % 4) {
      case 0:
        ASSERT_EQ(host.fork(slot, other, part), TENON_OK) << host.last_reason();
        break;
      case 1:
        ASSERT_EQ(host.truncate(slot, part), TENON_OK) << host.last_reason();
        break;
      case 2: {
        const auto bytes = host.export_sequence(slot);
        ASSERT_FALSE(bytes.empty());
        ASSERT_EQ(host.import_sequence(other, host.length(slot), bytes, host, slot), TENON_OK) << host.last_reason();
        break;
      }
      default:
        break;
    }
    const auto appends = random_appends(host, random);
    if (appends.empty()) continue;
    ASSERT_EQ(host.step(appends, random), "") << "round " << i;
  }
}

TEST_P(KvCacheTest, MovesSequencesToAnotherCache) {
  KvCacheHost host(cache_, {});
  const Component second("kv_cache", GetParam().name, {{"format", GetParam().format}}, GetParam().isa);
  KvCacheHost other(second, {.rows = 3, .seqs = 2, .slots = 2, .capacity = 64});
  std::mt19937_64 random(8);
  ASSERT_EQ(host.step({{3, 9}}, random), "");
  const auto bytes = host.export_sequence(3);
  ASSERT_EQ(other.import_sequence(1, 9, bytes, host, 3), TENON_OK) << other.last_reason();
  EXPECT_EQ(other.export_sequence(1), bytes);
  EXPECT_EQ(other.step({{1, 2}, {0, 1}}, random), "");
}

TEST_P(KvCacheTest, RefusesSequencesThatDoNotFit) {
  KvCacheHost host(cache_, {});
  std::mt19937_64 random(9);
  ASSERT_EQ(host.step({{0, 5}}, random), "");
  auto bytes = host.export_sequence(0);
  EXPECT_EQ(host.import_sequence(1, 4, bytes, host, 0), TENON_REFUSED);
  EXPECT_NE(host.last_reason(), "");
  auto cut = bytes;
  cut.pop_back();
  EXPECT_EQ(host.import_sequence(1, 5, cut, host, 0), TENON_REFUSED);
  EXPECT_EQ(host.import_sequence(1, 5, {}, host, 0), TENON_REFUSED);
  bytes[0] ^= std::byte{1};
  EXPECT_EQ(host.import_sequence(1, 5, bytes, host, 0), TENON_REFUSED);
  const Component second("kv_cache", GetParam().name, {{"format", GetParam().format == "fp16" ? "bf16" : "fp16"}});
  KvCacheHost other(second, {});
  EXPECT_EQ(other.import_sequence(1, 5, host.export_sequence(0), host, 0), TENON_REFUSED);
  EXPECT_THAT(other.last_reason(), HasSubstr("f16"));
}

TEST_P(KvCacheTest, SaysWhenItIsFull) {
  KvCacheHost host(cache_, {});
  const auto& t = host.table();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  EXPECT_EQ(t.reserve(host.self(), 0, 37, &why), TENON_OK);
  EXPECT_EQ(t.reserve(host.self(), 0, 38, &why), TENON_NO_SPACE);
  EXPECT_THAT(text, HasSubstr("37"));
  EXPECT_EQ(t.reserve(host.self(), 5, 1, &why), TENON_NO_SPACE);
  EXPECT_THAT(text, HasSubstr("5 slots"));
  EXPECT_EQ(t.fork(host.self(), 0, 9, 1, nullptr, &why), TENON_NO_SPACE);
}

TEST_P(KvCacheTest, PlansNoMoreThanItsTokens) {
  KvCacheHost host(cache_, {});
  const uint64_t element = GetParam().format == "fp32" ? 4 : 2;
  const uint64_t token = element * (2 * (8 + 8) + 3 * (5 + 19) + 64 + 32);
  EXPECT_EQ(host.table().used_bytes(host.self(), 10), 10 * token);
  uint64_t planned = 0;
  for (uint32_t i = 0; i < host.footprint().n_stores; ++i) planned += host.footprint().store_bytes[i];
  EXPECT_GE(planned, 5 * 37 * token);
  EXPECT_LE(planned, 5 * 40 * token + 6 * 256 + 5 * 4);  // tokens by eight, planes aligned, a table
}

TEST_P(KvCacheTest, RefusesAbsurdPlans) {
  auto g = sdk::abi_struct<tenon_kv_geometry>();
  g.heads = g.k_dim = g.v_dim = UINT32_MAX;
  const tenon_kv_geometry* layers[] = {&g};
  const tenon_bounds b = OpRunner::bounds({.kv_len = 1u << 30, .slots = UINT32_MAX});
  auto f = sdk::abi_struct<tenon_footprint>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  EXPECT_EQ(cache_.table<tenon_kv_cache>().plan(cache_.self(), layers, 1, &b, &f, &why), TENON_NO_SPACE);
  EXPECT_STRNE(text, "");
}

INSTANTIATE_TEST_SUITE_P(All, KvCacheTest, ::testing::ValuesIn(subjects()),
                         [](const auto& subject) { return subject.param.label; });

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
