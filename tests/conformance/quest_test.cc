// kv_cache.quest chooses the pages that its rule says, beside the rule in float64 over the keys that are stored; and
// what a row does not read has bounds no larger than what it reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "conformance/kv_cache_host.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::KvCacheHost;

constexpr uint32_t kPage = 16, kMostPages = 5, kSlots = 3, kRows = 40, kWholeLayers = 1;
constexpr double kRounding = 1e-3;  // a sum of two bounds in f32, whose terms are at most 9, is off by less

const std::vector<Setting> kParams = {{"page_tokens", int64_t{kPage}},
                                      {"budget", int64_t{kPage * kMostPages}},
                                      {"whole_layers", int64_t{kWholeLayers}},
                                      {"format", std::string("fp16")}};

// The host looks at its last layer: of two, at three heads of 5 elements, of three, at one of 64.
class Quest : public testing::TestWithParam<std::tuple<const char*, uint32_t>> {
 protected:
  void SetUp() override {
    const std::string on = std::get<0>(GetParam());
    const conformance::Device* const machine = on == "cpu" ? &conformance::Device::cpu() : device(on);
    if (machine == nullptr) GTEST_SKIP() << "this machine has no usable device " << on;
    for (auto* cache : {&cache_, &second_}) {
      *cache = std::make_unique<conformance::Component>(plugins().load("kv_cache", "quest", on), *machine, kParams);
    }
    host_ = host_of(*cache_);
    other_ = host_of(*second_);
  }
  static std::unique_ptr<KvCacheHost> host_of(const conformance::Component& cache) {
    return std::make_unique<KvCacheHost>(cache, KvCacheHost::Shape{.rows = kRows,
                                                                   .seqs = 2,
                                                                   .slots = kSlots,
                                                                   .capacity = 700,
                                                                   .layers = std::get<1>(GetParam()),
                                                                   .tame = true});
  }

  // This is a KV head of a sequence.
  struct Line {
    const KvCacheHost& host;
    uint32_t slot, head;
    std::span<const float> key(uint32_t position) const { return host.key(slot, position, head); }
  };
  // Returns the sum over the query heads of their bounds of what a key of a page can score; each is no less than any
  // score.
  static double bound_of(const Line& line, uint32_t page, const std::vector<float>& queries) {
    const size_t dim = queries.size() / KvCacheHost::kGroup;
    double sum = 0;
    for (uint32_t g = 0; g < KvCacheHost::kGroup; ++g) {
      std::vector<double> most(dim, -INFINITY);
      double greatest = -INFINITY;
      for (uint32_t p = page * kPage; p < (page + 1) * kPage; ++p) {
        double score = 0;
        for (size_t d = 0; d < dim; ++d) {
          const double product = double{queries[g * dim + d]} * line.key(p)[d];
          most[d] = std::max(most[d], product);
          score += product;
        }
        greatest = std::max(greatest, score);
      }
      const double bound = std::accumulate(most.begin(), most.end(), 0.0);
      EXPECT_LE(greatest, bound + 1e-9);
      sum += bound;
    }
    return sum;
  }

  void check_row(const KvCacheHost& host, uint32_t slot, uint32_t row, uint32_t position) {
    for (uint32_t head = 0; head < host.heads(host.layers() - 1); ++head) check_line({host, slot, head}, row, position);
  }
  void check_line(const Line& line, uint32_t row, uint32_t position) {
    const std::vector<int32_t> list = line.host.chosen(row, line.head);
    const uint32_t own = position / kPage, before = own == 0 ? 0 : own - 1;
    ASSERT_EQ(list.size(), std::min(own + 1, kMostPages)) << "position " << position;
    ASSERT_EQ(list.back(), static_cast<int32_t>(own));
    if (own > 0) {
      ASSERT_EQ(list[list.size() - 2], static_cast<int32_t>(own) - 1);
    }
    if (before + 2 <= kMostPages) return;
    const std::vector<float> queries = line.host.queries(row, line.head);
    double least_read = INFINITY, most_left = -INFINITY;
    for (uint32_t page = 0; page < before; ++page) {
      const double bound = bound_of(line, page, queries);
      if (std::ranges::find(list, static_cast<int32_t>(page)) != list.end()) {
        least_read = std::min(least_read, bound);
      } else {
        most_left = std::max(most_left, bound);
        ++passed_over_;
      }
    }
    ASSERT_GE(least_read, most_left - kRounding) << "position " << position << ", head " << line.head;
  }
  void step(KvCacheHost& host, const std::vector<KvCacheHost::Append>& appends) {
    std::vector<uint32_t> before;
    for (const auto& a : appends) before.push_back(host.length(a.slot));
    ASSERT_EQ(host.step(appends, random_), "");
    uint32_t row = 0;
    for (size_t i = 0; i < appends.size(); ++i) {
      for (uint32_t j = 0; j < appends[i].rows; ++j, ++row) {
        if (appends[i].rows > kMostRows) continue;  // check_choice() of the host says that they read everything
        check_row(host, appends[i].slot, row, before[i] + j);
        if (HasFatalFailure()) return;
      }
    }
  }
  void step(const std::vector<KvCacheHost::Append>& appends) { step(*host_, appends); }

  static constexpr uint32_t kMostRows = 16;
  std::unique_ptr<conformance::Component> cache_, second_;
  std::unique_ptr<KvCacheHost> host_, other_;
  std::mt19937_64 random_{3};
  uint32_t passed_over_ = 0;
};
INSTANTIATE_TEST_SUITE_P(All, Quest, testing::Combine(testing::Values("cpu", "cuda"), testing::Values(2U, 3U)),
                         [](const auto& tested) {
                           return std::get<0>(tested.param) + std::string("_layers_") +
                                  std::to_string(std::get<1>(tested.param));
                         });

TEST_P(Quest, SaysWhichLayersChooseAndForWhichRows) {
  EXPECT_EQ(host_->view(0).most_spans, 0U);
  for (uint32_t layer = kWholeLayers; layer < host_->layers(); ++layer) {
    EXPECT_EQ(host_->view(layer).most_spans, kMostPages);
    EXPECT_EQ(host_->view(layer).span_cells, kPage);
    EXPECT_EQ(host_->view(layer).chosen_rows, kMostRows);
  }
}

// A prompt comes in pieces, long and short ones, and the text after it, beside another sequence.
TEST_P(Quest, ReadsThePagesOfTheLargestBounds) {
  for (const uint32_t rows : {40U, 40U, 33U, 7U, 16U, 17U}) step({{0, rows}});
  for (uint32_t i = 0; i < 150 && !HasFatalFailure(); ++i) step({{0, 1 + i % 3}, {1 + i % 2, 1 + i % 5}});
  EXPECT_GT(passed_over_, 1000U);
}

// Rows are taken back, and other rows take their cells: what a page's summary says is what is in it.
TEST_P(Quest, AfterCutsOfAnyLength) {
  step({{0, 40}});
  for (uint32_t i = 0; i < 150 && !HasFatalFailure(); ++i) {
    step({{0, i % 7 == 0 ? 30 : 1 + i % 16}});
    const uint32_t length = host_->length(0);
    const uint32_t cut = i % 41 == 3 ? length / 2 : static_cast<uint32_t>(random_() % 9);
    ASSERT_EQ(host_->truncate(0, length > 640 ? 0 : length - cut), TENON_OK) << host_->last_reason();
  }
  EXPECT_GT(passed_over_, 300U);
}

TEST_P(Quest, AForkAndAnImportedSequenceChooseAsTheirOriginal) {
  // The slots that they come to had other sequences, whose summaries are none of theirs.
  for (uint32_t i = 0; i < 7; ++i) step({{2, 40}});
  for (uint32_t i = 0; i < 7; ++i) step({{0, 40}});
  ASSERT_EQ(host_->fork(0, 2, host_->length(0) - 37), TENON_OK) << host_->last_reason();
  for (uint32_t i = 0; i < 20 && !HasFatalFailure(); ++i) step({{0, 1}, {2, 1 + i % 4}});
  for (uint32_t i = 0; i < 8; ++i) step(*other_, {{1, 38}});
  const auto bytes = host_->export_sequence(2);
  ASSERT_FALSE(bytes.empty());
  ASSERT_EQ(other_->import_sequence(1, host_->length(2), bytes, *host_, 2), TENON_OK) << other_->last_reason();
  for (uint32_t i = 0; i < 20 && !HasFatalFailure(); ++i) step(*other_, {{1, 1 + i % 16}});
  EXPECT_GT(passed_over_, 300U);
}

TEST(QuestParameters, ABudgetOfNothingButTheNewestPagesIsRefused) {
  EXPECT_ANY_THROW(Component("kv_cache", "quest", {{"page_tokens", int64_t{32}}, {"budget", int64_t{95}}}));
  Component("kv_cache", "quest", {{"page_tokens", int64_t{32}}, {"budget", int64_t{96}}});
}

}  // namespace
}  // namespace tenon::test
