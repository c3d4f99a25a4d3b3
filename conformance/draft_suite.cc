// Any draft owes this: no more tokens than it may, real ones, and the same from the same calls.
#include <algorithm>
#include <numeric>
#include <random>

#include "conformance/suites.h"
#include "tenon/abi/draft.h"

namespace tenon::conformance {
namespace {

using Text = std::vector<int32_t>;
constexpr int32_t kFence = -77;

Text propose(const Component& draft, const Text& text, uint32_t cap, uint32_t slot) {
  const auto& table = draft.table<tenon_draft>();
  Text out(cap + 16, kFence), parent = out;
  std::iota(parent.begin(), parent.begin() + cap, -1);
  uint32_t count = UINT32_MAX;
  Reason why;
  why.check(table.propose(draft.self(), slot, text.data(), static_cast<uint32_t>(text.size()), out.data(),
                          parent.data(), cap, &count, &why.raw),
            "cannot propose after " + std::to_string(text.size()) + " tokens");
  require(count <= cap, "proposes more tokens than there is room for");
  for (const Text* written : {&out, &parent}) {
    require(std::all_of(written->begin() + cap, written->end(), [](int32_t t) { return t == kFence; }),
            "writes past its room");
  }
  for (int32_t i = 0; i < static_cast<int32_t>(count); ++i) {
    const int32_t before = parent[static_cast<size_t>(i)];
    require((table.flags & TENON_DRAFT_TREES) != 0 ? before >= -1 && before < i : before == i - 1,
            "proposes a token whose parent is none that it may have");
  }
  out.resize(count);
  return out;
}

// Returns what a draft says over the lives of sequences that grow, end and share slots, with little and much room.
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
    require(table.max_tokens(draft.self()) == most, "changes its mind about how many tokens it proposes");
  }
  return all;
}

void proposes_tokens(const Subject& subject) {
  const std::unique_ptr<Component> draft = subject.open();
  const uint32_t most = draft->table<tenon_draft>().max_tokens(draft->self());
  require(most > 0, "never proposes anything: max_tokens is 0");
  for (const Text& proposed : proposals_of(*draft)) {
    require(proposed.size() <= most, "proposes more tokens than max_tokens");
    require(std::all_of(proposed.begin(), proposed.end(), [](int32_t t) { return t >= 0; }),
            "proposes a token below 0; what ends a list early is its count");
  }
}

void proposes_the_same_again(const Subject& subject) {
  const std::unique_ptr<Component> first = subject.open(), second = subject.open();
  require(proposals_of(*first) == proposals_of(*second), "two instances answer the same calls with other tokens");
}

void proposes_nothing_without_room(const Subject& subject) {
  const std::unique_ptr<Component> draft = subject.open();
  propose(*draft, {}, 0, 0);
  propose(*draft, {1, 1, 1, 1}, 0, 0);
}

}  // namespace

std::vector<Check> draft_checks() {
  return {{"tokens", &proposes_tokens},
          {"same_again", &proposes_the_same_again},
          {"no_room", &proposes_nothing_without_room}};
}

}  // namespace tenon::conformance
