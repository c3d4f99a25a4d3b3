// These tests choose among candidates by costs and divergences that are made up.
#include "tune_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tenon/core/error.h"

namespace tenon::app {
namespace {

using ::testing::HasSubstr;

const std::vector<Candidate> kCandidates = {Candidate::parse("fast"), Candidate::parse("slow:bits=6")};

// Costs at batches of 1 and 8, and the divergence.
TunedSite site(std::vector<double> fast, double fast_loss, std::vector<double> slow, double slow_loss) {
  return {"layers.*.mlp.down",
          {SiteCost{std::move(fast), {fast_loss, {}}}, SiteCost{std::move(slow), {slow_loss, {}}}},
          99};
}

size_t chosen(TunedSite s, const LossBounds& bounds = {}) {
  std::vector<TunedSite> sites = {std::move(s)};
  choose(sites, kCandidates, bounds);
  return sites.front().chosen;
}

TEST(TuneChoice, TakesTheLeastCostOverAllBatches) {
  EXPECT_EQ(chosen(site({1, 5}, 0, {2, 9}, 0)), 0u);
  EXPECT_EQ(chosen(site({1, 9}, 0, {2, 5}, 0)), 1u);
  EXPECT_EQ(chosen(site({3, 4}, 0, {4, 3}, 0)), 0u);  // the first of equals
}

TEST(TuneChoice, LeavesOutWhatLosesTooMuchAndWhatDoesNotTakeTheSite) {
  const TunedSite s = site({1, 1}, 0.5, {2, 2}, 0.1);
  EXPECT_EQ(chosen(s, {.max_divergence = 0.5, .min_sqnr = {}}), 0u);
  EXPECT_EQ(chosen(s, {.max_divergence = 0.4, .min_sqnr = {}}), 1u);
  TunedSite alone = s;
  alone.candidates[0].reset();
  EXPECT_EQ(chosen(alone), 1u);
  try {
    chosen(s, {.max_divergence = 0.05, .min_sqnr = {}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kRequest);
    EXPECT_THAT(
        e.what(),
        HasSubstr("layers.*.mlp.down: no candidate is within a divergence of 0.05; found: fast 0.5, slow:bits=6 0.1"));
  }
}

TEST(TuneChoice, LeavesOutWhatHasTooMuchNoise) {
  TunedSite s = site({1, 1}, 0.5, {2, 2}, 0.1);
  s.candidates[0]->loss.sqnr = 20;
  s.candidates[1]->loss.sqnr = 35;
  EXPECT_EQ(chosen(s, {.max_divergence = {}, .min_sqnr = 20}), 0u);
  EXPECT_EQ(chosen(s, {.max_divergence = {}, .min_sqnr = 21}), 1u);
  EXPECT_EQ(chosen(s, {.max_divergence = 0.4, .min_sqnr = 20}), 1u);  // it is within both
  try {
    chosen(s, {.max_divergence = 0.3, .min_sqnr = 40});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("no candidate is within a divergence of 0.3 and an SQNR of 40 dB; found: fast 0.5 (20 dB), "
                          "slow:bits=6 0.1 (35 dB)"));
  }
}

TEST(TuneChoice, WritesOverridesInTheOrderOfTheSites) {
  TuneReport report{
      .candidates = kCandidates, .refused = {}, .batches = {1}, .sites = {}, .unit = "", .loss = {}, .file = {}};
  report.sites = {site({1}, 0, {2}, 0), site({2}, 0, {1}, 0)};
  report.sites[0].path = "lm_head";
  choose(report.sites, kCandidates, {});
  EXPECT_EQ(overrides_toml(report),
            R"([{match = "lm_head", use = "fast"}, {match = "layers.*.mlp.down", use = "slow", bits = 6}])");
}

TEST(TuneChoice, RefusesACandidateThatIsNone) {
  for (const char* text : {"", ":bits=2", "a:bits", "a:=2", "a:bits=", "a:"}) {
    EXPECT_THROW((void)Candidate::parse(text), Error) << text;
  }
}

}  // namespace
}  // namespace tenon::app
