// A draft model runs on the same device: what it proposes changes the number of steps, never the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tenon/core/engine.h"

namespace tenon {
namespace {

using testing::HasSubstr;

const std::string kData = std::string(TENON_SOURCE_DIR) + "/tests/golden/data/";
const std::string kTiny = kData + "tiny-gqa-untied";
const std::vector<std::string> kGreedy = {"sampler.chain=[]", "sampler.select=greedy"};

std::unique_ptr<Engine> open(std::vector<std::string> set, uint32_t sequences = 0) {
  set.insert(set.begin(), {"kv_cache.capacity=256", "device.threads=2", "quantization.use=none"});
  EngineOptions options;
  options.config = kTiny;
  options.set = std::move(set);
  options.sequences = sequences;
  return Engine::open(options);
}

Request request(uint32_t seed, uint32_t n) {
  Request r{.max_new_tokens = n, .ignore_end = true, .seed = seed};
  for (uint32_t i = 0; i < 9 + seed % 5; ++i)
    r.tokens.push_back(static_cast<int32_t>((i * 7919 + seed * 613) % 250 + 3));
  return r;
}

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string error_of(const std::vector<std::string>& set) {
  try {
    open(set);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(DraftModel, ThatIsTheModelItselfIsAlwaysRight) {
  const std::vector<std::string> penalized = {
      "sampler.chain=[{use = \"repetition_penalty\", penalty = 1.3}, {use = \"temperature\", value = 0.9}]",
      "sampler.select=categorical"};
  for (const auto& sampler : {kGreedy, penalized}) {
    const auto alone = open(sampler), drafted = open(with(sampler, {"draft.pipeline.tokens=3"}));
    RunStats stats;
    EXPECT_EQ(drafted->generate(request(1, 41), &stats).tokens, alone->generate(request(1, 41)).tokens);
    EXPECT_GT(stats.drafted, 0u);
    EXPECT_EQ(stats.accepted, stats.drafted);
    EXPECT_EQ(stats.steps, 1u + 10u);  // the prompt gives one token, a round four
  }
}

// These have other weights, other schemes, fewer layers: what they propose is another matter, the text is the target's.
class OtherDraft : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(OtherDraft, GivesTheTargetsText) {
  const std::vector<std::string> sampled = {"sampler.chain=[{use = \"temperature\", value = 0.7}]"};
  for (const auto& sampler : {kGreedy, sampled}) {
    const auto alone = open(sampler), drafted = open(with(sampler, GetParam()));
    for (const uint32_t seed : {1u, 2u, 3u}) {
      RunStats stats;
      const Result r = drafted->generate(request(seed, 40), &stats);
      EXPECT_EQ(r.tokens, alone->generate(request(seed, 40)).tokens);
      EXPECT_GT(stats.drafted, 0u);
      EXPECT_EQ(r.tokens.size(), 40u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, OtherDraft,
    testing::Values(std::vector<std::string>{"draft.pipeline.quantization.use=int8wo"},
                    std::vector<std::string>{"draft.pipeline.model.layers=1", "draft.pipeline.tokens=2"},
                    std::vector<std::string>{"draft.pipeline.model.path=" + kData + "tiny-gqa-untied.gguf",
                                             "draft.pipeline.quantization.use=int4wo"},
                    std::vector<std::string>{"draft.pipeline.model.layers=1", "draft.pipeline.tokens=15"}),
    [](const auto& draft) { return "Case" + std::to_string(draft.index); });

TEST(DraftModel, DraftsForSequencesThatComeAndGo) {
  const auto alone = open(kGreedy);
  const auto drafted =
      open(with(kGreedy, {"scheduler.use=lockstep", "scheduler.sequences=3", "draft.pipeline.model.layers=1"}));
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 7; ++i) requests.push_back(request(i, 5 + 9 * (i % 4)));
  const std::vector<Result> results = drafted->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(results[i].tokens, alone->generate(requests[i]).tokens) << i;
  }
}

// A prompt of 10 tokens gives an 11th, and a round of 7 drafts, all of them right, 8 more: after two rounds there are 27.
// The third one needs 34 cells. Where they are fewer, each step adds one token.
TEST(DraftModel, GoesOnUntilTheCacheIsFull) {
  struct Case {
    uint32_t capacity;
    uint64_t steps;
  };
  for (const auto& [capacity, steps] : {Case{33, 1 + 2 + 6}, Case{34, 1 + 3}, Case{40, 1 + 3 + 5}}) {
    const std::vector<std::string> set = with(kGreedy, {"kv_cache.capacity=" + std::to_string(capacity)});
    const auto alone = open(set), drafted = open(with(set, {"draft.pipeline.tokens=7"}));
    RunStats stats;
    const Result expected = alone->generate(request(1, 100)), found = drafted->generate(request(1, 100), &stats);
    EXPECT_EQ(found.tokens, expected.tokens) << capacity;
    EXPECT_EQ(found.finish, FinishReason::kCapacity) << capacity;
    EXPECT_EQ(stats.steps, steps) << capacity;
  }
}

TEST(DraftModel, OnePlanHoldsBothToTheByte) {
  const auto alone = open({});
  const auto drafted = open({"draft.pipeline.quantization.use=int8wo"});
  EXPECT_GT(drafted->pipeline().plan().of(MemoryKind::kWeights), alone->pipeline().plan().of(MemoryKind::kWeights));
  EXPECT_EQ(drafted->pipeline().plan().of(MemoryKind::kKvCache), 2 * alone->pipeline().plan().of(MemoryKind::kKvCache));
  drafted->load();
  drafted->generate(request(1, 20));
  EXPECT_EQ(drafted->pipeline().high_water(), drafted->pipeline().plan().peak());
}

TEST(DraftModel, ARoundIsOneProgram) {
  const auto engine = open({"draft.pipeline.tokens=3"});
  size_t heads = 0, drafts = 0;
  for (const Program* p : engine->pipeline().programs()) {
    if (p->bounds().rows_per_seq != 4) continue;
    for (const ProgramOp& op : p->ops()) {
      heads += op.path == "lm_head";
      drafts += op.path == "draft/lm_head";
    }
  }
  EXPECT_GT(heads, 0u);
  EXPECT_EQ(drafts, 3 * heads);
}

TEST(DraftModel, IsInThePlan) {
  const auto engine = open({"draft.pipeline.model.layers=1"});
  const auto decisions = engine->pipeline().decisions();
  EXPECT_TRUE(std::any_of(decisions.begin(), decisions.end(), [](const Decision& d) {
    return d.path == "draft" && d.text.find("1 layers: proposes 4 tokens a round") != std::string::npos;
  }));
}

TEST(DraftModel, ItsOverridesMakeItAgain) {
  const auto engine = open({"draft.pipeline.quantization.use=int8wo", "draft.pipeline.model.layers=2"});
  const std::vector<std::string> overrides = to_overrides(engine->config(), engine->default_config());
  std::vector<std::string> of_draft;
  for (const std::string& o : overrides) {
    if (o.starts_with("draft.")) of_draft.push_back(o);
  }
  EXPECT_THAT(of_draft, testing::UnorderedElementsAre("draft.pipeline.tokens=4", "draft.pipeline.model.layers=2",
                                                      "draft.pipeline.quantization.use=\"int8wo\""));
  EXPECT_EQ(to_toml(open(of_draft)->config()), to_toml(engine->config()));
}

TEST(DraftModel, WhatCannotBeIsSaidWithItsPlace) {
  EXPECT_THAT(error_of({"draft.use=ngram", "draft.pipeline.tokens=3"}), HasSubstr("a pipeline has one of them"));
  EXPECT_THAT(error_of({"draft.pipeline.tokens=16"}), HasSubstr("draft.pipeline"));
  EXPECT_THAT(error_of({"draft.pipeline.token=3"}), HasSubstr("did you mean \"tokens\""));
  EXPECT_THAT(error_of({"draft.pipeline.kv_cache.capacity=64"}), HasSubstr("state kv_cache.capacity"));
  EXPECT_THAT(error_of({"draft.pipeline.attention.use=flush"}), HasSubstr("flash"));
  EXPECT_THAT(error_of({"draft.pipeline.model.path=synthetic:stories15m"}),
              testing::AllOf(HasSubstr("32000"), HasSubstr("vocabulary")));
  EXPECT_THAT(error_of({"draft.pipeline.model.layers=99"}), HasSubstr("model.layers: found 99"));
}

}  // namespace
}  // namespace tenon
