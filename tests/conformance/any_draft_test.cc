// What any draft owes that proposes from the host; `tenon plugin check` runs these on one library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/component.h"
#include "tenon/abi/draft.h"

namespace tenon::test {
namespace {

using ::testing::Each;
using ::testing::Ge;
using Text = std::vector<int32_t>;

class AnyDraft : public ::testing::TestWithParam<std::string> {
 protected:
  AnyDraft() : draft_("draft", GetParam()), table_(draft_.table<tenon_draft>()) {}
  void SetUp() override {
    if ((table_.flags & TENON_DRAFT_HOST) == 0) GTEST_SKIP() << "it drafts on a device";
  }

  const Component draft_;
  const tenon_draft& table_;
};

constexpr int32_t kFence = -77;

Text propose(const Component& draft, const Text& text, uint32_t cap, uint32_t slot) {
  const auto& table = draft.table<tenon_draft>();
  Text out(cap + 16, kFence);
  uint32_t count = UINT32_MAX;
  char reason[256] = "";
  tenon_reason why{reason, sizeof(reason)};
  EXPECT_EQ(
      table.propose(draft.self(), slot, text.data(), static_cast<uint32_t>(text.size()), out.data(), cap, &count, &why),
      TENON_OK)
      << "after " << text.size() << " tokens: " << reason;
  EXPECT_LE(count, cap) << "proposes more than there is room for";
  EXPECT_THAT(Text(out.begin() + cap, out.end()), Each(kFence)) << "writes past its room";
  out.resize(std::min(count, cap));
  return out;
}

// What a draft says over the lives of sequences that grow, end and share slots, with little and much room.
std::vector<Text> proposals_of(const Component& draft) {
  const auto& table = draft.table<tenon_draft>();
  const uint32_t most = table.max_tokens(draft.self());
  std::mt19937_64 random(3);
  std::vector<Text> texts(3), all;
  for (int i = 0; i < 400; ++i) {
    const auto slot = static_cast<uint32_t>(random() % texts.size());
    Text& text = texts[slot];
    if (random() % 40 == 0) {
      if (table.forget != nullptr) table.forget(draft.self(), slot);
      text.clear();
    }
    for (uint64_t n = random() % 12; n > 0; --n)
      text.push_back(static_cast<int32_t>(random() % (slot == 0 ? 3 : 50000)));
    const uint32_t cap = std::min<uint32_t>(most, random() % 3 == 0 ? random() % 3 : most);
    all.push_back(propose(draft, text, cap, slot));
    EXPECT_EQ(table.max_tokens(draft.self()), most) << "changes its mind about how many tokens it proposes";
  }
  return all;
}

TEST_P(AnyDraft, ProposesTokensAndNoMoreThanItMay) {
  ASSERT_GT(table_.max_tokens(draft_.self()), 0U);
  for (const Text& proposed : proposals_of(draft_)) {
    ASSERT_LE(proposed.size(), table_.max_tokens(draft_.self()));
    ASSERT_THAT(proposed, Each(Ge(0))) << "what ends a list early is its count, not a token below 0";
  }
}

TEST_P(AnyDraft, ProposesTheSameAgain) {
  const Component second("draft", GetParam());
  EXPECT_EQ(proposals_of(draft_), proposals_of(second)) << "the same calls in two instances";
}

TEST_P(AnyDraft, SaysNothingWhereThereIsNoRoom) {
  EXPECT_EQ(propose(draft_, {}, 0, 0), Text{});
  EXPECT_EQ(propose(draft_, {1, 1, 1, 1}, 0, 0), Text{});
}

INSTANTIATE_TEST_SUITE_P(All, AnyDraft, ::testing::ValuesIn(installed("draft")),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace tenon::test
