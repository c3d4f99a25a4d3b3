// The cache has the beginnings of these prompts already: they are not run again, and change no text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "requests.h"
#include "support/spoilt_model.h"

namespace tenon::test {
namespace {

using ::testing::Each;
using ::testing::Field;

constexpr uint32_t kPage = 16;

std::vector<std::string> paged(std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"kv_cache.use=paged", "scheduler.use=continuous", "scheduler.sequences=4"});
  return more;
}

// Tokens [0, alike) are those of all such requests, the others of those with the same seed.
Request request(size_t alike, size_t own, int32_t seed, uint32_t new_tokens = 12) {
  Request r{.max_new_tokens = new_tokens, .ignore_end = true, .seed = 5};
  for (size_t i = 0; i < alike; ++i) r.tokens.push_back(static_cast<int32_t>((i * 37) % 200 + 3));
  for (size_t i = 0; i < own; ++i) r.tokens.push_back(static_cast<int32_t>((i * 53 + 11) % 200 + 3 + seed));
  return r;
}

TEST(Reuse, ABeginningIsRunOnceAndWholePagesOfItAreFoundAgain) {
  const auto engine = open_tiny(paged());
  const std::vector<Request> requests = {request(40, 10, 1), request(40, 10, 2)};
  const std::vector<Result> expected = alone(requests);
  RunStats first, second;
  const Result a = engine->generate(requests[0], &first), b = engine->generate(requests[1], &second);
  EXPECT_EQ(a.tokens, expected[0].tokens);
  EXPECT_EQ(b.tokens, expected[1].tokens);
  EXPECT_EQ(a.reused, 0U);
  EXPECT_EQ(b.reused, 2 * kPage) << "the third page holds tokens that differ";
  EXPECT_EQ(first.prompt_tokens, 50U);
  EXPECT_EQ(second.prompt_tokens, 50 - 2 * kPage);
  EXPECT_EQ(second.looked_up, 50U);
  EXPECT_EQ(second.reused, 2 * kPage);
}

TEST(Reuse, TheLastTokenOfAPromptIsAlwaysRun) {
  const auto engine = open_tiny(paged());
  const Request r = request(2 * kPage, 0, 0);
  const Result first = engine->generate(r), second = engine->generate(r);
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.reused, kPage);
}

TEST(Reuse, AConversationGoesOnFromItsAnswer) {
  const auto engine = open_tiny(paged());
  Request r = request(20, 0, 0, 30);
  const Result first = engine->generate(r);
  r.tokens.insert(r.tokens.end(), first.tokens.begin(), first.tokens.end());
  r.tokens.insert(r.tokens.end(), {7, 8, 9});
  const Result second = engine->generate(r);
  EXPECT_EQ(second.reused, 48U) << "49 tokens were in the cache: the last one of the answer was not";
  EXPECT_EQ(second.tokens, alone({r}).front().tokens);
}

TEST(Reuse, AnswersToOnePromptThatComeTogetherRunItOnce) {
  const auto engine = open_tiny(paged({"scheduler.budget_rows=16", "scheduler.prefill_rows=32"}));
  std::vector<Request> requests(4, request(60, 0, 0));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].seed = i;
  const std::vector<Result> expected = alone(requests);
  RunStats stats;
  const std::vector<Result> results = engine->generate(requests, &stats);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].tokens, expected[i].tokens) << i;
  EXPECT_EQ(stats.prompt_tokens, 60U + 3 * (60 - 3 * kPage));
  EXPECT_EQ(stats.reused, 3U * 3 * kPage);
}

TEST(Reuse, NobodyWaitsForABeginningThatTheCacheDoesNotFindAgain) {
  const auto engine = open_tiny(paged({"kv_cache.reuse=false"}));
  const std::vector<Request> requests(4, request(60, 0, 0));
  RunStats stats;
  const std::vector<Result> results = engine->generate(requests, &stats);
  EXPECT_THAT(results, Each(Field(&Result::reused, 0U)));
  EXPECT_EQ(stats.prompt_tokens, 4 * 60U);
  EXPECT_EQ(stats.looked_up, 4 * 60U);
  // The first prompt has one step, as nobody knows yet; the others have 127 rows beside its token, and the last five of
  // theirs in the third. Then there is one for each token but the first.
  EXPECT_EQ(stats.steps, 3 + 11U);
}

TEST(Reuse, APreemptedSequenceFindsItsPagesAgain) {
  const auto engine = open_tiny(paged({"scheduler.sequences=1"}));
  std::vector<Request> requests = {request(0, 40, 1, 20), request(0, 40, 2, 4)};
  requests[1].priority = 1;
  const std::vector<Result> expected = alone(requests);
  const Ticket low = engine->submit(requests[0]);
  for (int i = 0; i < 9; ++i) engine->step();
  const Ticket high = engine->submit(requests[1]);
  while (engine->step()) {
  }
  EXPECT_EQ(engine->take(low)->tokens, expected[0].tokens);
  EXPECT_EQ(engine->take(high)->tokens, expected[1].tokens);
  const RunStats stats = engine->totals();
  EXPECT_EQ(stats.preempted, 1U);
  EXPECT_EQ(stats.recomputed, 48 % kPage) << "48 tokens were in the cache, all in whole pages";
  EXPECT_EQ(stats.reused, 0U) << "what a sequence finds of itself is not another request's";
}

// There are five sequences of four pages each, of which they share three: by themselves they would take twenty.
TEST(Reuse, SequencesThatBeginAlikeRunTogetherInAPoolThatHasNoRoomForEachByItself) {
  const auto engine = open_tiny(paged({"scheduler.sequences=5", "kv_cache.pool=160"}));
  std::vector<Request> requests;
  for (int32_t i = 0; i < 5; ++i) requests.push_back(request(50, 3, i, 8));
  const std::vector<Result> expected = alone(requests);
  EXPECT_EQ(engine->generate(requests[0]).tokens, expected[0].tokens);
  RunStats stats;
  const std::vector<Result> results = engine->generate(requests, &stats);
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].tokens, expected[i].tokens) << i;
  // Two run in the first step, since so far nobody holds what they share, and the others in the next.
  EXPECT_EQ(stats.steps, 9U) << "they did not run together";
  EXPECT_EQ(stats.preempted, 0U);
  EXPECT_EQ(free_pages(*engine), 10U);
}

TEST(Reuse, ADraftModelsCacheHasTheSameBeginnings) {
  const auto engine = open_tiny(paged({"draft.pipeline.tokens=3", "sampler.chain=[]", "sampler.select=greedy"}));
  const auto plain = open_tiny({"sampler.chain=[]", "sampler.select=greedy"});
  for (const Request& r : {request(40, 10, 1), request(40, 10, 2)}) {
    RunStats stats;
    EXPECT_EQ(engine->generate(r, &stats).tokens, plain->generate(r).tokens);
    EXPECT_EQ(stats.accepted, stats.drafted) << "the draft model is the model itself";
  }
  EXPECT_EQ(engine->totals().reused, 2 * kPage);
}

// The last token of the prompt that fails cannot be embedded, so its logits are not finite.
TEST(Reuse, WhatARequestThatFailedHeldIsNotFoundAgain) {
  constexpr int32_t kSpoilt = 259;
  constexpr size_t kWidth = 64;
  SpoiltModel model(std::string(TENON_SOURCE_DIR) + "/tests/golden/data/tiny-gqa-untied");
  model.set("model.embed_tokens.weight", kSpoilt * kWidth, std::numeric_limits<float>::quiet_NaN());
  const auto engine = open_tiny(paged({"quantization.use=none"}), {.config = model.path()});
  const Request sound = request(40, 3, 0);
  engine->generate(sound);
  EXPECT_EQ(engine->generate(sound).reused, 2 * kPage);
  Request spoilt = request(40, 0, 0);
  spoilt.tokens.push_back(kSpoilt);
  const Result failed = engine->generate(std::vector<Request>{spoilt}).front();
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_EQ(failed.reused, 2 * kPage);
  EXPECT_EQ(engine->generate(sound).reused, 0U);
  EXPECT_EQ(free_pages(*engine), 4 * 128 / kPage);
}

}  // namespace
}  // namespace tenon::test
