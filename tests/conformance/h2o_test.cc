// kv_cache.h2o keeps what its rule says, beside the rule in float64: a list of positions with their scores for each KV head.
#include <gtest/gtest.h>

#include <map>

#include "conformance/kv_cache_host.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::KvCacheHost;

constexpr uint32_t kHeavy = 9, kRecent = 6, kSlots = 3;

// Whole numbers of 64ths, so that no sum is rounded and equal scores are equal everywhere.
float weight_of(uint32_t step, uint32_t layer, uint32_t slot, uint32_t head, uint32_t position) {
  return static_cast<float>(
             (position * 2654435761U ^ (step * 40503U + layer * 977U + slot * 131U + head * 17U)) >> 16U & 63U) /
         64;
}

// One KV head of a sequence.
struct Line {
  std::map<uint32_t, double> score;    // by position
  std::map<uint32_t, double> pending;  // what the step before has left

  void step(uint32_t kv_len, uint32_t rows) {
    for (const auto& [position, weight] : pending) score[position] += weight;
    pending.clear();
    std::erase_if(score, [&](const auto& s) { return s.first >= kv_len; });
    while (score.size() > kHeavy + kRecent) {
      auto least = score.end();
      for (auto it = score.begin(); it != score.end(); ++it) {  // ascending: the oldest of equals comes first
        if (it->first + kRecent >= kv_len) continue;
        if (least == score.end() || it->second < least->second) least = it;
      }
      ASSERT_NE(least, score.end());
      score.erase(least);
    }
    for (uint32_t i = 0; i < rows; ++i) score[kv_len + i] = 0;
  }
};

class H2o : public testing::Test {
 protected:
  H2o()
      : cache_("kv_cache", "h2o",
               {{"heavy", int64_t{kHeavy}}, {"recent", int64_t{kRecent}}, {"format", std::string("fp32")}}),
        host_(cache_, {.rows = 12, .seqs = 2, .slots = kSlots, .capacity = 400}, false) {
    for (uint32_t layer = 0; layer < host_.layers(); ++layer) lines_.emplace_back(kSlots * host_.heads(layer));
  }
  Line& line(uint32_t layer, uint32_t slot, uint32_t head) { return lines_[layer][slot * host_.heads(layer) + head]; }

  template <class F>
  void each_line(uint32_t slot, const F& f) {
    for (uint32_t layer = 0; layer < host_.layers(); ++layer) {
      for (uint32_t head = 0; head < host_.heads(layer); ++head) f(layer, head, line(layer, slot, head));
    }
  }
  void step(const std::vector<KvCacheHost::Append>& appends) {
    for (const auto& a : appends) {
      each_line(a.slot, [&](uint32_t, uint32_t, Line& l) { l.step(host_.length(a.slot), a.rows); });
    }
    ASSERT_EQ(host_.step(appends, random_), "");
    ++steps_;
    host_.weigh([&](uint32_t layer, uint32_t slot, uint32_t head, uint32_t p) {
      return weight_of(steps_, layer, slot, head, p);
    });
    for (const auto& a : appends) {
      each_line(a.slot, [&](uint32_t layer, uint32_t head, Line& l) {
        std::vector<uint32_t> want;
        for (const auto& [position, score] : l.score) {
          want.push_back(position);
          l.pending[position] = weight_of(steps_, layer, a.slot, head, position);
        }
        ASSERT_EQ(host_.positions(layer, a.slot, head), want)
            << "step " << steps_ << ", layer " << layer << ", slot " << a.slot << ", head " << head;
      });
    }
  }

  Component cache_;
  KvCacheHost host_;
  std::mt19937_64 random_{3};
  std::vector<std::vector<Line>> lines_;  // [layer][slot, head]
  uint32_t steps_ = 0;
};

TEST_F(H2o, KeepsWhatItsRuleSays) {
  for (uint32_t i = 0; i < 60; ++i) {
    step({{0, 1 + i % 7}, {1 + i % 2, 1 + i % 3}});
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(host_.length(0), 10 * kRecent);
}

TEST_F(H2o, TakesRowsBackAndBeginsAnew) {
  for (uint32_t i = 0; i < 60; ++i) {
    step({{0, 2 + i % 4}});
    if (HasFatalFailure()) return;
    if (i % 3 == 1) {
      ASSERT_EQ(host_.truncate(0, host_.length(0) - 1 - i % 2), TENON_OK) << host_.last_reason();
    }
    if (i == 40) {
      EXPECT_EQ(host_.truncate(0, host_.length(0) / 2), TENON_REFUSED);
      ASSERT_EQ(host_.truncate(0, 0), TENON_OK);
    }
  }
}

TEST_F(H2o, AForkGoesOnAsItsOriginalWould) {
  for (uint32_t i = 0; i < 20; ++i) step({{0, 3}});
  ASSERT_EQ(host_.fork(0, 2, host_.length(0) - 1), TENON_OK) << host_.last_reason();
  each_line(0, [&](uint32_t layer, uint32_t head, Line& l) { line(layer, 2, head) = l; });
  for (uint32_t i = 0; i < 10; ++i) step({{0, 1}, {2, 2}});
}

}  // namespace
}  // namespace tenon::test
