// This is what tails of newest tokens, and keys by channel, which are coded from tails, owe a whole pipeline, on the
// CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "policies.h"
#include "unit/trace/temp_folder.h"

namespace tenon::test {
namespace {

using testing::HasSubstr;

class Tails : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Tails, testing::Values("int8", "fp8", "int4"));

// A tail is read by position alone: a text is the same to the bit however its prompt is cut, beside
// other sequences, and with drafts that are taken back. 60 tokens after 100 are several turns of the
// tail's pages, which have room for 64 cells.
TEST_P(Tails, DoNotDependOnCutsDraftsOrNeighbours) {
  const std::string use = std::string("kv_cache.use=") + GetParam();
  for (const char* tail : {"kv_cache.tail=1", "kv_cache.tail=24", "kv_cache.tail=256"}) {
    const Settings settings = {use, tail, "kv_cache.capacity=256", "scheduler.prefill_rows=16"};
    Request r = text(100, 60);
    r.logprobs = true;
    const Result want = open_kv(settings)->generate(r);
    ASSERT_EQ(want.tokens.size(), 60U);
    for (const Settings& other : std::vector<Settings>{{"scheduler.prefill_rows=1"},
                                                       {"scheduler.prefill_rows=7"},
                                                       {"scheduler.prefill_rows=200"},
                                                       {"draft.use=ngram"}}) {
      const Result got = open_kv(with(settings, other))->generate(r);
      EXPECT_EQ(got.tokens, want.tokens) << tail << ", " << other.front();
      ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
      for (size_t i = 0; i < want.logprobs.size(); ++i) {
        ASSERT_EQ(got.logprobs[i].value, want.logprobs[i].value) << tail << ", " << other.front() << ", token " << i;
      }
    }
    const auto together = open_kv(settings, 2)->generate(std::vector<Request>{text(30, 60, 2), r});
    EXPECT_EQ(together[1].tokens, want.tokens) << tail;
  }
}

TEST_P(Tails, OfEverythingAreACacheInHalves) {
  Request r = text(100, 60);
  const std::string use = std::string("kv_cache.use=") + GetParam();
  const Settings halves = {"kv_cache.use=static", "kv_cache.format=fp16", "kv_cache.capacity=256"};
  // Heads in halves that are rotated are others.
  const Settings plain = std::string(GetParam()) == "int4" ? Settings{"kv_cache.rotation=none"} : Settings{};
  expect_alike(with({use, "kv_cache.tail=256", "kv_cache.capacity=256"}, plain), halves, r, GetParam());
}

TEST_P(Tails, AreNearerToF32) {
  const std::vector<int32_t> ids = text(200, 1).tokens;
  const auto exact = open_kv({"kv_cache.format=fp32", "kv_cache.capacity=256"}, 0, true);
  double before = most_nats(GetParam());
  for (const char* tail : {"kv_cache.tail=0", "kv_cache.tail=64", "kv_cache.tail=256"}) {
    const auto scaled = open_kv({std::string("kv_cache.use=") + GetParam(), tail, "kv_cache.capacity=256"}, 0, true);
    const double nats = divergence(*exact, *scaled, ids);
    EXPECT_LT(nats, before) << tail;
    before = nats;
  }
}

// A sum in another order moves a code now and then, in fp8 by a sixteenth: without a tail the two differ by up to 3e-4.
TEST_P(Tails, AreReadByTheFormulaThroughCopies) {
  const Settings settings = {std::string("kv_cache.use=") + GetParam(), "kv_cache.tail=24", "kv_cache.capacity=256",
                             "scheduler.prefill_rows=16"};
  expect_alike(settings, with(settings, {"attention.use=reference", "pipeline.strict=false"}), text(100, 60),
               GetParam(), 1e-3);
}

TEST_P(Tails, ArePlannedAndCounted) {
  const std::string use = std::string("kv_cache.use=") + GetParam();
  const auto without = open_kv({use, "kv_cache.capacity=1024", "scheduler.prefill_rows=16"});
  const auto engine = open_kv({use, "kv_cache.tail=24", "kv_cache.capacity=1024", "scheduler.prefill_rows=16"});
  engine->load();
  without->load();
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  const auto added = [&](uint32_t tokens) {
    return engine->pipeline().kv_used_bytes(tokens) - without->pipeline().kv_used_bytes(tokens);
  };
  EXPECT_EQ(added(48), added(24));
  EXPECT_EQ(added(12) * 2, added(24));
}

TEST_P(Tails, LongerThanTheCapacityAreRefused) {
  try {
    open_kv({std::string("kv_cache.use=") + GetParam(), "kv_cache.tail=257", "kv_cache.capacity=256"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("kv_cache.tail = 257 tokens are more than kv_cache.capacity = 256"));
  }
}

// Branches of drafts stand in both views: what is taken moves to its places in both.
TEST_P(Tails, TreesOverThemGiveTheTextOfPlainDecoding) {
  const Request r = text(60, 120);
  const Settings cache = {std::string("kv_cache.use=") + GetParam(), "kv_cache.tail=5", "kv_cache.capacity=256"};
  const Result plain = open_kv(cache)->generate(r);
  RunStats stats;
  EXPECT_EQ(open_kv(with_tree(cache, r, plain.tokens))->generate(r, &stats).tokens, plain.tokens);
  EXPECT_GT(stats.accepted, 50U) << "the branches were hardly ever right: the test tests little";
}

// Gemma's layers with a window of 16 or so keep their own windows, and the tail no more than that.
TEST_P(Tails, GoWithLayersThatHaveWindows) {
  const Settings settings = {std::string("kv_cache.use=") + GetParam(), "kv_cache.tail=24", "kv_cache.capacity=256"};
  for (const char* model : {"tiny-gemma3", "tiny-mistral", "tiny-gpt-oss"}) {
    std::vector<int32_t> first;
    for (const char* rows : {"scheduler.prefill_rows=1", "scheduler.prefill_rows=16", "scheduler.prefill_rows=200"}) {
      const auto got = open_on("cpu", with(settings, {rows}), 0, false, model)->generate(text(100, 60)).tokens;
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << model << ", " << rows;
    }
  }
}

// In pages a tail is found again with the beginning that it ends, or that is computed anew:
// not a bit differs from one page a sequence.
TEST_P(Tails, InPagesGiveTheBitsOfOnePageASequence) {
  const std::string use = std::string("kv_cache.use=") + GetParam(),
                    format = std::string("kv_cache.format=") + GetParam();
  const Settings bounds = {"kv_cache.tail=24", "kv_cache.capacity=256", "scheduler.prefill_rows=16"};
  const auto whole = open_kv(with({use}, bounds)), pages = open_kv(with({"kv_cache.use=paged", format}, bounds));
  whole->load();
  pages->load();
  EXPECT_EQ(pages->pipeline().high_water(), pages->pipeline().plan().peak());
  Request r = text(100, 60);
  r.logprobs = true;
  const Result want = whole->generate(r);
  for (const uint32_t reused : {0U, 96U}) {
    const Result got = pages->generate(r);
    EXPECT_EQ(got.reused, reused);
    ASSERT_EQ(got.tokens, want.tokens);
    for (size_t i = 0; i < got.logprobs.size(); ++i) ASSERT_EQ(got.logprobs[i].value, want.logprobs[i].value) << i;
  }
  RunStats stats;
  const Settings tree = with_tree(with({"kv_cache.use=paged", format}, bounds), r, want.tokens);
  EXPECT_EQ(open_kv(tree)->generate(r, &stats).tokens, want.tokens);
  EXPECT_GT(stats.accepted, 20U) << "the branches were hardly ever right: the test tests little";
}

TEST_P(Tails, OfSequencesThatSharePagesGiveTheTextsThatTheyGetAlone) {
  const std::string use = std::string("kv_cache.use=") + GetParam(),
                    format = std::string("kv_cache.format=") + GetParam();
  for (const char* model : {kTiny.c_str(), "tiny-gemma3"}) {
    expect_shared_pages_give_the_texts_of_static("cpu", model,
                                                 {format, "kv_cache.tail=24", "scheduler.prefill_rows=16"},
                                                 {use, "kv_cache.tail=24", "scheduler.prefill_rows=16"});
  }
}

TEST(PagedTails, GoWithCodesAlone) {
  try {
    open_kv({"kv_cache.use=paged", "kv_cache.format=bf16", "kv_cache.tail=24"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("kv_cache.tail = 24 with kv_cache.format = \"bf16\""));
  }
}

// Groups of keys are coded from the tail when their last token comes, whoever brings it:
// over several groups and turns of the tail.
TEST(ChannelKeys, DoNotDependOnCutsDraftsOrNeighbours) {
  for (const Settings& groups :
       std::vector<Settings>{{"kv_cache.group=32"},
                             {"kv_cache.group=32", "kv_cache.tail=45", "kv_cache.rotation=none"},
                             {"kv_cache.group=64", "kv_cache.format=fp32_scales"}}) {
    const Settings settings = with(
        {"kv_cache.use=int4", "kv_cache.keys=channel", "kv_cache.capacity=384", "scheduler.prefill_rows=16"}, groups);
    Request r = text(100, 200);
    r.logprobs = true;
    const Result want = open_kv(settings)->generate(r);
    ASSERT_EQ(want.tokens.size(), 200U);
    for (const Settings& other : std::vector<Settings>{{"scheduler.prefill_rows=1"},
                                                       {"scheduler.prefill_rows=7"},
                                                       {"scheduler.prefill_rows=200"},
                                                       {"draft.use=ngram"}}) {
      const Result got = open_kv(with(settings, other))->generate(r);
      EXPECT_EQ(got.tokens, want.tokens) << groups.front() << ", " << other.front();
      ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
      for (size_t i = 0; i < want.logprobs.size(); ++i) {
        ASSERT_EQ(got.logprobs[i].value, want.logprobs[i].value)
            << groups.front() << ", " << other.front() << ", " << i;
      }
    }
    const auto together = open_kv(settings, 2)->generate(std::vector<Request>{text(30, 60, 2), r});
    EXPECT_EQ(together[1].tokens, want.tokens);
  }
}

TEST(ChannelKeys, AreReadByTheFormulaThroughCopies) {
  const Settings settings = {"kv_cache.use=int4", "kv_cache.keys=channel", "kv_cache.rotation=none",
                             "kv_cache.capacity=256", "scheduler.prefill_rows=16"};
  expect_alike(settings, with(settings, {"attention.use=reference", "pipeline.strict=false"}), text(100, 100), "int4",
               1e-3);
}

TEST(ChannelKeys, GoWithLayersThatHaveWindows) {
  const Settings settings = {"kv_cache.use=int4", "kv_cache.keys=channel", "kv_cache.capacity=256"};
  for (const char* model : {"tiny-gemma3", "tiny-mistral"}) {
    std::vector<int32_t> first;
    for (const char* rows : {"scheduler.prefill_rows=1", "scheduler.prefill_rows=16", "scheduler.prefill_rows=200"}) {
      const auto got = open_on("cpu", with(settings, {rows}), 0, false, model)->generate(text(100, 100)).tokens;
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << model << ", " << rows;
    }
  }
}

// This is Gemma's layers, one of which sees everything, with windows that reach further back than tails.
class LongWindows {
 public:
  LongWindows() {
    std::filesystem::copy(root() / "tests/golden/data/tiny-gemma3", folder_.path(),
                          std::filesystem::copy_options::recursive);
    const std::string config = folder_.file("config.json"), window = "\"sliding_window\": 24";
    std::string text = TempFolder::bytes(config);
    text.replace(text.find(window), window.size(), "\"sliding_window\": 150");
    std::ofstream(config) << text;
  }
  std::unique_ptr<Engine> open(const Settings& settings) const {
    return open_on("cpu", settings, 0, false, folder_.path());
  }

 private:
  TempFolder folder_;
};

// In steps of 250 rows a window would take no less than the capacity, so that everything is kept. In steps of 16 the
// pages of a window are used again after 192 tokens, or after 256 where groups, and so pages, have 128.
TEST(ChannelKeys, InWindowsGiveTheBitsOfACacheThatKeepsEverything) {
  const LongWindows model;
  Request r = text(100, 250);
  r.logprobs = true;
  for (const char* group : {"kv_cache.group=32", "kv_cache.group=64", "kv_cache.group=128"}) {
    const Settings settings = {"kv_cache.use=int4", "kv_cache.keys=channel", "kv_cache.capacity=384",
                               "scheduler.prefill_rows=16", group};
    const auto windows = model.open(settings), whole = model.open(with(settings, {"scheduler.prefill_rows=250"}));
    EXPECT_LT(windows->pipeline().kv_used_bytes(350), whole->pipeline().kv_used_bytes(350));
    const Result got = windows->generate(r), want = whole->generate(r);
    ASSERT_EQ(got.tokens, want.tokens) << group;
    for (size_t i = 0; i < got.logprobs.size(); ++i) {
      ASSERT_EQ(got.logprobs[i].value, want.logprobs[i].value) << group << ", token " << i;
    }
    EXPECT_EQ(windows->pipeline().high_water(), windows->pipeline().plan().peak()) << group;
    EXPECT_EQ(model.open(with(settings, {"draft.use=ngram"}))->generate(r).tokens, want.tokens) << group;
  }
}

// More capacity takes memory in the layer that sees everything alone, and less of it than in halves.
TEST(ChannelKeys, OfWindowsTakeTheMemoryOfWindows) {
  const LongWindows model;
  const auto growth = [&](const Settings& cache) {
    const auto peak = [&](const char* capacity) {
      return model.open(with(cache, {"scheduler.prefill_rows=16", capacity}))->pipeline().plan().peak();
    };
    return peak("kv_cache.capacity=512") - peak("kv_cache.capacity=256");
  };
  EXPECT_LT(growth({"kv_cache.use=int4", "kv_cache.keys=channel"}), growth({"kv_cache.use=static"}));
}

TEST(ChannelKeys, ArePlannedAndSayWhatTheyCannotDo) {
  const Settings settings = {"kv_cache.use=int4", "kv_cache.keys=channel", "kv_cache.capacity=256"};
  const auto engine = open_kv(settings);
  engine->load();
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  const Request r = text(60, 40);
  for (const auto& [more, what] : std::vector<std::pair<Settings, std::string>>{
           {{"kv_cache.tail=31"}, "kv_cache.tail = 31 tokens are fewer than kv_cache.group = 32"},
           {{"kv_cache.group=128", "kv_cache.capacity=64"},
            "kv_cache.tail = 128 tokens are more than kv_cache.capacity"},
           {{"kv_cache.group=48"}, "32"},
           {with_tree({}, r, tokens_of(settings, r)), "drafts that branch"}}) {
    try {
      open_kv(with(settings, more));
      ADD_FAILURE() << what;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(what));
    }
  }
}

}  // namespace
}  // namespace tenon::test
