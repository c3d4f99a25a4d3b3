// This tests the selectors greedy and categorical.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "samplers.h"
#include "tenon/sdk/cpu/philox.h"

namespace tenon::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr float kOut = -std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kVocabs[] = {1, 2, 31, 1000, 49152};

void set_key(SamplerHost& host, uint32_t slot, uint32_t key0, uint32_t key1) {
  const std::span<int32_t> rng = host.runner().step_i32(TENON_STEP_RNG);
  rng[4 * slot] = static_cast<int32_t>(key0);
  rng[4 * slot + 1] = static_cast<int32_t>(key1);
}

struct Selector {
  std::string name;
  uint64_t isa;
};
std::vector<Selector> selectors() {
  std::vector<Selector> all{{"greedy", 0}, {"categorical", 0}};
  if ((machine_isa() & TENON_ISA_AVX2) != 0) all.push_back({"categorical", TENON_ISA_AVX2});
  if ((machine_isa() & TENON_ISA_AVX512) != 0) all.push_back({"categorical", TENON_ISA_AVX2 | TENON_ISA_AVX512});
  return all;
}

std::vector<int32_t> select(const Selector& s, const std::vector<StepRow>& rows, uint32_t form = TENON_DENSE,
                            uint64_t seed = 1, uint32_t padding = 2) {
  const Component component("sampler", s.name, {}, s.isa);
  SamplerHost host(static_cast<uint32_t>(rows[0].logits.size()), rows, 2, padding);
  set_key(host, 0, 1234, 0);
  set_key(host, 1, 5, 6);
  const tenon_tid next = host.select(host.add(component), form == TENON_DENSE ? host.dense() : host.sparse(seed));
  host.run(seed);
  const std::span<int32_t> all = host.runner().step_i32(TENON_STEP_NEXT);
  EXPECT_THAT(std::vector(all.end() - padding, all.end()), Each(-7)) << "padding was written";
  return host.tokens(next);
}

TEST(Greedy, TakesTheGreatestAndTheLowestOfEquals) {
  const Selector greedy{"greedy", 0};
  EXPECT_THAT(select(greedy, rows_of({{1, 3, 2, 3}, {-1, -2, -1, -3}, {kNan, -5, kNan, -6}, {0, -0.0F, 0, 0}})),
              ElementsAre(0 + 1, 0, 1, 0));
  EXPECT_THAT(select(greedy, rows_of({{1, 3, 2, 3}, {-1, -2, -1, -3}, {kNan, -5, kNan, -6}}), TENON_SPARSE),
              ElementsAre(1, 0, 1));
}

TEST(Greedy, IsTheArgmaxOfEverySize) {
  for (const uint32_t vocab : kVocabs) {
    Logits logits = awkward_logits(vocab, vocab);
    if (vocab == 49152) logits[8192] = logits[40000] = 50;  // a block's first; equal in another block
    int32_t best = 0;
    for (uint32_t i = 1; i < vocab; ++i) {
      if (!(logits[static_cast<size_t>(best)] >= logits[i]) && logits[i] > kOut) best = static_cast<int32_t>(i);
    }
    for (const uint32_t form : {TENON_DENSE, TENON_SPARSE}) {
      EXPECT_THAT(select({"greedy", 0}, rows_of({logits, logits}), form), Each(best)) << vocab;
    }
  }
}

TEST(Selectors, TakeTokenZeroWhenNoneIsLeft) {
  for (const Selector& s : selectors()) {
    const Logits none(100, kOut), nan(100, kNan);
    EXPECT_THAT(select(s, rows_of({none, nan})), ElementsAre(0, 0)) << s.name;
    EXPECT_THAT(select(s, rows_of({none, nan}), TENON_SPARSE), ElementsAre(0, 0)) << s.name;
  }
}

TEST(Selectors, TakeTheOnlyOneThatMatters) {
  for (const Selector& s : selectors()) {
    Logits one(1000, kOut);
    one[777] = -1e30F;
    Logits infinite(1000, 3);
    infinite[500] = infinite[820] = infinite[901] = std::numeric_limits<float>::infinity();  // the lowest of equals
    EXPECT_THAT(select(s, rows_of({one, infinite})), ElementsAre(777, 500)) << s.name;
    EXPECT_THAT(select(s, rows_of({one, infinite}), TENON_SPARSE), ElementsAre(777, 500)) << s.name;
  }
}

TEST(Selectors, DependOnNeitherFormNorSplitNorOtherRows) {
  for (const Selector& s : selectors()) {
    for (const uint32_t vocab : kVocabs) {
      std::vector<Logits> logits;
      for (uint64_t r = 0; r < 5; ++r) logits.push_back(awkward_logits(vocab, 10 * vocab + r));
      std::vector<StepRow> rows = rows_of(logits);
      rows[2].slot = rows[3].slot = 1;
      const std::vector<int32_t> tokens = select(s, rows);
      for (const uint64_t seed : {2, 3, 4}) {
        EXPECT_EQ(select(s, rows, TENON_DENSE, seed), tokens) << s.name << " " << vocab;
        EXPECT_EQ(select(s, rows, TENON_SPARSE, seed, 1), tokens) << s.name << " " << vocab;
      }
      for (size_t r = 0; r < rows.size(); ++r) {
        EXPECT_THAT(select(s, {rows[r]}, TENON_DENSE, 5, 3), ElementsAre(tokens[r])) << s.name << " " << vocab;
      }
    }
  }
}

TEST(Categorical, IsTheSameUnderEveryInstructionSet) {
  for (const uint32_t vocab : {33U, 1000U, 49152U}) {
    std::vector<Logits> logits;
    for (uint64_t r = 0; r < 40; ++r) logits.push_back(awkward_logits(vocab, r));
    const std::vector<int32_t> tokens = select({"categorical", 0}, rows_of(logits));
    for (const Selector& s : selectors()) {
      if (s.name != "categorical") continue;
      EXPECT_EQ(select(s, rows_of(logits)), tokens) << s.isa;
    }
  }
}

// Returns log(p / q) in double, up to a constant, as plugin.h states it.
double score(double logit, uint32_t id, uint32_t position, uint32_t key0, uint32_t key1) {
  const uint32_t word = sdk::cpu::philox4x32({{position, 0, id / 4, 0}}, key0, key1).word[id % 4];
  const double u = (static_cast<double>(word >> 1) + 0.5) * 0x1p-31;
  return logit - std::log(-std::log1p(-u));
}

TEST(Categorical, DrawsByTheStatedCounter) {
  for (const uint32_t vocab : {1U, 2U, 31U, 1000U, 20000U}) {
    std::vector<StepRow> rows;
    for (uint32_t r = 0; r < 100; ++r) {
      rows.push_back({.logits = awkward_logits(vocab, r, 2), .slot = static_cast<int32_t>(r % 2)});
      rows.back().position = static_cast<int32_t>(1000 * r);
    }
    const std::vector<int32_t> tokens = select({"categorical", machine_isa()}, rows);
    for (uint32_t r = 0; r < rows.size(); ++r) {
      const auto of = [&](uint32_t id) {
        return r % 2 == 0 ? score(rows[r].logits[id], id, 1000 * r + 1, 1234, 0)
                          : score(rows[r].logits[id], id, 1000 * r + 1, 5, 6);
      };
      double best = kOut;
      for (uint32_t id = 0; id < vocab; ++id) best = std::fmax(best, of(id));
      if (best == kOut) continue;
      EXPECT_NEAR(of(static_cast<uint32_t>(tokens[r])), best, 1e-5) << vocab << " " << r;
    }
  }
}

// A word of a few hundred stands for a q near 0, which only an exact logarithm of 1 - u tells from its neighbours: a
// rival that scores 1 % more or less must win or lose.
TEST(Categorical, KeepsTheBitsOfTinyDraws) {
  int32_t position = 1;
  while (sdk::cpu::philox4x32({{static_cast<uint32_t>(position), 0, 0, 0}}, 1234, 0).word[1] > 1000) ++position;
  const auto at = static_cast<uint32_t>(position);
  const double lead = score(0, 1, at, 1234, 0) - score(0, 0, at, 1234, 0);
  for (const Selector& s : selectors()) {
    if (s.name != "categorical") continue;
    const StepRow loses{.logits = {static_cast<float>(lead + 0.01), 0}, .position = position - 1};
    const StepRow wins{.logits = {static_cast<float>(lead - 0.01), 0}, .position = position - 1};
    EXPECT_THAT(select(s, {loses, wins}), ElementsAre(0, 1)) << s.isa;
  }
}

double chi_squared(const std::vector<double>& expected, const std::vector<double>& seen) {
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) sum += std::pow(seen[i] - expected[i], 2) / expected[i];
  return sum;
}

// Limits: the chi-squared distribution's quantile at 1 - 1e-4, by degrees of freedom.
TEST(Categorical, FollowsTheSoftmax) {
  const Component component("sampler", "categorical");
  constexpr uint32_t kVocab = 31, kRows = 256, kSteps = 200;
  Logits logits(kVocab);
  for (uint32_t i = 0; i < kVocab; ++i) logits[i] = std::sin(static_cast<float>(i) * 1.7F) * 1.5F + 100;
  double total = 0;
  for (const float l : logits) total += std::exp(static_cast<double>(l) - 100);
  SamplerHost host(kVocab, rows_of(std::vector<Logits>(kRows, logits)));
  const tenon_tid next = host.select(host.add(component), host.dense());
  std::vector<double> seen(kVocab), pairs(size_t{kVocab} * kVocab);
  for (uint32_t step = 0; step < kSteps; ++step) {
    set_key(host, 0, step, 99);
    ASSERT_EQ(host.runner().run_unwatched(), "");
    const std::vector<int32_t> tokens = host.tokens(next);
    for (size_t r = 0; r < kRows; ++r) seen[static_cast<size_t>(tokens[r])] += 1;
    for (size_t r = 1; r < kRows; r += 2) {
      pairs[static_cast<size_t>(tokens[r - 1]) * kVocab + static_cast<size_t>(tokens[r])] += 1;
    }
  }
  std::vector<double> expected, expected_pairs;
  for (const float l : logits) expected.push_back(kRows * kSteps * std::exp(static_cast<double>(l) - 100) / total);
  for (const double a : expected) {
    for (const double b : expected) expected_pairs.push_back(a * b / (2.0 * kRows * kSteps));
  }
  EXPECT_LT(chi_squared(expected, seen), 69.0);           // there are 30 degrees of freedom
  EXPECT_LT(chi_squared(expected_pairs, pairs), 1130.0);  // there are 960 degrees of freedom
}

// Probabilities go down to 1e-6 among 49152 candidates: the tail as a whole gets its share.
TEST(Categorical, GivesTheTailItsShare) {
  const Component component("sampler", "categorical");
  constexpr uint32_t kVocab = 49152, kRows = 64, kSteps = 30;
  Logits logits(kVocab, 0);
  logits[5] = std::log(49151.0F);  // it is as likely as all others together
  SamplerHost host(kVocab, rows_of(std::vector<Logits>(kRows, logits)));
  const tenon_tid next = host.select(host.add(component), host.dense());
  std::vector<double> seen(5);
  for (uint32_t step = 0; step < kSteps; ++step) {
    set_key(host, 0, step, 7);
    ASSERT_EQ(host.runner().run_unwatched(), "");
    for (const int32_t token : host.tokens(next)) seen[token == 5 ? 4 : static_cast<size_t>(token) / 12288] += 1;
  }
  const double n = kRows * kSteps;
  EXPECT_LT(chi_squared({n / 8, n / 8, n / 8, n / 8, n / 2}, seen), 23.5);  // there are 4 degrees of freedom
}

}  // namespace
}  // namespace tenon::test
