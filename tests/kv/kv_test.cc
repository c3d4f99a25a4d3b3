// These tests look at what policies of caches and trees of drafts owe a whole pipeline, on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies.h"

namespace tenon::test {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;

TEST(SinkWindow, GeneratesTenTimesItsCapacityInFixedMemory) {
  const auto engine = open_kv(sink_window());
  engine->load();
  const uint64_t memory = engine->pipeline().allocated();
  const Result r = engine->generate(text(21, 320));
  EXPECT_EQ(r.tokens.size(), 320U);
  EXPECT_EQ(r.finish, FinishReason::kLength);
  EXPECT_EQ(engine->pipeline().allocated(), memory);
  EXPECT_EQ(engine->pipeline().kv_used_bytes(341), engine->pipeline().kv_used_bytes(32));
}

TEST(SinkWindow, EqualsTheFormulaInFloat64) {
  const Request r = text(21, 200);
  for (const char* positions : {"kv_cache.positions=renumbered", "kv_cache.positions=original"}) {
    Settings s = sink_window({positions});
    if (std::string(positions) == "kv_cache.positions=original") s.push_back("kv_cache.capacity=256");
    Settings reference = s;
    reference.push_back("attention.use=reference");
    expect_alike(s, reference, r, positions);
  }
}

TEST(SinkWindow, SeesEverythingUntilItsWindowIsFull) {
  EXPECT_EQ(tokens_of(sink_window(), text(9, 23)),
            tokens_of({"kv_cache.use=static", "kv_cache.format=fp32", "kv_cache.capacity=32"}, text(9, 23)));
}

TEST(SinkWindow, DoesNotDependOnHowAPromptIsCut) {
  const Request r = text(150, 60);
  std::vector<int32_t> first;
  for (const char* rows : {"1", "7", "64", "200"}) {
    const auto got = tokens_of(sink_window({std::string("scheduler.prefill_rows=") + rows}), r);
    ASSERT_EQ(got.size(), 60U);
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << rows << " rows a step";
  }
}

TEST(SinkWindow, TakesBackRejectedDrafts) {
  const Request r = text(40, 120);
  EXPECT_EQ(tokens_of(sink_window({"draft.use=ngram"}), r), tokens_of(sink_window(), r));
}

TEST(SinkWindow, RefusesAnAttentionThatCannotTurnAndACapacityBelowItsWindow) {
  try {
    open_kv(sink_window({"kv_cache.capacity=31"}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("sinks and window are 32 tokens"));
  }
}

class ScaledCaches : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, ScaledCaches, testing::Values("int8", "fp8", "int4"));

TEST_P(ScaledCaches, AreReadNativelyOrThroughACopyThatIsAnnounced) {
  const Request r = text(100, 60);
  const std::string use = std::string("kv_cache.use=") + GetParam();
  const auto native = open_kv({use, "kv_cache.capacity=256"});
  const auto copied = open_kv({use, "kv_cache.capacity=256", "attention.use=reference", "pipeline.strict=false"});
  EXPECT_EQ(native->generate(r).tokens, copied->generate(r).tokens);
  const auto decisions = copied->pipeline().decisions();
  EXPECT_THAT(decisions, Contains(Field(&Decision::text, HasSubstr("every step makes a copy"))));
  for (const Decision& d : native->pipeline().decisions()) EXPECT_EQ(d.text.find("copy"), std::string::npos) << d.text;
  EXPECT_THROW(open_kv({use, "attention.use=reference"}), Error);
}

TEST_P(ScaledCaches, AreNearF32) {
  const std::vector<int32_t> ids = text(200, 1).tokens;
  const auto exact = open_kv({"kv_cache.format=fp32", "kv_cache.capacity=256"}, 0, true);
  const auto scaled = open_kv({std::string("kv_cache.use=") + GetParam(), "kv_cache.capacity=256"}, 0, true);
  const double nats = divergence(*exact, *scaled, ids);
  EXPECT_GT(nats, 0);
  EXPECT_LT(nats, most_nats(GetParam()));
}

// The same codecs stand in other places: not a bit of the text's log probabilities changes.
TEST(PagedCache, IsTheSameAsOnePageASequence) {
  Request r = text(100, 60);
  r.logprobs = true;
  const std::vector<std::pair<Settings, Settings>> same = {
      {{"kv_cache.use=paged", "kv_cache.format=fp32"}, {"kv_cache.use=static", "kv_cache.format=fp32"}},
      {{"kv_cache.use=paged", "kv_cache.page_tokens=64"}, {"kv_cache.use=static"}},
      {{"kv_cache.use=paged", "kv_cache.format=int8"}, {"kv_cache.use=int8"}},
      {{"kv_cache.use=paged", "kv_cache.format=fp8"}, {"kv_cache.use=fp8"}},
      {{"kv_cache.use=paged", "kv_cache.format=int4"}, {"kv_cache.use=int4"}}};
  for (const char* attention : {"attention.use=flash", "attention.use=reference"}) {
    for (auto [paged, whole] : same) {
      for (Settings* s : {&paged, &whole}) {
        s->insert(s->end(), {"kv_cache.capacity=256", attention, "pipeline.strict=false"});
      }
      const Result a = open_kv(paged)->generate(r), b = open_kv(whole)->generate(r);
      EXPECT_EQ(a.tokens, b.tokens) << attention << ", " << whole.front();
      ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
      for (size_t i = 0; i < a.logprobs.size(); ++i) EXPECT_EQ(a.logprobs[i].value, b.logprobs[i].value) << i;
    }
  }
}

TEST(PagedCache, ItsPlanIsWhatIsAllocated) {
  const auto engine = open_kv({"kv_cache.use=paged", "kv_cache.capacity=256", "kv_cache.pool=512",
                               "sampler.chain=[{use=\"repetition_penalty\"}]"},
                              4);
  engine->load();
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  engine->generate(text(100, 20));
  engine->generate(text(100, 20));
  EXPECT_EQ(engine->totals().reused, 96U);
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
}

TEST(Int8Cache, IsNearF32) {
  const std::vector<int32_t> ids = text(200, 1).tokens;
  const auto exact = open_kv({"kv_cache.format=fp32", "kv_cache.capacity=256"}, 0, true);
  const auto int8 = open_kv({"kv_cache.use=int8", "kv_cache.capacity=256"}, 0, true);
  const double nats = divergence(*exact, *int8, ids);
  EXPECT_GT(nats, 0);
  EXPECT_LT(nats, 1e-3);
}

TEST(ScaledCaches, TakeHalfTheMemoryOfF16AndAQuarter) {
  const auto bytes = [](const char* use) {
    return open_kv({std::string("kv_cache.use=") + use, "kv_cache.capacity=256"})->pipeline().kv_used_bytes(100);
  };
  const auto engine = open_kv({"kv_cache.use=static"});
  const ModelInfo& m = engine->pipeline().model();
  EXPECT_EQ(bytes("int8"), 100ULL * m.layers * 2 * m.kv_heads * (m.head_dim + 2));
  EXPECT_EQ(bytes("int4"), 100ULL * m.layers * 2 * m.kv_heads * (m.head_dim / 2 + 2));
  EXPECT_EQ(bytes("static"), 100ULL * m.layers * 2 * m.kv_heads * m.head_dim * 2);
}

// Layers with windows keep that window, and everything where pages are so large that it would be no less: not a bit
// differs, with drafts that are taken back as well.
class WindowsOfLayers : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<Engine> open(const Settings& settings) {
    Settings all = {"kv_cache.capacity=256", "scheduler.prefill_rows=16"};
    all.insert(all.end(), settings.begin(), settings.end());
    return open_on("cpu", all, 0, false, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(All, WindowsOfLayers,
                         testing::Values("tiny-gemma3", "tiny-gemma2", "tiny-mistral", "tiny-shared"));

TEST_P(WindowsOfLayers, GiveTheBitsOfACacheThatKeepsEverything) {
  Request r = text(100, 80);
  r.logprobs = true;
  const Settings pages = {"kv_cache.use=paged", "kv_cache.page_tokens=128"};
  for (const auto& [windows, format] : std::vector<std::pair<Settings, std::string>>{
           {{"kv_cache.use=static", "kv_cache.format=fp32"}, "kv_cache.format=fp32"},
           {{"kv_cache.use=paged", "kv_cache.format=fp32"}, "kv_cache.format=fp32"},
           {{"kv_cache.use=paged", "kv_cache.page_tokens=32"}, "kv_cache.format=fp16"},
           {{"kv_cache.use=int8"}, "kv_cache.format=int8"},
           {{"kv_cache.use=int4"}, "kv_cache.format=int4"},
           {{"kv_cache.use=paged", "kv_cache.format=int4"}, "kv_cache.format=int4"}}) {
    const auto a = open(windows), b = open(with(pages, {format}));
    EXPECT_LT(a->pipeline().kv_used_bytes(180), b->pipeline().kv_used_bytes(180));
    const Result got = a->generate(r), want = b->generate(r);
    ASSERT_EQ(got.tokens, want.tokens) << windows.front();
    for (size_t i = 0; i < got.logprobs.size(); ++i) EXPECT_EQ(got.logprobs[i].value, want.logprobs[i].value) << i;
    Settings drafts = windows;
    drafts.emplace_back("draft.use=ngram");
    EXPECT_EQ(open(drafts)->generate(r).tokens, want.tokens) << windows.front() << " with drafts";
    RunStats stats;
    EXPECT_EQ(open(with_tree(windows, r, want.tokens))->generate(r, &stats).tokens, want.tokens) << "with trees";
    EXPECT_GT(stats.accepted, 20U) << "the branches were hardly ever right: the test tests little";
  }
}

TEST_P(WindowsOfLayers, ThePlanIsWhatIsAllocatedAndLessThanTheWholeContext) {
  const auto whole = open({"kv_cache.use=paged", "kv_cache.page_tokens=128", "kv_cache.format=fp16"});
  for (const char* use : {"kv_cache.use=static", "kv_cache.use=paged"}) {
    const auto windows = open({use});
    windows->load();
    windows->generate(text(100, 20));
    EXPECT_EQ(windows->pipeline().high_water(), windows->pipeline().plan().peak()) << use;
    EXPECT_LT(windows->pipeline().plan().peak(), whole->pipeline().plan().peak()) << use;
  }
}

// There are six sequences that begin alike in a pool with room for two: pages of both kinds are shared, lost, found
// again and copied.
TEST_P(WindowsOfLayers, SequencesThatSharePagesGetTheTextsThatTheyGetAlone) {
  expect_shared_pages_give_the_texts_of_static("cpu", GetParam(), {"scheduler.prefill_rows=16"});
}

// The draft model's cache finds whole pages of 32 tokens: its 64 are what both take, though the
// other one has the windows of 80 as well.
TEST_P(WindowsOfLayers, ADraftModelAgreesOnABeginningThatBothHave) {
  const auto engine = open({"kv_cache.use=paged", "scheduler.use=continuous", "scheduler.sequences=2",
                            "draft.pipeline.tokens=2", "draft.pipeline.kv_cache.page_tokens=32"});
  const auto fixed = open({"kv_cache.use=static"});
  const Request r = text(90, 20);
  for (const uint32_t reused : {0U, 64U}) {
    const Result got = engine->generate(r);
    EXPECT_EQ(got.tokens, fixed->generate(r).tokens);
    EXPECT_EQ(got.reused, reused);
  }
}

// A conversation finds its windows again where it ended.
TEST_P(WindowsOfLayers, AConversationGoesOnFromPages) {
  const auto fixed = open({"kv_cache.use=static"}), pages = open({"kv_cache.use=paged"});
  Request r = text(60, 30);
  for (int turn = 0; turn < 3; ++turn) {
    const Result got = pages->generate(r), want = fixed->generate(r);
    ASSERT_EQ(got.tokens, want.tokens) << "turn " << turn;
    // The newest token of the turn before was never computed, and whole pages are found.
    EXPECT_EQ(got.reused, turn == 0 ? 0 : (r.tokens.size() - 5 - 1) / 16 * 16) << "turn " << turn;
    r.tokens.insert(r.tokens.end(), got.tokens.begin(), got.tokens.end());
    r.tokens.insert(r.tokens.end(), {7, 8, 9, 10, 11});
  }
}

// Drafted siblings share a position: what survives is what plain decoding gives, whichever branch
// it was on, to the last bit of the logits.
TEST(Trees, GiveTheBitsOfPlainDecoding) {
  Request r = text(60, 120);
  r.logprobs = true;
  for (const Settings& cache :
       std::vector<Settings>{{"kv_cache.format=fp32", "kv_cache.capacity=256"},
                             {"kv_cache.format=fp16", "kv_cache.capacity=256"},
                             {"kv_cache.use=int8", "kv_cache.capacity=256"},
                             {"kv_cache.use=fp8", "kv_cache.capacity=256"},
                             {"kv_cache.use=int4", "kv_cache.capacity=256"},
                             {"kv_cache.use=paged", "kv_cache.format=fp32", "kv_cache.capacity=256"},
                             {"kv_cache.use=paged", "kv_cache.format=int8", "kv_cache.capacity=256"},
                             sink_window(),
                             {"kv_cache.format=fp32", "kv_cache.capacity=256", "attention.use=reference"}}) {
    const Result plain = open_kv(cache)->generate(r);
    RunStats stats;
    const auto engine = open_kv(with_tree(cache, r, plain.tokens));
    const Result tree = engine->generate(r, &stats);
    EXPECT_EQ(tree.tokens, plain.tokens) << cache.front();
    ASSERT_EQ(tree.logprobs.size(), plain.logprobs.size());
    for (size_t i = 0; i < plain.logprobs.size(); ++i) {
      ASSERT_EQ(tree.logprobs[i].value, plain.logprobs[i].value) << cache.front() << ", token " << i;
    }
    EXPECT_GT(stats.drafted, stats.accepted);
    EXPECT_GT(stats.accepted, 50U) << "the branches were hardly ever right: the test tests little";
  }
}

TEST(Trees, OfSeveralSequencesDoNotMix) {
  const Settings settings = {"kv_cache.capacity=256", "kv_cache.format=fp32"};
  const std::vector<Request> requests = {text(30, 60, 1), text(45, 60, 2), text(20, 60, 3)};
  const std::vector<int32_t> plain = tokens_of(settings, requests[1]);
  const auto together = open_kv(with_tree(settings, requests[1], plain), 3)->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i].tokens, tokens_of(settings, requests[i])) << i;
}

TEST(Trees, AreRefusedByACacheThatCannotMoveSurvivors) {
  try {
    open_kv({"kv_cache.use=heavy_hitter", "draft.use=two_branches"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("trees of drafts"));
  }
}

TEST(HeavyHitter, IsAPlainCacheWhileNothingIsDropped) {
  const Request r = text(40, 60);
  EXPECT_EQ(tokens_of({"kv_cache.use=heavy_hitter", "kv_cache.budget=128", "kv_cache.capacity=256"}, r),
            tokens_of({"kv_cache.format=fp32", "kv_cache.capacity=256"}, r));
}

TEST(HeavyHitter, EvictsByWeightsAlikeUnderBothAttentions) {
  const Request r = text(40, 150);
  const Settings settings = {"kv_cache.use=heavy_hitter", "kv_cache.budget=24", "kv_cache.recent=8",
                             "kv_cache.capacity=256"};
  Settings reference = settings;
  reference.push_back("attention.use=reference");
  const auto got = tokens_of(settings, r);
  EXPECT_EQ(got.size(), 150U);
  expect_alike(settings, reference, r, "evicted");
  EXPECT_NE(got, tokens_of({"kv_cache.format=fp32", "kv_cache.capacity=256"}, r)) << "nothing was evicted";
}

class Evicting : public testing::TestWithParam<Settings> {};
INSTANTIATE_TEST_SUITE_P(All, Evicting, testing::Values(h2o(), snapkv()),
                         [](const auto& tested) { return tested.param.front().substr(sizeof("kv_cache.use")); });

TEST_P(Evicting, IsAPlainCacheWhileNothingIsDropped) {
  const Request r = text(40, 60);
  for (const char* format : {"kv_cache.format=fp32", "kv_cache.format=fp16"}) {
    EXPECT_EQ(tokens_of({GetParam().front(), format, "kv_cache.capacity=256"}, r),
              tokens_of({"kv_cache.use=static", format, "kv_cache.capacity=256"}, r));
  }
}

TEST_P(Evicting, GoesByWeightsAlikeUnderBothAttentionsInFixedMemory) {
  const Request r = text(40, 150);
  const Settings& settings = GetParam();
  const auto engine = open_kv(settings);
  engine->load();
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  const auto got = engine->generate(r).tokens;
  EXPECT_EQ(engine->generate(r).tokens, got) << "a sequence does not begin anew";
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  expect_alike(settings, with(settings, {"attention.use=reference"}), r, "evicted");
  EXPECT_NE(got, tokens_of({"kv_cache.format=fp32", "kv_cache.capacity=256"}, r)) << "nothing was evicted";
  EXPECT_THROW(open_kv(with(settings, {"draft.use=two_branches"})), Error);
}

TEST(HeavyHitter, StartsAnewWithEverySequence) {
  const auto engine = open_kv({"kv_cache.use=heavy_hitter", "kv_cache.budget=24", "kv_cache.capacity=256"});
  const auto first = engine->generate(text(40, 80)).tokens;
  engine->generate(text(70, 30, 9));
  EXPECT_EQ(engine->generate(text(40, 80)).tokens, first);
}

}  // namespace
}  // namespace tenon::test
