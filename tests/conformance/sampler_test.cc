// Processors without state keep what sorted lists in double say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "../../plugins/sampler/top_p/weight.h"
#include "samplers.h"

namespace tenon::test {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kVocabs[] = {1, 2, 31, 1000, 49152};
constexpr uint32_t kForms[] = {TENON_DENSE, TENON_SPARSE};

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}
// Returns what is in, falling.
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
    expected = sorted(std::move(expected));  // some are equal now
    for (const uint32_t form : kForms) {
      EXPECT_EQ(sorted(through("temperature", {{"value", 0.7}}, logits, form)), expected) << vocab;
    }
  }
}

TEST(LogitBias, AddsToNamedTokens) {
  for (const uint32_t form : kForms) {
    EXPECT_EQ(sorted(through("logit_bias", {{"bias", "3:2.5,0:-100,2:7"}}, {1, -2, kOut, 0.25F}, form)),
              (Candidates{{3, 2.75F}, {1, -2}, {0, -99}}));
  }
  // Both ends of what one chunk holds, and an id that is not there.
  const Settings ends = {{"bias", "0:1,8191:2,8192:-3,49151:4,49152:5"}};
  Logits logits = awkward_logits(49152, 7);
  for (const uint32_t form : kForms) {
    Logits biased = logits;
    biased[0] += 1;
    biased[8191] += 2;
    biased[8192] -= 3;
    biased[49151] += 4;
    EXPECT_EQ(sorted(through("logit_bias", ends, logits, form)), sorted(biased));
    EXPECT_EQ(sorted(through("logit_bias", {}, logits, form)), sorted(logits));
  }
}

TEST(LogitBias, RefusesWhatIsNoBias) {
  for (const char* bias : {"1", "1:", ":1", "a:1", "1:b", "-1:1", "1:101", "1:-100.5", "1:nan", "1:2,1:3", "1:2;3:4"}) {
    EXPECT_ANY_THROW(through("logit_bias", {{"bias", bias}}, {1, 2})) << bias;
  }
  std::string many = "0:1";
  for (int id = 1; id < 1024; ++id) many += "," + std::to_string(id) + ":1";
  EXPECT_EQ(through("logit_bias", {{"bias", many}}, {1, 2}), (Candidates{{0, 2}, {1, 3}}));
  EXPECT_ANY_THROW(through("logit_bias", {{"bias", many + ",1024:1"}}, {1, 2}));
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

TEST(MinP, CutsAtTheShare) {
  const float tenth = std::log(0.1F);
  for (const uint32_t form : kForms) {
    EXPECT_EQ(sorted(through("min_p", {{"p", 0.1}}, {5, 5 + tenth + 1e-3F, 5 + tenth - 1e-3F, kOut, kNan}, form)),
              (Candidates{{0, 5}, {1, 5 + tenth + 1e-3F}}));
    EXPECT_EQ(sorted(through("min_p", {{"p", 1}}, {2, 1, 2}, form)), (Candidates{{0, 2}, {2, 2}}));
    EXPECT_EQ(sorted(through("min_p", {{"p", std::exp(-1.0)}}, {0, -1, -1.0001F}, form)),
              (Candidates{{0, 0}, {1, -1}}));
    EXPECT_EQ(through("min_p", {{"p", 0.5}}, Logits(9, kOut), form), Candidates{});
  }
  for (const uint32_t vocab : kVocabs) {
    for (const double p : {0.0, 0.001, 0.05, 0.5}) {
      const Logits logits = awkward_logits(vocab, vocab);
      Candidates expected = sorted(logits);
      std::erase_if(expected, [most = expected.empty() ? 0.0 : expected[0].logit, p](const Candidate& c) {
        return std::exp(c.logit - most) < p;
      });
      for (const uint32_t form : kForms) {
        EXPECT_EQ(sorted(through("min_p", {{"p", p}}, logits, form)), expected) << vocab << " " << p;
      }
    }
  }
}

TEST(TopP, TakesTheLowerIdsOfEquals) {
  for (const uint32_t form : kForms) {
    for (const auto& [p, n] :
         {std::pair{0.0, 1U}, {0.05, 1U}, {0.1, 1U}, {0.5, 5U}, {0.6, 6U}, {0.61, 7U}, {0.9, 9U}}) {
      const Candidates kept = sorted(through("top_p", {{"p", p}}, Logits(10, -3), form));
      ASSERT_EQ(kept.size(), n) << p;
      EXPECT_EQ(kept.back().id, static_cast<int32_t>(n) - 1) << p;
    }
    const float infinite = std::numeric_limits<float>::infinity();
    EXPECT_EQ(through("top_p", {{"p", 0.9}}, {0, infinite, 3, kNan}, form), (Candidates{{1, infinite}}));
    EXPECT_EQ(through("top_p", {{"p", 0.9}}, Logits(9, kOut), form), Candidates{});
  }
}

// Weights are 1, 1, 1 and four times 1/4: three quarters are reached where the first ones end, to the last bit.
TEST(TopP, AddsNothingToWhatReachesP) {
  float quarter = -std::log(4.0F) - 1e-5F;
  while (quarter < -1.38F && top_p::weight_of(top_p::distance(quarter, 0)) != 0.25F) {
    quarter = std::nextafter(quarter, 0.0F);
  }
  ASSERT_LT(quarter, -1.38F) << "no logit weighs a quarter";
  const Logits logits = {quarter, 0, quarter, 0, 0, quarter, quarter};
  const Candidates all = sorted(logits);
  for (const uint32_t form : kForms) {
    for (const auto& [p, n] : {std::pair{0.25, 1}, {0.5, 2}, {0.75, 3}, {0.8125, 4}, {0.82, 5}, {0.9375, 6}}) {
      const Candidates kept = sorted(through("top_p", {{"p", p}}, logits, form));
      EXPECT_EQ(kept, Candidates(all.begin(), all.begin() + n)) << p;
    }
  }
}

// Each weighs e^-(1/8) of the one before, and lies where a bin begins.
TEST(TopP, FindsThoseThatLieOnTheEdgesOfBins) {
  Logits logits;
  double total = 0, before = 0;
  for (int i = 0; i < 24; ++i) {
    logits.push_back(3 - static_cast<float>(i) / 8);
    total += std::exp(-i / 8.0);
  }
  for (int n = 1; n < 24; ++n) {
    const double weight = std::exp((1 - n) / 8.0);
    EXPECT_EQ(through("top_p", {{"p", (before + weight / 2) / total}}, logits).size(), static_cast<size_t>(n));
    before += weight;
  }
}

// Sums in double may differ in the last bits: at the border either side is right.
TEST(TopP, KeepsTheSmallestSetThatReachesP) {
  for (const uint32_t vocab : kVocabs) {
    for (const double deviation : {0.01, 1.0, 4.0, 30.0}) {
      const Logits logits = awkward_logits(vocab, vocab, deviation);
      const Candidates all = sorted(logits);
      double total = 0;
      for (const Candidate& c : all) total += std::exp(static_cast<double>(c.logit) - all[0].logit);
      for (const double p : {0.0, 0.1, 0.5, 0.9, 0.999, 1.0}) {
        const Candidates kept = sorted(through("top_p", {{"p", p}}, logits));
        ASSERT_LE(kept.size(), all.size());
        ASSERT_EQ(kept, Candidates(all.begin(), all.begin() + static_cast<int64_t>(kept.size())));
        double sum = 0, before = 0;
        for (const Candidate& c : kept) {
          before = sum;
          sum += std::exp(static_cast<double>(c.logit) - all[0].logit);
        }
        EXPECT_GE(sum, p * total * (1 - 1e-6)) << vocab << " " << deviation << " " << p;
        if (p < 1 && kept.size() > 1) {
          EXPECT_LT(before, p * total * (1 + 1e-6)) << vocab << " " << deviation << " " << p;
        }
        if (p == 1) {
          EXPECT_EQ(kept.size(), all.size());
        }
        EXPECT_EQ(sorted(through("top_p", {{"p", p}}, logits, TENON_SPARSE)), kept);
      }
    }
  }
}

// The processors after top_k see a sorted list; the token is that of the same processors on dense rows.
TEST(Chains, GiveTheSameTokenInEitherForm) {
  const Component temperature("sampler", "temperature"), top_k("sampler", "top_k"), top_p("sampler", "top_p"),
      min_p("sampler", "min_p"), categorical("sampler", "categorical");
  // The ids of the second are more than 2^18.
  for (const auto& [vocab, rows] : {std::pair<uint32_t, uint64_t>{3000, 50}, {300007, 3}}) {
    std::vector<Logits> logits;
    for (uint64_t r = 0; r < rows; ++r) logits.push_back(awkward_logits(vocab, r));
    logits.back()[vocab - 1] = 100;  // the last one wins
    const auto tokens = [&, vocab = vocab](bool sparse) {
      SamplerHost host(vocab, rows_of(logits));
      tenon_candidates c = host.apply(host.add(temperature, {{{"value", 1.5}}}), host.dense());
      if (sparse) {
        c = host.apply(host.add(top_k, {{{"k", 0}}}), c);
        EXPECT_EQ(c.form, uint32_t{TENON_SPARSE});
      }
      c = host.apply(host.add(top_p, {{{"p", 0.9}}}), c);
      c = host.apply(host.add(min_p, {{{"p", 0.02}}}), c);
      const tenon_tid next = host.select(host.add(categorical), c);
      host.run(sparse ? 1 : 2);
      return host.tokens(next);
    };
    const std::vector<int32_t> dense = tokens(false);
    EXPECT_EQ(dense, tokens(true)) << vocab;
    EXPECT_EQ(dense.back(), static_cast<int32_t>(vocab) - 1);
  }
}

// Parameters belong to the slot; rows do not see each other.
TEST(Processors, TakeEachSlotsParameters) {
  const struct {
    const char* name;
    std::vector<Settings> settings;
  } cases[] = {
      {"temperature", {{{"value", 0.5}}, {{"value", 1}}, {{"value", 3}}}},
      {"logit_bias", {{{"bias", "1:5,8999:9"}}, {}, {{"bias", "4000:-100"}}}},
      {"top_k", {{{"k", 2}}, {{"k", 0}}, {{"k", 30}}}},
      {"top_p", {{{"p", 0.3}}, {{"p", 1}}, {{"p", 0.9}}}},
      {"min_p", {{{"p", 0.3}}, {{"p", 0}}, {{"p", 0.01}}}},
  };
  for (const auto& c : cases) {
    const Component component("sampler", c.name);
    for (const uint32_t form : kForms) {
      std::vector<StepRow> rows = rows_of({});
      for (int32_t r = 0; r < 7; ++r) {
        rows.push_back({.logits = awkward_logits(9000, static_cast<uint64_t>(r)), .slot = (r * 2) % 3});
      }
      SamplerHost host(9000, rows, 3);
      const SamplerHost::Entry entry = host.add(component, c.settings);
      const tenon_candidates in = form == TENON_DENSE ? host.dense() : host.sparse(3);
      const tenon_candidates out = host.apply(entry, in);
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
