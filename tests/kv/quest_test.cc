// The rows of these pipelines read chosen pages alone: this is what kv_cache.quest owes a text, on the CPU and on a
// GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies.h"
#include "tenon/core/program.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

// A row reads 48 of the 100 tokens of a prompt and the text after it.
Settings quest(Settings more = {}) {
  Settings all = {"kv_cache.use=quest", "kv_cache.capacity=256", "kv_cache.format=fp32", "kv_cache.budget=48",
                  "kv_cache.whole_layers=0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
Request long_text(int32_t seed = 1) {
  Request r = text(100, 120, seed);
  r.logprobs = true;
  return r;
}
const Settings kEverything = {"kv_cache.use=static", "kv_cache.capacity=256", "kv_cache.format=fp32"};

void expect_bits(const Result& a, const Result& b, const std::string& what) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << what;
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    ASSERT_EQ(a.logprobs[i].value, b.logprobs[i].value) << what << ", token " << i;
  }
}

TEST(Quest, ABudgetForEverythingGivesTheBitsOfStatic) {
  for (const char* format : {"kv_cache.format=fp32", "kv_cache.format=fp16", "kv_cache.format=bf16"}) {
    for (const char* attention : {"attention.use=flash", "attention.use=reference"}) {
      const Settings more = {format, attention, "pipeline.strict=false"};
      expect_bits(open_kv(with(quest(more), {"kv_cache.budget=256"}))->generate(long_text()),
                  open_kv(with(kEverything, more))->generate(long_text()), std::string(format) + " " + attention);
    }
  }
}

TEST(Quest, ReadsThePagesThatItChoseAlikeUnderBothAttentions) {
  const Result flash = open_kv(quest())->generate(long_text());
  const Result reference = open_kv(quest({"attention.use=reference"}))->generate(long_text());
  EXPECT_EQ(flash.tokens, reference.tokens);
  ASSERT_EQ(flash.logprobs.size(), reference.logprobs.size());
  for (size_t i = 0; i < flash.logprobs.size(); ++i) {
    ASSERT_NEAR(flash.logprobs[i].value, reference.logprobs[i].value, 1e-4) << i;
  }
  double furthest = 0;
  const Result all = open_kv(kEverything)->generate(long_text());
  for (size_t i = 0; i < 2; ++i) {
    furthest = std::max(furthest, double{std::abs(all.logprobs[i].value - flash.logprobs[i].value)});
  }
  EXPECT_GT(furthest, 1e-3) << "every page was read";
}

TEST(Quest, OfLayersThatReadEverythingNothingChanges) {
  expect_bits(open_kv(quest({"kv_cache.whole_layers=1000"}))->generate(long_text()),
              open_kv(kEverything)->generate(long_text()), "no layer chooses");
}

// A row is the same alone, as one of a chain of drafts and in a branch of a tree, and so is what is chosen for it.
TEST(Quest, DraftsGiveTheBitsOfPlainDecoding) {
  for (const Settings& settings : {quest(), quest({"attention.use=reference"}), quest({"kv_cache.format=fp16"})}) {
    const Result plain = open_kv(settings)->generate(long_text());
    expect_bits(open_kv(with(settings, {"draft.use=ngram"}))->generate(long_text()), plain, "a chain");
    RunStats stats;
    expect_bits(open_kv(with_tree(settings, long_text(), plain.tokens))->generate(long_text(), &stats), plain,
                "a tree");
    EXPECT_GT(stats.accepted, 50U) << "the branches were hardly ever right: the test tests little";
  }
}

TEST(Quest, SequencesGetTogetherWhatTheyGetAlone) {
  const std::vector<Request> requests = {long_text(1), text(150, 80, 2), text(7, 90, 3)};
  const auto alone = open_kv(quest());
  const auto together = open_kv(quest({"scheduler.use=continuous", "scheduler.sequences=3"}), 3)->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone->generate(requests[i]).tokens) << i;
  }
}

TEST(Quest, ItsPlanIsWhatIsAllocated) {
  const auto engine = open_kv(quest());
  engine->load();
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  const std::vector<int32_t> tokens = engine->generate(long_text()).tokens;
  EXPECT_EQ(engine->generate(long_text()).tokens, tokens) << "a sequence does not begin anew";
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
}

// `tenon inspect --program` and traces count this: a row reads 48 tokens whatever the
// context, and two rows of keys for each page.
TEST(Quest, AStepOfTextCountsTheBudgetAndTheSummaries) {
  const auto cost = [](const Engine& e, const std::string& name) {
    for (const Program* p : e.pipeline().programs()) {
      if (p->bounds().rows != 1) continue;
      for (const ProgramOp& op : p->ops()) {
        if (op.name == name) return op.cost;
      }
    }
    throw std::runtime_error("no program of one row has an op " + name);
  };
  const auto some = open_kv(quest()), all = open_kv(kEverything);
  const tenon_cost read = cost(*some, "attention"), whole = cost(*all, "attention"), choice = cost(*some, "choose");
  EXPECT_GT(whole.read[sdk::kCostPerToken], 0);
  EXPECT_EQ(read.read[sdk::kCostPerToken], 0);
  EXPECT_EQ(read.read[sdk::kCostPerRow], whole.read[sdk::kCostPerRow] + 48 * whole.read[sdk::kCostPerToken]);
  EXPECT_EQ(read.flops[sdk::kCostPerRow], 48 * whole.flops[sdk::kCostPerToken]);
  EXPECT_EQ(choice.read[sdk::kCostPerToken], whole.read[sdk::kCostPerToken] / 16);
}

// The chain of the layer ends before attention: whoever claims ops of it on a GPU leaves them to their components.
TEST(Quest, OnAGpuTheTextIsTheCpusInEveryMode) {
  if (const std::string problem = no_gpu(); !problem.empty()) GTEST_SKIP() << problem;
  for (const Settings& settings : {quest(), quest({"kv_cache.page_tokens=32", "kv_cache.budget=96"})}) {
    const Result cpu = open_kv(settings)->generate(long_text());
    Result first;
    for (const char* mode : {"per_op", "recorded", "auto"}) {
      const Result got =
          open_on("cuda", with(settings, {std::string("pipeline.execution=") + mode}))->generate(long_text());
      EXPECT_EQ(got.tokens, cpu.tokens) << mode;
      ASSERT_EQ(got.logprobs.size(), cpu.logprobs.size());
      if (first.tokens.empty()) first = got;
      expect_bits(got, first, mode);
      for (size_t i = 0; i < cpu.logprobs.size(); ++i) {
        ASSERT_NEAR(got.logprobs[i].value, cpu.logprobs[i].value, 1e-3) << mode << ", token " << i;
      }
    }
    EXPECT_EQ(open_on("cuda", with(settings, {"draft.use=ngram"}))->generate(long_text()).tokens, cpu.tokens);
    EXPECT_EQ(open_on("cuda", with_tree(settings, long_text(), cpu.tokens))->generate(long_text()).tokens, cpu.tokens);
  }
}

}  // namespace
}  // namespace tenon::test
