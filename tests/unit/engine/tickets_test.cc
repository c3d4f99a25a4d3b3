// This tests submit, cancel, step and take: what each may, who may call it, and whose error is whose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "requests.h"

namespace tenon::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Request request(size_t prompt = 12, uint32_t n = 8) {
  Request r;
  for (size_t i = 0; i < prompt; ++i) r.tokens.push_back(static_cast<int32_t>(i * 37 % 250 + 3));
  r.max_new_tokens = n;
  r.ignore_end = true;
  return r;
}

const std::vector<std::string> kContinuous = {"scheduler.use=continuous", "scheduler.sequences=3"};

std::string usage_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "no error";
}

TEST(Tickets, AResultIsTakenOnceWhenItIsThere) {
  const auto engine = open_tiny(kContinuous);
  const Ticket ticket = engine->submit(request());
  EXPECT_FALSE(engine->take(ticket));
  EXPECT_TRUE(engine->step());
  EXPECT_FALSE(engine->take(ticket));
  while (engine->step()) {
  }
  const std::optional<Result> result = engine->take(ticket);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->tokens, engine->generate(request()).tokens);
  EXPECT_THAT(usage_error([&] { engine->take(ticket); }), HasSubstr("its result was taken"));
  EXPECT_THAT(usage_error([&] { engine->take(Ticket{999}); }), HasSubstr("ticket 999 is of no request"));
  EXPECT_FALSE(engine->step()) << "nothing is left to do";
}

TEST(Tickets, OnDoneGetsTheResultInsteadOfTake) {
  std::vector<std::string> log;
  EngineOptions options;
  options.log = [&](uint32_t, const std::string& text) { log.push_back(text); };
  const auto engine = open_tiny(kContinuous, options);
  std::vector<int32_t> tokens;
  Request r = request();
  r.on_done = [&](const Result& result) {
    tokens = result.tokens;
    throw std::runtime_error("no more");
  };
  const Ticket ticket = engine->submit(r);
  while (engine->step()) {
  }
  EXPECT_EQ(tokens.size(), 8u);
  EXPECT_THAT(usage_error([&] { engine->take(ticket); }), HasSubstr("was taken"));
  EXPECT_THAT(log, ElementsAre("a request's on_done failed: no more"));
  tokens.clear();
  EXPECT_EQ(engine->generate(r).tokens.size(), 8u) << "generate() returns it all the same";
  EXPECT_EQ(tokens.size(), 8u);
}

TEST(Tickets, CallbacksMaySubmitAndCancel) {
  const auto engine = open_tiny(kContinuous);
  std::vector<size_t> lengths;
  Request second = request(5, 3), first = request();
  second.on_done = [&](const Result& r) { lengths.push_back(r.tokens.size()); };
  first.on_done = [&](const Result& r) {
    lengths.push_back(r.tokens.size());
    engine->submit(second);
  };
  engine->submit(first);
  while (engine->step()) {
  }
  EXPECT_THAT(lengths, ElementsAre(8, 3));
}

TEST(Tickets, ARequestIsCancelledWaitingInItsPromptOrInItsText) {
  const auto engine = open_tiny({"scheduler.use=single", "scheduler.prefill_rows=4"});
  std::vector<uint32_t> progress;
  Request slow = request(30);
  slow.on_prompt = [&](uint32_t done, uint32_t) { progress.push_back(done); };
  const Ticket in_prompt = engine->submit(slow), waits = engine->submit(request()), runs = engine->submit(request());
  engine->step();
  engine->step();
  engine->cancel(in_prompt);
  engine->cancel(waits);
  engine->cancel(Ticket{12345});
  engine->step();
  EXPECT_THAT(progress, ElementsAre(4, 8));
  for (const Ticket t : {in_prompt, waits}) {
    const std::optional<Result> r = engine->take(t);
    ASSERT_TRUE(r);
    EXPECT_EQ(r->finish, FinishReason::kCancelled);
    EXPECT_TRUE(r->tokens.empty());
  }
  for (int i = 0; i < 4; ++i) engine->step();
  engine->cancel(runs);
  engine->step();
  const std::optional<Result> r = engine->take(runs);
  ASSERT_TRUE(r);
  EXPECT_EQ(r->finish, FinishReason::kCancelled);
  const std::vector<int32_t> whole = engine->generate(request()).tokens;
  ASSERT_THAT(r->tokens.size(), ::testing::AllOf(::testing::Ge(1u), ::testing::Le(4u)));
  EXPECT_TRUE(std::equal(r->tokens.begin(), r->tokens.end(), whole.begin()));
}

TEST(Tickets, ARequestsErrorEndsThatRequestAlone) {
  const auto engine = open_tiny(kContinuous);
  const std::vector<int32_t> expected = engine->generate(request()).tokens;
  Request override = request(), fails = request(), in_prompt = request();
  override.sampler = {{"temperature.value", "hot"}};
  fails.on_token = [n = 0](const Token&) mutable -> bool {
    if (++n == 3) throw std::runtime_error("the pipe is closed");
    return true;
  };
  in_prompt.on_prompt = [](uint32_t, uint32_t) { throw std::runtime_error("no progress"); };
  const Ticket good = engine->submit(request()), long_one = engine->submit(request(500)),
               wrong = engine->submit({.tokens = {1, 99999}}), hot = engine->submit(override),
               broken = engine->submit(fails), stuck = engine->submit(in_prompt), last = engine->submit(request());
  while (engine->step()) {
  }
  EXPECT_EQ(engine->take(good)->tokens, expected);
  EXPECT_EQ(engine->take(last)->tokens, expected);
  EXPECT_THAT(error_of(*engine->take(long_one)), HasSubstr("the prompt has 500 tokens; the cache holds 128"));
  EXPECT_THAT(error_of(*engine->take(wrong)), HasSubstr("token 99999 is not of the vocabulary"));
  EXPECT_THAT(error_of(*engine->take(hot)), HasSubstr("sampler.temperature.value"));
  const Result half = *engine->take(broken);
  EXPECT_EQ(error_of(half), "the pipe is closed");
  EXPECT_EQ(half.finish, FinishReason::kError);
  EXPECT_EQ(half.tokens, std::vector<int32_t>(expected.begin(), expected.begin() + 3));
  EXPECT_EQ(error_of(*engine->take(stuck)), "no progress");
  EXPECT_EQ(engine->generate(request()).tokens, expected);
  EXPECT_THROW(engine->generate(fails), std::runtime_error);
}

TEST(Tickets, GenerateFromWithinACallbackIsAnError) {
  const auto engine = open_tiny(kContinuous);
  Request r = request();
  std::vector<std::string> errors;
  r.on_token = [&](const Token&) {
    errors = {usage_error([&] { engine->generate(request()); }), usage_error([&] { engine->step(); }),
              usage_error([&] { engine->score(std::vector<int32_t>{1}, 0, {}); }),
              usage_error([&] { engine->load(); })};
    return true;
  };
  EXPECT_EQ(engine->generate(r).tokens.size(), 8u);
  ASSERT_EQ(errors.size(), 4u);
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("was called from within a callback of a request")));
  EXPECT_THAT(errors[0], HasSubstr("generate()"));
  r.on_token = [&](const Token&) { return engine->generate(request()).tokens.empty(); };
  EXPECT_THAT(usage_error([&] { engine->generate(r); }), HasSubstr("from within a callback")) << "it ends the request";
  EXPECT_EQ(engine->generate(request()).tokens.size(), 8u);
}

TEST(Tickets, TwoThreadsInOneEngineAreAnErrorNoHang) {
  const auto engine = open_tiny(kContinuous);
  Request r = request();
  std::vector<std::string> errors;
  r.on_token = [&](const Token&) {
    if (!errors.empty()) return true;
    std::thread([&] {
      errors = {usage_error([&] { engine->generate(request()); }), usage_error([&] { engine->step(); })};
      engine->cancel(engine->submit(request()));
    }).join();
    return true;
  };
  EXPECT_EQ(engine->generate(r).tokens.size(), 8u);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("another thread is stepping this engine")));
  std::thread([&] { EXPECT_EQ(engine->generate(request()).tokens.size(), 8u); }).join();
}

TEST(Tickets, ThreadsThatDoNotStepTakeResultsReadTotalsAndStopRequests) {
  const auto engine = open_tiny(kContinuous);
  const std::vector<int32_t> expected = engine->generate(request()).tokens;
  constexpr int kThreads = 3, kEach = 6;
  std::atomic<int> open{kThreads};
  const auto ask = [&] {
    for (int i = 0; i < kEach; ++i) {
      std::stop_source stop;
      Request r = request();
      r.cancel = stop.get_token();
      const Ticket ticket = engine->submit(r);
      if (i % 2 != 0) stop.request_stop();
      std::optional<Result> result;
      for (uint64_t steps = 0; !(result = engine->take(ticket));) {
        EXPECT_GE(engine->totals().steps, steps);
        steps = engine->totals().steps;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      if (result->finish != FinishReason::kCancelled) {
        EXPECT_EQ(result->tokens, expected);
      }
      EXPECT_TRUE(i % 2 != 0 || result->finish == FinishReason::kLength);
    }
    --open;
  };
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(ask);
  while (open > 0) {
    if (!engine->step()) std::this_thread::yield();
  }
}

TEST(Tickets, AnEngineMayDieWithRequestsOpen) {
  auto engine = open_tiny(kContinuous);
  bool called = false;
  Request r = request();
  r.on_done = [&](const Result&) { called = true; };
  engine->submit(r);
  engine->step();
  engine->submit(request());
  engine.reset();
  EXPECT_FALSE(called);
  open_tiny(kContinuous)->submit(r);  // this one never loaded
}

// Within a callback the engine cannot wait for the call that is under way: the call ends with an error, and has the
// rest.
TEST(Tickets, AnEngineThatDiesInACallbackEndsTheCallWithAnError) {
  const char* const kText = "the engine was destroyed while this call was under way";
  for (const int callback : {0, 1, 2}) {
    auto engine = open_tiny(kContinuous);
    const Ticket other = engine->submit(request());
    static_cast<void>(other);
    Request r = request();
    const auto die = [&] { engine.reset(); };
    if (callback == 0) r.on_token = [&](const Token&) { return die(), true; };
    if (callback == 1) r.on_prompt = [&](uint32_t, uint32_t) { die(); };
    if (callback == 2) r.on_done = [&](const Result&) { die(); };
    Engine& dying = *engine;
    EXPECT_THAT(usage_error([&] { dying.generate(r); }), HasSubstr(kText)) << callback;
    EXPECT_EQ(engine, nullptr);
  }
  auto engine = open_tiny(kContinuous);
  Engine& dying = *engine;
  Request r = request();
  r.on_token = [&](const Token&) { return engine.reset(), true; };
  dying.submit(r);
  EXPECT_THAT(usage_error([&] {
                while (dying.step()) {
                }
              }),
              HasSubstr(std::string("step(): ") + kText));
  engine = open_tiny(kContinuous);
  Engine& loading = *engine;
  EXPECT_THAT(usage_error([&] { loading.load([&](uint64_t, uint64_t) { engine.reset(); }); }), HasSubstr(kText));
}

// The engine dies in another thread: the call ends with an error after the step under way,
// and nothing runs once the engine is gone.
TEST(Tickets, AnEngineThatDiesWhileAnotherThreadIsInItEndsThatCallWithAnError) {
  for (int round = 0; round < 20; ++round) {
    auto engine = open_tiny(kContinuous);
    Engine& dying = *engine;
    std::atomic<bool> running = false, gone = false, late = false;
    Request endless = request(12, 100);
    endless.on_token = [&](const Token&) {
      late = late || gone;
      running = true;
      return true;
    };
    engine->submit(endless);
    std::string error;
    std::thread stepping([&] { error = usage_error([&] { dying.generate(endless); }); });
    while (!running) std::this_thread::yield();
    engine.reset();
    gone = true;
    stepping.join();
    EXPECT_FALSE(late) << round;
    EXPECT_THAT(error, ::testing::AnyOf(HasSubstr("generate(): the engine was destroyed"), ::testing::Eq("no error")));
  }
}

TEST(Tickets, ScoringWaitsForNobody) {
  EngineOptions options;
  options.score_rows = 16;
  const auto engine = open_tiny(kContinuous, options);
  engine->submit(request());
  engine->step();
  size_t rows = 0;
  const std::vector<int32_t> text(20, 9);
  const auto count = [&](uint32_t, std::span<const float>) { ++rows; };
  EXPECT_THAT(usage_error([&] { engine->score(text, 0, count); }), HasSubstr("requests are running"));
  while (engine->step()) {
  }
  engine->score(text, 0, count);
  EXPECT_EQ(rows, 20u);
}

TEST(Tickets, TotalsAreOfAllStepsAndStatsOfACall) {
  const auto engine = open_tiny(kContinuous);
  RunStats one, two;
  engine->generate(request(12, 8), &one);
  engine->generate(request(7, 5), &two);
  EXPECT_EQ(one.prompt_tokens, 12u);
  EXPECT_EQ(one.new_tokens, 8u);
  EXPECT_EQ(one.decode_tokens, 7u);
  EXPECT_EQ(two.prompt_tokens, 7u);
  const RunStats all = engine->totals();
  EXPECT_EQ(all.new_tokens, 13u);
  EXPECT_EQ(all.steps, one.steps + two.steps);
  EXPECT_GE(all.decode_seconds, one.decode_seconds);
}

// ---- a scheduler that breaks its rules ------------------------------------------------------------------------------

TEST(WrongScheduler, IsNamedWithTheRuleAndTheEngineStaysUsable) {
  const std::pair<const char*, const char*> rules[] = {
      {"nobody", "gives no rows to any of 3 sequences"},
      {"range", "names sequence 3 of 3"},
      {"pending", "gives 13 rows to a sequence with 12 pending tokens"},
      {"twice", "names sequence 0 twice"},
      {"slots", "admits 3 sequences to 2 free slots"},
      {"rows", "gives 24 rows; a step has 16 at most"},
      {"waits", "pre-empts a sequence that does not run"},
      {"throws", "chooses no step: it does not want to"}};
  for (const auto& [rule, text] : rules) {
    const auto engine =
        open_tiny({"scheduler.use=wrong", std::string("scheduler.rule=") + rule, "scheduler.prefill_rows=16"});
    for (int i = 0; i < 2; ++i) {
      const std::vector<Result> results = engine->generate(std::vector<Request>(3, request()));
      for (const Result& r : results) {
        EXPECT_EQ(r.finish, FinishReason::kError);
        EXPECT_EQ(error_of(r), std::string("error: scheduler.wrong ") + text) << rule;
      }
    }
  }
}

TEST(WrongScheduler, EndsWhatWasGoingWell) {
  const auto engine = open_tiny({"scheduler.use=wrong", "scheduler.rule=nobody", "scheduler.after=4"});
  const Result r = engine->generate(std::vector<Request>(1, request())).front();
  EXPECT_THAT(error_of(r), HasSubstr("scheduler.wrong gives no rows"));
  EXPECT_EQ(r.tokens.size(), 4u);
}

TEST(WrongScheduler, ThatLetsAllWaitForRoomIsAnErrorNoHang) {
  for (const auto& [rule, text] : {std::pair{"waits_for_ever", "scheduler.wrong lets no sequence run"},
                                   std::pair{"victim", "scheduler.wrong pre-empts sequence 2 of 2"}}) {
    const auto engine = open_tiny({"scheduler.use=wrong", std::string("scheduler.rule=") + rule, "scheduler.after=1000",
                                   "kv_cache.use=few_pages", "kv_cache.pages=4"});
    for (const Result& r : engine->generate(std::vector<Request>(2, request(14, 30)))) {
      EXPECT_THAT(error_of(r), HasSubstr(text));
    }
    EXPECT_EQ(engine->generate(request()).tokens.size(), 8u);
  }
}

}  // namespace
}  // namespace tenon::test
