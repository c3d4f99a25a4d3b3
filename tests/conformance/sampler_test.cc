// Processors without state: what they keep, against sorted lists in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampler_host.h"

namespace tenon::test {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kVocabs[] = {1, 2, 31, 1000, 49152};
constexpr uint32_t kForms[] = {TENON_DENSE, TENON_SPARSE};

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}
// What is in, falling.
Candidates sorted(const Logits& logits) {
  Candidates all;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kOut) all.push_back({static_cast<int32_t>(i), logits[i]});
  }
  std::sort(all.begin(), all.end(), more_likely);
  return all;
}
Candidates sorted(Candidates all) {
  std::sort(all.begin(), all.end(), more_likely);
  return all;
}

TEST(Temperature, Divides) {
  EXPECT_EQ(through("temperature", {{"value", 0.5}}, {1, -2, kOut, 0.25F, kNan}),
            (Candidates{{0, 2}, {1, -4}, {3, 0.5F}}));
  EXPECT_EQ(through("temperature", {{"value", 0}}, {1, -2}), (Candidates{{0, 1 / 1e-5F}, {1, -2 / 1e-5F}}));
  for (const uint32_t vocab : kVocabs) {
    const Logits logits = awkward_logits(vocab, vocab);
    Candidates expected = sorted(logits);
    for (Candidate& c : expected) c.logit /= 0.7F;
    for (const uint32_t form : kForms) {
      EXPECT_EQ(sorted(through("temperature", {{"value", 0.7}}, logits, form)), expected) << vocab;
    }
  }
}

TEST(TopK, KeepsTies) {
  for (const uint32_t form : kForms) {
    EXPECT_EQ(through("top_k", {{"k", 2}}, {1, 3, 2, 2, 0, 2}, form), (Candidates{{1, 3}, {2, 2}, {3, 2}, {5, 2}}));
    EXPECT_EQ(through("top_k", {{"k", 1}}, {0, -0.0F, kOut, -1}, form), (Candidates{{0, 0}, {1, 0}}));
    EXPECT_EQ(through("top_k", {{"k", 3}}, {kOut, -1, kNan, -2}, form), (Candidates{{1, -1}, {3, -2}}));
    EXPECT_EQ(through("top_k", {{"k", 3}}, Logits(5, kOut), form), Candidates{});
  }
}

TEST(TopK, EqualsSorting) {
  for (const uint32_t vocab : kVocabs) {
    for (const uint32_t k : {0U, 1U, 2U, 40U, 200U, 5000U, vocab - 1, vocab, 60000U}) {
      const Logits logits = awkward_logits(vocab, vocab + k);
      Candidates expected = sorted(logits);
      size_t n = k == 0 ? expected.size() : std::min<size_t>(k, expected.size());
      while (n > 0 && n < expected.size() && expected[n].logit == expected[n - 1].logit) ++n;
      expected.resize(n);
      for (const uint32_t form : kForms) {
        EXPECT_EQ(through("top_k", {{"k", k}}, logits, form), expected) << vocab << " " << k;
      }
    }
  }
}

TEST(TopK, WithstandsAllEqualAndAscending) {
  Logits rising(49152);
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<float>(i);
  EXPECT_EQ(through("top_k", {{"k", 3}}, rising), (Candidates{{49151, 49151}, {49150, 49150}, {49149, 49149}}));
  EXPECT_EQ(through("top_k", {{"k", 3}}, Logits(49152, 1)).size(), 49152U);
}

// Parameters belong to the slot; rows do not see each other.
TEST(Processors, TakeEachSlotsParameters) {
  const struct {
    const char* name;
    std::vector<Settings> settings;
  } cases[] = {
      {"temperature", {{{"value", 0.5}}, {{"value", 1}}, {{"value", 3}}}},
      {"top_k", {{{"k", 2}}, {{"k", 0}}, {{"k", 30}}}},
  };
  for (const auto& c : cases) {
    const Component component("sampler", c.name);
    for (const uint32_t form : kForms) {
      std::vector<StepRow> rows = rows_of({});
      for (int32_t r = 0; r < 7; ++r) {
        rows.push_back({.logits = awkward_logits(9000, static_cast<uint64_t>(r)), .slot = (r * 2) % 3});
      }
      SamplerHost host(9000, rows, 3);
      const SamplerHost::Link link = host.link(component, c.settings);
      const tenon_candidates in = form == TENON_DENSE ? host.dense() : host.sparse(3);
      const tenon_candidates out = host.apply(link, in);
      for (const uint64_t seed : {1, 2, 3}) {
        host.run(seed);
        const std::vector<Candidates> got = host.candidates(out);
        for (size_t r = 0; r < rows.size(); ++r) {
          const Settings& own = c.settings[static_cast<size_t>(rows[r].slot)];
          EXPECT_EQ(sorted(got[r]), sorted(through(c.name, own, rows[r].logits))) << c.name << " row " << r;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenon::test
