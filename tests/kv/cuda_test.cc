// Policies of caches and trees of drafts run on a GPU, where steps are captured and launched ahead of the host.
#include <gtest/gtest.h>

#include "policies.h"

namespace tenon::test {
namespace {

class CudaPolicies : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = no_gpu(); !problem.empty()) GTEST_SKIP() << problem;
  }
};

// Every mode of execution gives the same text with the same log probabilities, which are near those of the CPU, within
// `within`. `attention` is the GPU's.
void expect_the_cpus(const Settings& settings, Request r, const std::string& attention = "flash",
                     double within = 1e-3) {
  r.logprobs = true;
  const Result cpu = open_kv(settings)->generate(r);
  Result first;
  for (const char* mode : {"per_op", "recorded", "auto"}) {
    const auto engine =
        open_on("cuda", with(settings, {std::string("pipeline.execution=") + mode, "attention.use=" + attention}));
    const Result got = engine->generate(r);
    if (first.tokens.empty()) first = got;
    EXPECT_EQ(got.tokens, cpu.tokens) << mode << ", " << settings.front();
    ASSERT_EQ(got.logprobs.size(), cpu.logprobs.size());
    for (size_t i = 0; i < cpu.logprobs.size(); ++i) {
      EXPECT_EQ(got.logprobs[i].value, first.logprobs[i].value) << mode << ", token " << i;
      ASSERT_NEAR(got.logprobs[i].value, cpu.logprobs[i].value, within) << mode << ", token " << i;
    }
    EXPECT_EQ(engine->generate(r).tokens, got.tokens) << "again, " << mode;
  }
}

TEST_F(CudaPolicies, ASinkWindowGeneratesTenTimesItsCapacity) {
  expect_the_cpus(sink_window(), text(21, 320));
}

TEST_F(CudaPolicies, HeavyHittersAreTheCpusInEveryMode) {
  expect_the_cpus(h2o(), text(40, 150));
}

// Prompts come in pieces of 24 rows: a step frees more cells than are found one after another, and the last piece is a
// short one.
TEST_F(CudaPolicies, WhatAPromptsEndLeansOnIsTheCpusInEveryMode) {
  expect_the_cpus(with(snapkv(), {"scheduler.prefill_rows=24"}), text(100, 150));
}

TEST_F(CudaPolicies, HeavyHittersOfAPromptInPiecesAreTheCpus) {
  expect_the_cpus(with(h2o(), {"scheduler.prefill_rows=24"}), text(100, 60));
}

TEST_F(CudaPolicies, ASinkWindowWithTheTextsPositionsIsTheCpus) {
  expect_the_cpus(sink_window({"kv_cache.positions=original", "kv_cache.capacity=256"}), text(21, 200));
}

TEST_F(CudaPolicies, ASinkWindowOfHalvesGoesOnInFixedMemory) {
  const auto engine = open_on("cuda", sink_window({"kv_cache.format=fp16"}));
  engine->load();
  const uint64_t memory = engine->pipeline().allocated();
  EXPECT_EQ(engine->generate(text(21, 320)).tokens.size(), 320U);
  EXPECT_EQ(engine->pipeline().allocated(), memory);
}

// Flash copies what rows see of these caches, and multiplies it in halves. Prompts come in single rows, in short pieces
// and in long ones, and most of their tokens are dropped, or not chosen, at the end. What is dropped depends on the last
// bits of weights, so texts part where two tokens are as good or two cells weigh as much.
TEST_F(CudaPolicies, InHalvesTheyAreNearTheCpus) {
  constexpr size_t kAlike = 20;
  const Settings quest = {"kv_cache.use=quest", "kv_cache.budget=48", "kv_cache.capacity=256"};
  Request r = text(100, 60);
  r.logprobs = true;
  for (const Settings& policy :
       {sink_window(), sink_window({"kv_cache.positions=original", "kv_cache.capacity=256"}), h2o(), snapkv(), quest}) {
    for (const char* rows : {"scheduler.prefill_rows=1", "scheduler.prefill_rows=8", "scheduler.prefill_rows=24"}) {
      SCOPED_TRACE(policy[0] + ", " + policy[1] + ", " + rows);
      const Settings settings = with(policy, {"kv_cache.format=fp16", rows});
      const Result cpu = open_kv(settings)->generate(r);
      std::vector<int32_t> first;
      for (const char* mode : {"per_op", "recorded", "auto"}) {
        const Result got = open_on("cuda", with(settings, {std::string("pipeline.execution=") + mode}))->generate(r);
        if (first.empty()) first = got.tokens;
        EXPECT_EQ(got.tokens, first) << mode;
        const auto parts = std::mismatch(got.tokens.begin(), got.tokens.end(), cpu.tokens.begin(), cpu.tokens.end());
        const auto alike = static_cast<size_t>(parts.first - got.tokens.begin());
        EXPECT_GE(alike, kAlike) << mode;
        for (size_t i = 0; i < std::min(alike, cpu.logprobs.size()); ++i) {
          ASSERT_NEAR(got.logprobs[i].value, cpu.logprobs[i].value, 1e-2) << mode << ", token " << i;
        }
      }
    }
  }
}

TEST_F(CudaPolicies, ASinkWindowTakesBackRejectedDrafts) {
  const Request r = text(40, 120);
  EXPECT_EQ(open_on("cuda", sink_window({"draft.use=ngram"}))->generate(r).tokens, tokens_of(sink_window(), r));
}

class CudaScaledCaches : public CudaPolicies, public testing::WithParamInterface<const char*> {
 protected:
  static std::string use() { return std::string("kv_cache.use=") + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, CudaScaledCaches, testing::Values("int8", "fp8", "int4"));

TEST_P(CudaScaledCaches, AreTheCpusInEveryMode) {
  expect_the_cpus({use(), "kv_cache.capacity=256"}, text(100, 60), "reference");
}

TEST_F(CudaPolicies, PagesAreTheCpusInEveryMode) {
  expect_the_cpus({"kv_cache.use=paged", "kv_cache.format=fp32", "kv_cache.capacity=256"}, text(100, 60));
  for (const char* format : {"kv_cache.format=int8", "kv_cache.format=fp8", "kv_cache.format=int4"}) {
    expect_the_cpus({"kv_cache.use=paged", format, "kv_cache.capacity=256"}, text(100, 60), "reference");
  }
}

TEST_F(CudaPolicies, SequencesThatShareAFewPagesGetTheTextsThatTheyGetAlone) {
  for (const char* mode : {"per_op", "recorded", "auto"}) {
    const Settings settings = {std::string("pipeline.execution=") + mode};
    expect_shared_pages_give_the_texts_of_static("cuda", kTiny, settings);
    for (const char* model : {"tiny-gemma3", "tiny-mistral"}) {  // Their layers with windows have pages of their own.
      expect_shared_pages_give_the_texts_of_static("cuda", model, with(settings, {"scheduler.prefill_rows=16"}));
    }
  }
}

// Prompts are read in single rows and in pieces, and compared with static's, with
// windows that have left most of the text.
TEST_F(CudaPolicies, PagesOfWindowsAreTheCpusInEveryMode) {
  Request r = text(100, 80);
  for (const char* model : {"tiny-gemma3", "tiny-gemma2", "tiny-mistral"}) {
    const Settings fixed = {"kv_cache.use=static", "kv_cache.format=fp32", "kv_cache.capacity=256"};
    const std::vector<int32_t> want = open_on("cpu", fixed, 0, false, model)->generate(r).tokens;
    for (const char* mode : {"per_op", "recorded", "auto"}) {
      const auto engine = open_on("cuda",
                                  {"kv_cache.use=paged", "kv_cache.format=fp32", "kv_cache.capacity=256",
                                   "scheduler.prefill_rows=16", std::string("pipeline.execution=") + mode},
                                  0, false, model);
      for (int i = 0; i < 2; ++i) EXPECT_EQ(engine->generate(r).tokens, want) << model << ", " << mode << ", run " << i;
    }
  }
}

// The adopted tokens are counted by ops of their own.
TEST_F(CudaPolicies, PenaltiesCountWhatWasAdopted) {
  const Settings settings = {"kv_cache.format=fp32", "kv_cache.capacity=256", "sampler.select=greedy",
                             "sampler.chain=[{use=\"repetition_penalty\", penalty=1.5}]"};
  const auto engine = open_on("cuda", with(settings, {"kv_cache.use=paged"}));
  const auto cpu = open_kv(settings);
  const Request r = text(100, 40);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(engine->generate(r).tokens, cpu->generate(r).tokens) << i;
  EXPECT_EQ(engine->totals().reused, 96U);
}

// Prompts of the kernels for long steps and of those for short ones, then
// decoding over several turns of the tail's pages.
TEST_P(CudaScaledCaches, TailsAreTheCpusInEveryMode) {
  for (const char* tail : {"kv_cache.tail=1", "kv_cache.tail=24", "kv_cache.tail=256"}) {
    for (const char* rows : {"scheduler.prefill_rows=16", "scheduler.prefill_rows=64"}) {
      expect_the_cpus({use(), tail, "kv_cache.capacity=256", rows}, text(100, 100), "reference");
    }
  }
}

// The second run finds the beginning and its tail in pages.
TEST_P(CudaScaledCaches, TailsInPagesAreTheCpusInEveryMode) {
  const Settings pages = {"kv_cache.use=paged", std::string("kv_cache.format=") + GetParam(), "kv_cache.capacity=256"};
  for (const char* tail : {"kv_cache.tail=1", "kv_cache.tail=24"}) {
    expect_the_cpus(with(pages, {tail, "scheduler.prefill_rows=16"}), text(100, 100), "reference");
  }
}

TEST_P(CudaScaledCaches, TailsUnderFlashGiveTheSameTextInEveryMode) {
  std::vector<int32_t> first;
  for (const char* mode : {"per_op", "recorded", "auto"}) {
    const auto engine = open_on("cuda", {use(), "kv_cache.tail=24", "kv_cache.capacity=256",
                                         "scheduler.prefill_rows=32", std::string("pipeline.execution=") + mode});
    const auto tokens = engine->generate(text(100, 100)).tokens;
    ASSERT_EQ(tokens.size(), 100U);
    if (first.empty()) first = tokens;
    EXPECT_EQ(tokens, first) << mode;
    EXPECT_EQ(engine->generate(text(100, 100)).tokens, first) << "again, " << mode;
  }
}

TEST_P(CudaScaledCaches, TailsAreNearerToF32) {
  const std::vector<int32_t> ids = text(200, 1).tokens;
  const auto exact = open_on("cuda", {"kv_cache.format=fp32", "kv_cache.capacity=256"}, 0, true);
  for (const char* rows : {"scheduler.prefill_rows=1", "scheduler.prefill_rows=64"}) {
    const auto nats = [&](const char* tail) {
      const auto engine = open_on("cuda", {use(), tail, "kv_cache.capacity=256", rows}, 0, true);
      return divergence(*exact, *engine, ids);
    };
    const double without = nats("kv_cache.tail=0"), some = nats("kv_cache.tail=64"), all = nats("kv_cache.tail=256");
    EXPECT_LT(some, without) << rows;
    EXPECT_LT(all, 2e-4) << rows;
    EXPECT_LT(all, without) << rows;
  }
}

// Keys by channel are those of the CPU, whoever reads them: several groups, cuts of
// prompts, and drafts that are taken back.
TEST_F(CudaPolicies, KeysByChannelAreTheCpusInEveryMode) {
  const Settings channels = {"kv_cache.use=int4", "kv_cache.keys=channel", "kv_cache.capacity=256"};
  for (const Settings& more : std::vector<Settings>{
           {}, {"kv_cache.rotation=none", "kv_cache.tail=45"}, {"kv_cache.group=64", "kv_cache.format=fp32_scales"}}) {
    for (const char* rows : {"scheduler.prefill_rows=16", "scheduler.prefill_rows=64"}) {
      // A key that differs in its last bit may get the neighbouring code of 16.
      expect_the_cpus(with(with(channels, more), {rows}), text(100, 100), "reference", 5e-2);
    }
  }
  const Request r = text(60, 120);
  const Settings drafts = with(channels, {"draft.use=ngram", "attention.use=reference"});
  EXPECT_EQ(open_on("cuda", drafts)->generate(r).tokens, tokens_of(channels, r));
}

TEST_F(CudaPolicies, KeysByChannelUnderFlashGiveTheSameTextInEveryMode) {
  std::vector<int32_t> first;
  for (const char* mode : {"per_op", "recorded", "auto"}) {
    const auto engine = open_on("cuda", {"kv_cache.use=int4", "kv_cache.keys=channel", "kv_cache.capacity=256",
                                         "scheduler.prefill_rows=32", std::string("pipeline.execution=") + mode});
    const auto tokens = engine->generate(text(100, 100)).tokens;
    ASSERT_EQ(tokens.size(), 100U);
    if (first.empty()) first = tokens;
    EXPECT_EQ(tokens, first) << mode;
    EXPECT_EQ(engine->generate(text(100, 100)).tokens, first) << "again, " << mode;
  }
}

TEST_F(CudaPolicies, KeysByChannelGoWithLayersThatHaveWindows) {
  const Settings settings = {"kv_cache.use=int4", "kv_cache.keys=channel", "kv_cache.capacity=256",
                             "attention.use=reference", "scheduler.prefill_rows=16"};
  const Settings on_cpu = with(settings, {"attention.use=flash"});
  for (const char* model : {"tiny-gemma3", "tiny-mistral"}) {
    const auto want = open_on("cpu", on_cpu, 0, false, model)->generate(text(100, 100)).tokens;
    EXPECT_EQ(open_on("cuda", settings, 0, false, model)->generate(text(100, 100)).tokens, want) << model;
  }
}

// Flash multiplies in f16.
TEST_P(CudaScaledCaches, UnderFlashGiveTheSameTextInEveryMode) {
  std::vector<int32_t> first;
  for (const char* mode : {"per_op", "recorded", "auto"}) {
    const auto engine = open_on("cuda", {use(), "kv_cache.capacity=256", std::string("pipeline.execution=") + mode});
    const auto tokens = engine->generate(text(100, 60)).tokens;
    ASSERT_EQ(tokens.size(), 60U);
    if (first.empty()) first = tokens;
    EXPECT_EQ(tokens, first) << mode;
  }
}

TEST_P(CudaScaledCaches, AreNearF32) {
  const std::vector<int32_t> ids = text(200, 1).tokens;
  const auto exact = open_on("cuda", {"kv_cache.format=fp32", "kv_cache.capacity=256"}, 0, true);
  // The prompt is read in single rows, which decode takes, and in many.
  for (const char* rows : {"scheduler.prefill_rows=1", "scheduler.prefill_rows=64"}) {
    const auto scaled = open_on("cuda", {use(), "kv_cache.capacity=256", rows}, 0, true);
    const double nats = divergence(*exact, *scaled, ids);
    EXPECT_GT(nats, 0) << rows;
    EXPECT_LT(nats, most_nats(GetParam())) << rows;
  }
}

TEST_F(CudaPolicies, TreesGiveTheTextOfPlainDecoding) {
  const Request r = text(60, 120);
  for (const Settings& cache :
       std::vector<Settings>{{"kv_cache.format=fp32", "kv_cache.capacity=256"},
                             {"kv_cache.use=int8", "kv_cache.capacity=256", "attention.use=reference"},
                             sink_window()}) {
    const Result plain = open_on("cuda", cache)->generate(r);
    for (const char* mode : {"recorded", "auto"}) {
      RunStats stats;
      const Settings tree = with(with_tree(cache, r, plain.tokens), {std::string("pipeline.execution=") + mode});
      EXPECT_EQ(open_on("cuda", tree)->generate(r, &stats).tokens, plain.tokens) << cache.front() << ", " << mode;
      EXPECT_GT(stats.drafted, stats.accepted);
      EXPECT_GT(stats.accepted, 50U) << "the branches were hardly ever right: the test tests little";
    }
  }
}

// A step has 14 rows; in fp32 products are exact for any number of them.
TEST_F(CudaPolicies, TreesOfSeveralSequencesDoNotMix) {
  const Settings settings = {"kv_cache.capacity=256", "kv_cache.format=fp32", "pipeline.strict=false"};
  const std::vector<Request> requests = {text(30, 60, 1), text(45, 60, 2)};
  const std::vector<int32_t> plain = tokens_of(settings, requests[1]);
  const auto together = open_on("cuda", with_tree(settings, requests[1], plain), 2)->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i].tokens, tokens_of(settings, requests[i])) << i;
}

}  // namespace
}  // namespace tenon::test
