// These tests drive an engine as a program does. What its text depends on is tested, and what it must not depend on.
#include "tenon/core/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "small_engine.h"
#include "tenon/sdk/cpu/philox.h"

namespace tenon {
namespace {

using testing::HasSubstr;

// Returns a text that repeats itself, so that drafts are found and some of them survive.
std::vector<int32_t> repeating(size_t times, uint32_t seed = 1) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < times; ++i) {
    for (const int32_t id : prompt(8, seed)) ids.push_back(id);
  }
  return ids;
}

const std::vector<std::string> kGreedy = {"sampler.chain=[]", "sampler.select=greedy"};

TEST(Engine, GivesTheSameTokensForAnyNumberOfThreads) {
  std::vector<std::vector<int32_t>> tokens;
  for (const char* threads : {"1", "2", "3", "5"}) {
    const auto engine = open("synthetic:stories15m", {std::string("device.threads=") + threads});
    tokens.push_back(engine->generate(request(prompt(40), 40)).tokens);
  }
  for (const auto& t : tokens) EXPECT_EQ(t, tokens.front());
}

// No row of a first piece has logits that are wanted, so that the last layer's experts have no rows.
TEST(Engine, GivesTheSameTokensHoweverThePromptIsCut) {
  const std::string experts = std::string(TENON_SOURCE_DIR) + "/tests/golden/data/tiny-mixtral";
  for (const std::string& model : {std::string("synthetic:stories15m"), experts}) {
    std::vector<std::vector<int32_t>> tokens;
    for (const char* rows : {"1", "7", "512"}) {
      const auto engine = open(model, {std::string("scheduler.prefill_rows=") + rows});
      tokens.push_back(engine->generate(request(prompt(50), 30)).tokens);
    }
    for (const auto& t : tokens) EXPECT_EQ(t, tokens.front()) << model;
  }
}

// Penalties count the tokens of every piece, and each token of the prompt is counted once.
TEST(Engine, PenaltiesDoNotDependOnHowThePromptIsCut) {
  const std::vector<int32_t> text = prompt(50);
  std::vector<int32_t> uncut;
  for (const char* rows : {"512", "1", "7", "25", "49"}) {
    const auto engine = open(kTiny, {std::string("scheduler.prefill_rows=") + rows, "sampler.select=greedy",
                                     "sampler.chain=[{use=\"repetition_penalty\", penalty=1.6}, "
                                     "{use=\"frequency_presence\", frequency=0.7, presence=0.4}]"});
    RunStats stats;
    const std::vector<int32_t> tokens = engine->generate(request(text, 30), &stats).tokens;
    if (uncut.empty()) uncut = tokens;
    EXPECT_EQ(tokens, uncut) << rows << " rows a step";
    EXPECT_EQ(stats.prompt_tokens, text.size()) << rows << " rows a step";
    EXPECT_EQ(stats.new_tokens, 30u);
  }
  EXPECT_NE(uncut, open(kTiny, kGreedy)->generate(request(text, 30)).tokens) << "the penalties change nothing";
}

// Choices are greedy among the model's own log probabilities less what the stated formula subtracts; and every request
// starts from nothing.
TEST(Engine, PenaltiesCountThePromptAndTheText) {
  for (const char* rows : {"512", "9"}) {
    const auto engine = open(kTiny, {std::string("scheduler.prefill_rows=") + rows, "sampler.select=greedy",
                                     "sampler.chain=[{use=\"frequency_presence\", frequency=0.7, presence=0.4}]"});
    for (const uint32_t seed : {1u, 2u}) {
      Request r = request(repeating(3, seed), 30);
      r.logprobs = true;
      r.top_logprobs = 260;
      std::vector<uint32_t> count(260);
      for (const int32_t id : r.tokens) ++count[static_cast<size_t>(id)];
      size_t changed = 0;
      r.on_token = [&](const Token& t) {
        std::vector<double> left(260);
        for (const Logprob& l : t.top) {
          const uint32_t n = count[static_cast<size_t>(l.id)];
          left[static_cast<size_t>(l.id)] = static_cast<double>(l.value) - 0.7 * n - (n > 0 ? 0.4 : 0);
        }
        EXPECT_EQ(t.id, std::max_element(left.begin(), left.end()) - left.begin()) << rows << " rows, text " << seed;
        changed += t.id != t.top.front().id;
        ++count[static_cast<size_t>(t.id)];
        return true;
      };
      EXPECT_EQ(engine->generate(r).tokens.size(), 30u);
      EXPECT_GT(changed, 0u) << "the penalties change nothing";
    }
  }
}

TEST(Engine, SeedsDecideWhatIsDrawn) {
  const auto engine = open("synthetic:stories15m");
  Request r = request(prompt(10), 30);
  const auto first = engine->generate(r).tokens;
  EXPECT_EQ(engine->generate(r).tokens, first);
  r.seed = 99;
  EXPECT_NE(engine->generate(r).tokens, first);
}

// The draw is as plugins/sampler/categorical/plugin.h states it, with both words of the seed as its key.
TEST(Engine, DrawsWithAllBitsOfTheSeed) {
  const auto engine = open(kTiny, {"sampler.chain=[]", "sampler.select=categorical"});
  Request r = request(prompt(10), 12);
  r.seed = uint64_t{0xDECADE01} << 32 | 77;
  r.logprobs = true;
  r.top_logprobs = 260;
  uint32_t position = 10;
  r.on_token = [&](const Token& t) {
    std::pair<double, int32_t> best{-1e300, -1};
    for (const Logprob& l : t.top) {
      const auto id = static_cast<uint32_t>(l.id);
      const uint32_t word = sdk::cpu::philox4x32({{position, 0, id / 4, 0}}, 77, 0xDECADE01).word[id % 4];
      const double u = (static_cast<double>(word >> 1) + 0.5) * 0x1p-31;
      best = std::max(best, {static_cast<double>(l.value) - std::log(-std::log1p(-u)), l.id});
    }
    EXPECT_EQ(t.id, best.second) << "position " << position;
    ++position;
    return true;
  };
  const std::vector<int32_t> tokens = engine->generate(r).tokens;
  EXPECT_EQ(tokens.size(), 12u);
  r.on_token = {};
  r.seed = 77;
  EXPECT_NE(engine->generate(r).tokens, tokens);
}

// Requests without a seed draw from streams of their own, the first from the pipeline's seed.
TEST(Engine, RequestsOfOneCallDrawFromDifferentStreams) {
  const auto engine = open(kTiny, {"sampler.chain=[]", "sampler.select=categorical"});
  const std::vector<Request> same(3, request(prompt(10), 12));
  const std::vector<Result> results = engine->generate(same);
  EXPECT_EQ(results[0].tokens, engine->generate(same[0]).tokens);
  EXPECT_NE(results[0].tokens, results[1].tokens);
  EXPECT_NE(results[0].tokens, results[2].tokens);
  EXPECT_NE(results[1].tokens, results[2].tokens);
}

TEST(Engine, DraftsChangeNothingButTheNumberOfSteps) {
  for (const std::vector<std::string>& sampling : {kGreedy, std::vector<std::string>{}}) {
    std::vector<std::string> set = sampling;
    RunStats plain, drafted;
    const auto expected = open(kTiny, set)->generate(request(repeating(6), 100), &plain).tokens;
    set.insert(set.end(), {"draft.use=ngram", "draft.k=4"});
    EXPECT_EQ(open(kTiny, set)->generate(request(repeating(6), 100), &drafted).tokens, expected);
    EXPECT_GT(drafted.drafted, 0u);
    EXPECT_LE(drafted.steps, plain.steps);
  }
}

TEST(Engine, SequencesOfABatchAreAsIfAlone) {
  std::vector<std::string> set = kGreedy;
  const auto alone = open(kTiny, set);
  set.insert(set.end(), {"scheduler.use=lockstep", "scheduler.sequences=3"});
  const auto together = open(kTiny, set);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 5; ++i) requests.push_back(request(prompt(5 + 9 * i, i), 10 + 5 * i));
  const std::vector<Result> results = together->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(results[i].tokens, alone->generate(requests[i]).tokens) << i;
}

TEST(Engine, AsManySequencesAsAStepHasRows) {
  std::vector<std::string> set = kGreedy;
  const auto alone = open(kTiny, set);
  set.insert(set.end(), {"scheduler.use=lockstep", "scheduler.sequences=4", "scheduler.prefill_rows=4"});
  const std::vector<Request> requests(4, request(prompt(3), 5));
  for (const Result& r : open(kTiny, set)->generate(requests)) {
    EXPECT_EQ(r.tokens, alone->generate(requests[0]).tokens);
  }
}

// Drafts are found wherever a token was there before: most of them are wrong.
TEST(Engine, DraftsGoOnUntilTheCacheIsFull) {
  for (const size_t capacity : {size_t{140}, size_t{141}, size_t{142}, size_t{147}}) {
    std::vector<std::string> set = kGreedy;
    set.push_back("kv_cache.capacity=" + std::to_string(capacity));
    const Result plain = open(kTiny, set)->generate(request(prompt(100), 100));
    set.insert(set.end(), {"draft.use=ngram", "draft.k=6", "draft.min_ngram=1"});
    RunStats stats;
    const Result drafted = open(kTiny, set)->generate(request(prompt(100), 100), &stats);
    EXPECT_EQ(drafted.tokens, plain.tokens) << capacity;
    EXPECT_EQ(drafted.finish, FinishReason::kCapacity) << capacity;
    EXPECT_EQ(drafted.tokens.size(), capacity - 100);
    EXPECT_GT(stats.drafted, stats.accepted) << capacity;
  }
}

// A step takes the drafts of all sequences, whatever it takes of a prompt.
TEST(Engine, SequencesWithDraftsAndShortPiecesOfPromptsAreAsIfAlone) {
  const auto alone = open(kTiny, kGreedy);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 5; ++i) requests.push_back(request(repeating(3 + i % 3, i), 20 + 7 * i));
  for (const char* rows : {"1", "3", "5", "16"}) {
    std::vector<std::string> set = kGreedy;
    set.insert(set.end(), {"scheduler.use=lockstep", "scheduler.sequences=3", "draft.use=ngram", "draft.k=4",
                           std::string("scheduler.prefill_rows=") + rows});
    RunStats stats;
    const std::vector<Result> results = open(kTiny, set)->generate(requests, &stats);
    uint64_t prompts = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(results[i].tokens, alone->generate(requests[i]).tokens) << rows << " rows a step, request " << i;
      prompts += requests[i].tokens.size();
    }
    EXPECT_GT(stats.drafted, stats.accepted);
    EXPECT_GT(stats.accepted, 0u);
    EXPECT_EQ(stats.prompt_tokens, prompts);
  }
}

TEST(Engine, AnAttentionThatCannotReadTheCacheIsRefusedOrGetsACopy) {
  std::vector<std::string> set = kGreedy;
  set.insert(set.end(), {"attention.use=reference", "kv_cache.format=fp16"});
  const std::string text = error_of([&] { open(kTiny, set); }, ErrorCode::kConfig);
  EXPECT_THAT(text, HasSubstr("attention.reference cannot read the cache as it is"));
  EXPECT_THAT(text, HasSubstr("pipeline.strict = false"));
  set.push_back("pipeline.strict=false");
  const auto copying = open(kTiny, set);
  const auto flash = open(kTiny, {"sampler.chain=[]", "sampler.select=greedy", "kv_cache.format=fp16"});
  EXPECT_EQ(copying->generate(request(prompt(20), 20)).tokens, flash->generate(request(prompt(20), 20)).tokens);
}

TEST(Engine, OverridesCutASiteWithoutChangingItsResult) {
  std::vector<std::string> set = kGreedy;
  set.push_back("quantization.use=none");
  const auto whole = open(kTiny, set);
  set.push_back(
      "quantization.override=[{match=\"layers.*.attention.k\", use=\"gguf\"}, {match=\"lm_head\", use=\"gguf\"}]");
  const auto cut = open(kTiny, set);
  EXPECT_GT(cut->pipeline().programs().front()->ops().size(), whole->pipeline().programs().front()->ops().size());
  EXPECT_EQ(cut->generate(request(prompt(30), 40)).tokens, whole->generate(request(prompt(30), 40)).tokens);
}

TEST(Engine, StopStringsEndTheTextBeforeThem) {
  const auto engine = open(kTiny, kGreedy);
  Request r = request(prompt(12), 40);
  const std::string all = engine->generate(r).text;
  ASSERT_GT(all.size(), 12u);
  const std::string stop = all.substr(8, 4);
  r.stop = {"no such text", stop};
  std::string streamed;
  r.on_token = [&](const Token& t) {
    streamed += t.text;
    return true;
  };
  const Result result = engine->generate(r);
  EXPECT_EQ(result.finish, FinishReason::kStopString);
  EXPECT_EQ(result.text, all.substr(0, all.find(stop)));
  EXPECT_EQ(streamed, result.text);
}

TEST(Engine, StreamsWhatItReturns) {
  const auto engine = open(kTiny);
  Request r = request(prompt(12), 60);
  std::string streamed;
  r.stop = {"never to be seen"};
  r.on_token = [&](const Token& t) {
    streamed += t.text;
    return true;
  };
  EXPECT_EQ(engine->generate(r).text, streamed);
}

TEST(Engine, LogprobsAreOfTheModelsOwnDistribution) {
  const auto engine = open(kTiny, kGreedy);
  Request r = request(prompt(12), 8);
  r.logprobs = true;
  r.top_logprobs = 260;
  size_t seen = 0;
  r.on_token = [&](const Token& t) {
    if (t.id < 0) return true;
    EXPECT_EQ(t.top.front().id, t.id);
    EXPECT_FLOAT_EQ(t.top.front().value, t.logprob->value);
    double sum = 0;
    for (const Logprob& l : t.top) sum += std::exp(static_cast<double>(l.value));
    EXPECT_NEAR(sum, 1, 1e-4);
    ++seen;
    return true;
  };
  EXPECT_EQ(engine->generate(r).logprobs.size(), 8u);
  EXPECT_EQ(seen, 8u);
}

TEST(Engine, CanBeCancelledFromAnotherThread) {
  const auto engine = open("synthetic:stories15m");
  std::stop_source source;
  Request r = request(prompt(5), 200);
  r.cancel = source.get_token();
  std::atomic<bool> started{false};
  r.on_token = [&](const Token&) {
    started = true;
    while (!source.stop_requested()) std::this_thread::yield();
    return true;
  };
  std::thread other([&] {
    while (!started) std::this_thread::yield();
    source.request_stop();
  });
  const Result result = engine->generate(r);
  other.join();
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_EQ(result.tokens.size(), 1u);
}

TEST(Engine, AFullCacheEndsTheText) {
  const auto engine = open(kTiny, {"kv_cache.capacity=32"});
  const Result result = engine->generate(request(prompt(30), 100));
  EXPECT_EQ(result.finish, FinishReason::kCapacity);
  EXPECT_EQ(result.tokens.size(), 2u);
}

TEST(Engine, RequestsThatCannotBeServedSayWhyAndLeaveTheEngineUsable) {
  const auto engine = open(kTiny);
  EXPECT_THAT(error_of([&] { engine->generate(request(prompt(256), 1)); }, ErrorCode::kRequest),
              HasSubstr("the prompt has 256 tokens; the cache holds 256"));
  EXPECT_THAT(error_of(
                  [&] {
                    engine->generate(request({1, 9999}, 1));
                  },
                  ErrorCode::kRequest),
              HasSubstr("token 9999 is not of the vocabulary (0 to 259)"));
  EXPECT_EQ(engine->generate(request({1, 259}, 1)).tokens.size(), 1u);
  EXPECT_THAT(error_of(
                  [&] {
                    engine->generate(request({1, 260}, 1));
                  },
                  ErrorCode::kRequest),
              HasSubstr("token 260 is not of the vocabulary"));
  Request r = request(prompt(4), 4);
  r.sampler = {{"temperature.value", "hot"}};
  EXPECT_THAT(error_of([&] { engine->generate(r); }, ErrorCode::kRequest), HasSubstr("sampler.temperature.value"));
  r.sampler = {{"min_p.p", "0.1"}};
  EXPECT_THAT(error_of([&] { engine->generate(r); }, ErrorCode::kRequest), HasSubstr("the chain has no such sampler"));
  r.sampler = {{"temperature.value", "0.1"}};
  EXPECT_EQ(engine->generate(r).tokens.size(), 4u);
}

TEST(Engine, ScoresWhatItGenerates) {
  const auto engine = open(kTiny, kGreedy, {.score_rows = 16});
  std::vector<int32_t> text = prompt(20);
  const std::vector<int32_t> tokens = engine->generate(request(text, 20)).tokens;
  text.insert(text.end(), tokens.begin(), tokens.end());
  std::vector<uint32_t> rows;
  engine->score(text, 19, [&](uint32_t row, std::span<const float> logits) {
    rows.push_back(row);
    if (row + 1 < text.size()) {
      EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), text[row + 1]);
    }
  });
  ASSERT_EQ(rows.size(), 21u);
  EXPECT_EQ(rows.front(), 19u);
  EXPECT_EQ(rows.back(), 39u);
}

}  // namespace
}  // namespace tenon
