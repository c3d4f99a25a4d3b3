// kv_cache.h2o and kv_cache.snapkv keep what their rules say, beside the rules in float64.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "conformance/kv_cache_host.h"
#include "support/component.h"
#include "support/evicting_rule.h"

namespace tenon::test {
namespace {

using conformance::KvCacheHost;

constexpr uint32_t kSlots = 3, kRows = 24;

struct Policy {
  const char* name;
  std::vector<Setting> params;
  EvictingRule rule;
};
const Policy kH2o{.name = "h2o",
                  .params = {{"heavy", int64_t{9}}, {"recent", int64_t{6}}, {"format", std::string("fp32")}},
                  .rule = {.most = 15, .cut = 15, .newest = 6, .observe = 0, .around = 0}};
const Policy kSnapKv{.name = "snapkv",
                     .params = {{"prompt", int64_t{19}},
                                {"room", int64_t{11}},
                                {"observe", int64_t{8}},
                                {"pool", int64_t{5}},
                                {"format", std::string("fp32")}},
                     .rule = {.most = 30, .cut = 19, .newest = 8, .observe = 8, .around = 2}};

void PrintTo(const Policy& p, std::ostream* out) {
  *out << p.name;
}

// Returns whole numbers of 64ths, so that the sums of a few steps are not rounded and equal scores are equal
// everywhere.
float weight_of(uint32_t step, uint32_t layer, uint32_t slot, uint32_t head, uint32_t position) {
  return static_cast<float>(
             (position * 2654435761U ^ (step * 40503U + layer * 977U + slot * 131U + head * 17U)) >> 16U & 63U) /
         64;
}

class Evicting : public testing::TestWithParam<std::tuple<Policy, const char*>> {
 protected:
  void SetUp() override {
    const std::string on = std::get<1>(GetParam());
    const conformance::Device* const machine = on == "cpu" ? &conformance::Device::cpu() : device(on);
    if (machine == nullptr) GTEST_SKIP() << "this machine has no usable device " << on;
    cache_ = std::make_unique<conformance::Component>(plugins().load("kv_cache", policy().name, on), *machine,
                                                      policy().params);
    host_ = std::make_unique<KvCacheHost>(
        *cache_, KvCacheHost::Shape{.rows = kRows, .seqs = 2, .slots = kSlots, .capacity = 500}, false);
    for (uint32_t layer = 0; layer < host_->layers(); ++layer) lines_.emplace_back(kSlots * host_->heads(layer));
  }
  static const Policy& policy() { return std::get<0>(GetParam()); }
  KeptTokens& line(uint32_t layer, uint32_t slot, uint32_t head) {
    return lines_[layer][slot * host_->heads(layer) + head];
  }

  template <class F>
  void each_line(uint32_t slot, const F& f) {
    for (uint32_t layer = 0; layer < host_->layers(); ++layer) {
      for (uint32_t head = 0; head < host_->heads(layer); ++head) f(layer, head, line(layer, slot, head));
    }
  }
  void step(const std::vector<KvCacheHost::Append>& appends) {
    for (const auto& a : appends) {
      each_line(a.slot,
                [&](uint32_t, uint32_t, KeptTokens& l) { l.step(policy().rule, host_->length(a.slot), a.rows); });
    }
    ASSERT_EQ(host_->step(appends, random_), "");
    ++steps_;
    host_->weigh([&](uint32_t layer, uint32_t slot, uint32_t head, uint32_t p) {
      return weight_of(steps_, layer, slot, head, p);
    });
    for (const auto& a : appends) {
      each_line(a.slot, [&](uint32_t layer, uint32_t head, KeptTokens& l) {
        std::vector<uint32_t> want;
        for (const auto& [position, score] : l.score) {
          want.push_back(position);
          l.pending[position] = weight_of(steps_, layer, a.slot, head, position);
        }
        ASSERT_EQ(host_->positions(layer, a.slot, head), want)
            << "step " << steps_ << ", layer " << layer << ", slot " << a.slot << ", head " << head;
      });
    }
  }
  // Appends a prompt in pieces, then text.
  void read_and_write(uint32_t slot, const std::vector<uint32_t>& pieces, uint32_t text) {
    for (const uint32_t rows : pieces) step({{slot, rows}});
    for (uint32_t i = 0; i < text && !HasFatalFailure(); ++i) step({{slot, 1}});
  }

  std::unique_ptr<conformance::Component> cache_;
  std::unique_ptr<KvCacheHost> host_;
  std::mt19937_64 random_{3};
  std::vector<std::vector<KeptTokens>> lines_;  // [layer][slot, head]
  uint32_t steps_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Policies, Evicting,
                         testing::Combine(testing::Values(kH2o, kSnapKv), testing::Values("cpu", "cuda")),
                         [](const auto& tested) {
                           return std::get<0>(tested.param).name + std::string("_on_") + std::get<1>(tested.param);
                         });

TEST_P(Evicting, TwoSequencesKeepWhatTheRuleSays) {
  for (uint32_t i = 0; i < 60; ++i) {
    step({{0, 1 + i % 7}, {1 + i % 2, 1 + i % 3}});
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(host_->length(0), 5 * policy().rule.most);
}

// The last piece of a prompt is long, short, or a row; the text fills the room again and again.
TEST_P(Evicting, APromptInPiecesAndTheTextAfterIt) {
  for (const std::vector<uint32_t>& pieces : std::vector<std::vector<uint32_t>>{
           {24, 24, 24, 24}, {24, 24, 3}, {24, 1}, {7, 7, 7, 7, 7}, {24, 12}, {20, 4}, {5}}) {
    read_and_write(0, pieces, 60);
    if (HasFatalFailure()) return;
    EXPECT_GT(line(0, 0, 0).dropped, 30U);
    ASSERT_EQ(host_->truncate(0, 0), TENON_OK) << host_->last_reason();
    each_line(0, [](uint32_t, uint32_t, KeptTokens& l) { l.dropped = 0; });
  }
}

// The conversation goes on: a second prompt, which is cut as the first.
TEST_P(Evicting, ASecondPromptAfterTheText) {
  read_and_write(0, {24, 20}, 9);
  read_and_write(0, {24, 24}, 9);
  read_and_write(0, {4}, 30);
}

TEST_P(Evicting, TakesRowsBackAndBeginsAnew) {
  for (uint32_t i = 0; i < 60; ++i) {
    step({{0, i % 20 < 3 ? 20 : 2 + i % 4}});
    if (HasFatalFailure()) return;
    if (i % 3 == 1) {
      ASSERT_EQ(host_->truncate(0, host_->length(0) - 1 - i % 2), TENON_OK) << host_->last_reason();
    }
    if (i == 40) {
      EXPECT_EQ(host_->truncate(0, host_->length(0) / 2), TENON_REFUSED);
      ASSERT_EQ(host_->truncate(0, 0), TENON_OK);
    }
  }
}

TEST_P(Evicting, ASequenceThatEndsWithItsPromptLeavesTheNextNothing) {
  read_and_write(0, {24}, 0);
  ASSERT_EQ(host_->truncate(0, 0), TENON_OK) << host_->last_reason();
  read_and_write(0, {7, 7, 7}, 5);
}

// It is forked in its text, and where its prompt has just ended.
TEST_P(Evicting, AForkGoesOnAsItsOriginalWould) {
  for (const uint32_t text : {20U, 0U}) {
    read_and_write(0, {24}, text);
    ASSERT_EQ(host_->fork(0, 2, host_->length(0) - 1), TENON_OK) << host_->last_reason();
    each_line(0, [&](uint32_t layer, uint32_t head, KeptTokens& l) { line(layer, 2, head) = l; });
    for (uint32_t i = 0; i < 30 && !HasFatalFailure(); ++i) step({{0, 1}, {2, 1 + i % 2}});
    for (const uint32_t slot : {0U, 2U}) ASSERT_EQ(host_->truncate(slot, 0), TENON_OK) << host_->last_reason();
  }
}

// Sequences are saved in text, where a prompt has just ended, within a prompt, and cut by a row. Cells
// that the rule has dropped do not travel.
TEST_P(Evicting, AnImportGoesOnAsItsOriginalWould) {
  const KvCacheHost::Shape shape{.rows = kRows, .seqs = 2, .slots = kSlots, .capacity = 500};
  for (const auto& [pieces, text] :
       std::vector<std::pair<std::vector<uint32_t>, uint32_t>>{{{24, 24}, 20}, {{24, 24}, 0}, {{24, 5}, 0}}) {
    read_and_write(0, pieces, text);
    if (HasFatalFailure()) return;
    const uint32_t length = host_->length(0);
    const std::vector<std::byte> bytes = host_->export_sequence(0);
    ASSERT_FALSE(bytes.empty());
    // Elsewhere it is what it was, to the byte; here another slot goes on with it, over what was there before.
    const conformance::Component other(plugins().load("kv_cache", policy().name, std::get<1>(GetParam())),
                                       cache_->device(), policy().params);
    KvCacheHost carried(other, shape, false);
    ASSERT_EQ(carried.import_sequence(1, length, bytes, *host_, 0), TENON_OK) << carried.last_reason();
    EXPECT_EQ(carried.export_sequence(1), bytes);
    read_and_write(2, {24, 24}, 3);
    ASSERT_EQ(host_->import_sequence(2, length, bytes, *host_, 0), TENON_OK) << host_->last_reason();
    EXPECT_EQ(host_->export_sequence(2), bytes);
    each_line(0, [&](uint32_t layer, uint32_t head, KeptTokens& l) { line(layer, 2, head) = l; });
    for (const uint32_t slot : {0U, 2U}) ASSERT_EQ(host_->truncate(slot, length - 1), TENON_OK);
    for (uint32_t i = 0; i < 30 && !HasFatalFailure(); ++i) step({{0, 1 + i % 2}, {2, 1 + i % 3}});
    for (const uint32_t slot : {0U, 2U}) ASSERT_EQ(host_->truncate(slot, 0), TENON_OK) << host_->last_reason();
  }
}

// These numbers were computed by hand: pool = 3, and of 12 tokens of a prompt 7
// stay, the newest 2 and 5 of positions 0 to 9.
TEST(SnapKv, KeepsThePeaksWithTheirNeighbours) {
  const Component cache("kv_cache", "snapkv",
                        {{"prompt", int64_t{7}},
                         {"room", int64_t{100}},
                         {"observe", int64_t{2}},
                         {"pool", int64_t{3}},
                         {"format", std::string("fp32")}});
  KvCacheHost host(cache, {.rows = 12, .seqs = 1, .slots = 1, .capacity = 200}, false);
  std::mt19937_64 random(5);
  const auto weigh = [&](const std::map<uint32_t, float>& peaks) {
    host.weigh([&](uint32_t, uint32_t, uint32_t, uint32_t p) { return peaks.contains(p) ? peaks.at(p) : 0.25F; });
  };
  ASSERT_EQ(host.step({{0, 12}}, random), "");
  // 4 has the greatest score, 3 and 5 are its neighbours; 8's pool has 7, 8 and 9, of which 8 itself goes last, then
  // the newest. The newest tokens lend their neighbours nothing.
  weigh({{4, 3.0F}, {8, 2.0F}, {10, 9.0F}});
  ASSERT_EQ(host.step({{0, 1}}, random), "");
  EXPECT_EQ(host.positions(0, 0, 0), (std::vector<uint32_t>{3, 4, 5, 8, 9, 10, 11, 12}));
  weigh({});
  ASSERT_EQ(host.step({{0, 8}}, random), "");
  // The second prompt's end keeps 7 of 16 tokens: 19, 20 and 5 more. 8 is the neighbour of 5, since 6 and 7 are gone.
  weigh({{5, 4.0F}});
  ASSERT_EQ(host.step({{0, 1}}, random), "");
  EXPECT_EQ(host.positions(0, 0, 0), (std::vector<uint32_t>{4, 5, 8, 17, 18, 19, 20, 21}));
}

TEST(SnapKv, RefusesAWindowThatLeavesNothingToChooseAndAPoolWithoutAMiddle) {
  EXPECT_ANY_THROW(Component("kv_cache", "snapkv", {{"prompt", int64_t{32}}, {"observe", int64_t{32}}}));
  EXPECT_ANY_THROW(Component("kv_cache", "snapkv", {{"pool", int64_t{6}}}));
}

}  // namespace
}  // namespace tenon::test
