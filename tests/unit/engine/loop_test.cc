// Requests come and go at random: each gets the text that it gets alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "requests.h"

namespace tenon::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

struct Case {
  const char* name;
  std::vector<std::string> set;
  bool preempts;
  bool alike = false;   // many requests begin alike
  bool reuses = false;  // and the cache finds that
  bool rests = false;   // steps take random times by the engine's clock, so that sequences rest at random
};

class Loop : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr size_t kRequests = 200;

  static void SetUpTestSuite() {
    requests_ = {some_requests(kRequests, 7), requests_that_begin_alike(kRequests, 8)};
    alone_ = {alone(requests_[0]), alone(requests_[1])};
  }
  static void TearDownTestSuite() { requests_ = {}, alone_ = {}; }
  static const std::vector<Request>& requests() { return requests_[GetParam().alike ? 1 : 0]; }

  static void expect_as_alone(const Result& r, size_t i, bool cancelled) {
    SCOPED_TRACE("request " + std::to_string(i));
    test::expect_as_alone(r, alone_[GetParam().alike ? 1 : 0][i], cancelled, true);
  }

  static std::unique_ptr<Engine> open_case() {
    EngineOptions options;
    if (GetParam().rests) {
      options.clock = [random = std::mt19937_64(3), now = std::chrono::steady_clock::time_point()]() mutable {
        return now += std::chrono::microseconds(random() % 2 == 0 ? 1 : 1000);
      };
    }
    return open_tiny(GetParam().set, std::move(options));
  }

  static std::array<std::vector<Request>, 2> requests_;
  static std::array<std::vector<Result>, 2> alone_;
};

std::array<std::vector<Request>, 2> Loop::requests_;
std::array<std::vector<Result>, 2> Loop::alone_;

TEST_P(Loop, EachRequestGetsTheTextThatItGetsAlone) {
  const auto engine = open_case();
  const uint32_t pages = free_pages(*engine);
  const size_t ended_by_cancel =
      run_at_random(*engine, requests(), {.every = 12, .most = 20, .to_cancel = 15}, expect_as_alone);
  const RunStats stats = engine->totals();
  EXPECT_GT(ended_by_cancel, 5u);
  EXPECT_EQ(stats.preempted > 0, GetParam().preempts) << stats.preempted << " were pre-empted";
  EXPECT_EQ(stats.recomputed > 0, GetParam().preempts);
  EXPECT_EQ(stats.reused > 0, GetParam().reuses);
  EXPECT_EQ(stats.rested > 20, GetParam().rests) << stats.rested << " rests";
  EXPECT_EQ(free_pages(*engine), pages) << "pages were lost";
  EXPECT_EQ(stats.accepted > 0, engine->pipeline().draft_tokens() > 0);
}

TEST_P(Loop, AlsoWhenTheyComeFromOtherThreads) {
  const auto engine = open_case();
  const uint32_t pages = free_pages(*engine);
  constexpr size_t kEach = 30, kThreads = 3;
  std::vector<Result> results(kEach * kThreads);
  std::vector<uint8_t> cancelled(results.size(), 0);
  std::atomic<size_t> done{0};
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (size_t i = t * kEach; i < (t + 1) * kEach; ++i) {
        Request r = requests()[i];
        r.on_done = [&, i](const Result& result) {
          results[i] = result;
          ++done;
        };
        const Ticket ticket = engine->submit(std::move(r));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
        if (random() % 8 != 0) continue;
        cancelled[i] = 1;
        engine->cancel(ticket);
      }
    });
  }
  while (done < results.size()) {
    if (!engine->step()) std::this_thread::yield();  // nobody is here yet
  }
  threads.clear();
  for (size_t i = 0; i < results.size(); ++i) expect_as_alone(results[i], i, cancelled[i] != 0);
  EXPECT_EQ(free_pages(*engine), pages) << "pages were lost";
}

INSTANTIATE_TEST_SUITE_P(
    Schedulers, Loop,
    ::testing::Values(
        Case{"single", {"scheduler.use=single"}, false},
        Case{"lockstep", {"scheduler.use=lockstep", "scheduler.sequences=5"}, false},
        // Chunks do not divide prompts, and there are more of them than a step takes.
        Case{"continuous",
             {"scheduler.use=continuous", "scheduler.sequences=6", "scheduler.budget_rows=23",
              "scheduler.prefill_rows=48", "scheduler.patience=0"},
             true},
        Case{"continuous_drafts",
             {"scheduler.use=continuous", "scheduler.sequences=6", "scheduler.budget_rows=19", "draft.use=ngram",
              "draft.k=3"},
             true},
        Case{"few_pages",
             {"scheduler.use=continuous", "scheduler.sequences=8", "kv_cache.use=few_pages", "kv_cache.pages=20"},
             true},
        Case{"few_pages_untold",
             {"scheduler.use=continuous", "scheduler.sequences=8", "kv_cache.use=few_pages", "kv_cache.pages=20",
              "kv_cache.tells=false", "draft.use=ngram", "draft.k=4"},
             true},
        Case{"few_pages_lockstep",
             {"scheduler.use=lockstep", "scheduler.sequences=6", "kv_cache.use=few_pages", "kv_cache.pages=16"},
             true},
        Case{"static_alike", {"scheduler.use=continuous", "scheduler.sequences=6", "scheduler.patience=0"}, true, true},
        Case{"paged",
             {"scheduler.use=continuous", "scheduler.sequences=6", "scheduler.budget_rows=23",
              "scheduler.prefill_rows=48", "scheduler.patience=0", "kv_cache.use=paged"},
             false,
             true,
             true},
        // The pool has as many pages as one sequence of the full length takes, and two more.
        Case{"paged_small_pool",
             {"scheduler.use=continuous", "scheduler.sequences=8", "kv_cache.use=paged", "kv_cache.pool=160"},
             true,
             true,
             true},
        Case{"paged_small_pool_drafts",
             {"scheduler.use=continuous", "scheduler.sequences=8", "kv_cache.use=paged", "kv_cache.pool=160",
              "draft.use=ngram", "draft.k=4"},
             true,
             true,
             true},
        Case{"paged_draft_model",
             {"scheduler.use=continuous", "scheduler.sequences=4", "kv_cache.use=paged", "kv_cache.pool=160",
              "draft.pipeline.tokens=2"},
             true,
             true,
             true},
        Case{"paged_lockstep",
             {"scheduler.use=lockstep", "scheduler.sequences=6", "kv_cache.use=paged", "kv_cache.pool=160"},
             true,
             true,
             true},
        Case{"paged_without_reuse",
             {"scheduler.use=continuous", "scheduler.sequences=8", "kv_cache.use=paged", "kv_cache.pool=160",
              "kv_cache.reuse=false"},
             true,
             true},
        Case{.name = "resting",
             .set = {"scheduler.use=continuous", "scheduler.sequences=7", "scheduler.rest_steps=3"},
             .preempts = true,
             .rests = true},
        Case{.name = "resting_few_pages",
             .set = {"scheduler.use=continuous", "scheduler.sequences=7", "scheduler.rest_steps=2",
                     "kv_cache.use=few_pages", "kv_cache.pages=20"},
             .preempts = true,
             .rests = true},
        Case{.name = "resting_paged",
             .set = {"scheduler.use=continuous", "scheduler.sequences=7", "scheduler.rest_steps=5",
                     "kv_cache.use=paged", "kv_cache.pool=160"},
             .preempts = true,
             .alike = true,
             .reuses = true,
             .rests = true}),
    [](const auto& param) { return std::string(param.param.name); });

// ---- what the cache cannot hold -------------------------------------------------------------------------------------

TEST(FewPages, ASequenceThatDoesNotFitByItselfEndsWithAnErrorAndAlone) {
  const auto engine = open_tiny({"scheduler.use=continuous", "kv_cache.use=few_pages", "kv_cache.pages=6"});
  std::vector<Request> requests = some_requests(3, 5);
  for (Request& r : requests)
    r.tokens.resize(20, 9), r.max_new_tokens = 10, r.ignore_end = true, r.stop.clear(), r.priority = 0;
  requests[1].tokens.resize(60, 8);  // 48 tokens is all that there is
  requests[2].max_new_tokens = 100;  // it begins well
  const std::vector<Result> expected = {alone({requests[0]}).front(), {}, alone({requests[2]}).front()};
  const std::vector<Result> results = engine->generate(requests);
  EXPECT_EQ(results[0].tokens, expected[0].tokens);
  EXPECT_EQ(results[1].finish, FinishReason::kError);
  EXPECT_THAT(error_of(results[1]),
              HasSubstr("the cache has no room for the 60 tokens of this sequence, even by itself"));
  EXPECT_THAT(error_of(results[1]), HasSubstr("kv_cache.few_pages"));
  EXPECT_THAT(error_of(results[2]), HasSubstr("even by itself"));
  ASSERT_EQ(results[2].tokens.size(), 29u) << "48 tokens are in the cache, and one came of the last";
  EXPECT_TRUE(std::equal(results[2].tokens.begin(), results[2].tokens.end(), expected[2].tokens.begin()));
  EXPECT_EQ(engine->generate(requests[0]).tokens, expected[0].tokens);
}

// A page holds one token here, so the free pages tell what the cache holds after every step.
TEST(FewPages, RejectedDraftsLeaveTheCacheAtOnce) {
  const auto engine =
      open_tiny({"kv_cache.use=few_pages", "kv_cache.pages=128", "kv_cache.page_tokens=1", "draft.use=ngram",
                 "draft.k=5", "draft.min_ngram=1", "sampler.chain=[]", "sampler.select=greedy"});
  Request r{.max_new_tokens = 35, .ignore_end = true};
  for (int i = 0; i < 90; ++i) r.tokens.push_back(3 + i * 7919 % 250);
  uint32_t made = 0;
  r.on_token = [&](const Token&) { return ++made, true; };
  engine->submit(r);
  while (engine->step()) {
    uint32_t page = 0;
    ASSERT_EQ(engine->pipeline().free_pages(page), 128 - (90 + made - 1)) << "after " << made << " tokens";
  }
  uint32_t page = 0;
  EXPECT_EQ(engine->pipeline().free_pages(page), 128u);
  EXPECT_EQ(made, 35u);
  const RunStats stats = engine->totals();
  EXPECT_GT(stats.drafted, stats.accepted) << "no draft was rejected: the test tests nothing";
}

TEST(Priority, AHigherOneTakesTheSlotOfALowerOne) {
  const auto engine = open_tiny({"scheduler.use=continuous", "scheduler.sequences=2"});
  std::vector<Request> requests = some_requests(3, 6);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    Request& r = requests[static_cast<size_t>(i)];
    r.max_new_tokens = 20;
    r.ignore_end = true;
    r.stop.clear();
    r.priority = i;
    r.on_done = [&order, i](const Result&) { order.push_back(i); };
  }
  const std::vector<Result> expected = alone(requests);
  order.clear();
  engine->submit(requests[0]);
  engine->submit(requests[1]);
  for (int i = 0; i < 5; ++i) engine->step();
  EXPECT_EQ(engine->totals().preempted, 0u);
  engine->submit(requests[2]);
  while (engine->step()) {
  }
  EXPECT_EQ(engine->totals().preempted, 1u);
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 0));
}

// ---- programs -------------------------------------------------------------------------------------------------------

std::vector<uint32_t> rows_of_programs(const std::vector<std::string>& set) {
  std::vector<uint32_t> rows;
  const auto engine = open_tiny(set);
  for (const Program* p : engine->pipeline().programs()) rows.push_back(p->bounds().rows);
  return rows;
}

TEST(Programs, AreThereForAsManyRowsAsStepsTake) {
  using ::testing::ElementsAre;
  EXPECT_THAT(rows_of_programs({}), ElementsAre(1, 512));
  EXPECT_THAT(rows_of_programs({"draft.use=ngram", "draft.k=4"}), ElementsAre(1, 5, 512));
  EXPECT_THAT(rows_of_programs({"scheduler.use=lockstep", "scheduler.sequences=6", "scheduler.prefill_rows=100"}),
              ElementsAre(1, 2, 4, 6, 16, 32, 64, 100));
  EXPECT_THAT(rows_of_programs({"scheduler.use=lockstep", "scheduler.sequences=4", "draft.use=ngram", "draft.k=2",
                                "scheduler.prefill_rows=16"}),
              ElementsAre(1, 2, 4, 2, 4, 8, 12, 16));
}

}  // namespace
}  // namespace tenon::test
