// In these engines sequences rest. A clock of the test's own says how long steps take: as long as it says for as many
// rows as gave a token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "list_sink.h"
#include "on_a_device.h"

namespace tenon::test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr uint32_t kAll = 3;  // so many sequences never change each other's texts on any device

const Settings kSettings = with(
    kExact, {"scheduler.use=continuous", "scheduler.sequences=3", "scheduler.rest_steps=4", "kv_cache.capacity=256",
             "sampler.chain=[{use=\"temperature\", value=0.9}]", "sampler.select=categorical", "grammar.use=letters",
             "plugin=[{path=\"" + (build() / "tests/unit/engine/plugins/grammar/letters.cpu.so").string() + "\"}]"});

Request request_of(int32_t seed, uint32_t tokens) {
  Request r{.max_new_tokens = tokens, .ignore_end = true, .seed = static_cast<uint64_t>(seed)};
  for (int32_t i = 0; i < 5; ++i) r.tokens.push_back((i * 37 + seed * 11) % 200 + 3);
  return r;
}

class Resting : public OnADevice {
 protected:
  // A step of n rows takes milliseconds[n].
  void open(const std::array<int, kAll + 1>& milliseconds, const Settings& more = {},
            trace::Recorder* recorder = nullptr) {
    milliseconds_ = milliseconds;
    EngineOptions options{.grammars = true};
    options.recorder = [recorder](const PipelineConfig&) { return recorder; };
    options.clock = [this] {
      now_ += std::chrono::milliseconds(milliseconds_[std::exchange(in_step_, 0U)]);
      return now_;
    };
    engine_ = open_with(std::move(options), kTiny, kDevice, with(kSettings, more));
    alone_ = open_with({.grammars = true}, kTiny, kDevice, kSettings);
  }

  void submit(Request request) {
    const size_t index = given_.size();
    given_.push_back(0);
    requests_.push_back(request);
    results_.emplace_back();
    request.on_token = [this, index](const Token& token) {
      if (token.id >= 0) ++given_[index], ++in_step_;
      return true;
    };
    request.on_done = [this, index](const Result& result) { results_[index] = result; };
    tickets_.push_back(engine_->submit(std::move(request)));
  }

  // Returns who got a token in the step.
  std::vector<size_t> step() {
    const std::vector<uint32_t> before = given_;
    engine_->step();
    std::vector<size_t> ran;
    for (size_t i = 0; i < given_.size(); ++i) {
      if (given_[i] > before[i]) ran.push_back(i);
    }
    return ran;
  }

  // Returns how many got a token, by step.
  std::vector<size_t> steps(int count) {
    std::vector<size_t> rows;
    for (int i = 0; i < count; ++i) rows.push_back(step().size());
    return rows;
  }

  void run() {
    while (engine_->step()) {
    }
  }

  void expect_as_alone(size_t i) {
    const Result expected = alone_->generate(requests_[i]);
    EXPECT_EQ(results_[i].tokens, expected.tokens) << i;
    EXPECT_EQ(results_[i].text, expected.text) << i;
    EXPECT_EQ(results_[i].finish, FinishReason::kLength) << i;
  }

  std::unique_ptr<Engine> engine_, alone_;
  std::vector<Request> requests_;
  std::vector<Result> results_;
  std::vector<Ticket> tickets_;
  std::vector<uint32_t> given_;  // tokens, by request

 private:
  std::array<int, kAll + 1> milliseconds_{};
  uint32_t in_step_ = 0;
  std::chrono::steady_clock::time_point now_{};
};

// The prompts take one step, and four tell how long a step of three takes. Where steps are
// launched ahead, one more is under way by then.
const int kMeasured = kDevice == "cuda" ? 6 : 5;
constexpr std::array<int, kAll + 1> kThreeAreSlow = {0, 10, 11, 20}, kThreeAreFast = {0, 10, 11, 12};

TEST_F(Resting, EverybodyGetsATurnAndTheTextThatItGetsAlone) {
  open(kThreeAreSlow);
  for (int32_t i = 0; i < 3; ++i) submit(request_of(i, 100));
  EXPECT_THAT(steps(kMeasured), Each(3u));
  std::array<uint32_t, 3> rested{};
  for (int i = 0; i < 96; ++i) {
    const std::vector<size_t> ran = step();
    ASSERT_EQ(ran.size(), 2u) << i;
    for (size_t s = 0; s < 3; ++s) rested[s] += std::find(ran.begin(), ran.end(), s) == ran.end() ? 1 : 0;
  }
  EXPECT_THAT(rested, Each(32u));
  EXPECT_EQ(engine_->totals().rested, 96u);
  run();
  for (size_t i = 0; i < 3; ++i) expect_as_alone(i);
  const RunStats stats = engine_->totals();
  EXPECT_EQ(stats.new_tokens, 300u);
  EXPECT_EQ(stats.decode_tokens, 297u);
  EXPECT_FALSE(engine_->step());
}

// All steps of a turn but the last can be launched before the one ahead of it is read.
TEST_F(Resting, WhoRestsChangesOnceATurn) {
  open(kThreeAreSlow);
  for (int32_t i = 0; i < 3; ++i) submit(request_of(i, 100));
  steps(kMeasured);
  for (int turn = 0; turn < 12; ++turn) {
    const std::vector<size_t> first = step();
    for (int i = 1; i < 4; ++i) EXPECT_EQ(step(), first) << "turn " << turn;
  }
}

TEST_F(Resting, NobodyRestsWhereAllTogetherAreFaster) {
  open(kThreeAreFast);
  for (int32_t i = 0; i < 3; ++i) submit(request_of(i, 60));
  EXPECT_THAT(steps(kMeasured), Each(3u));
  EXPECT_THAT(steps(4), Each(2u)) << "steps of two are tried";
  EXPECT_THAT(steps(40), Each(3u));
  EXPECT_EQ(engine_->totals().rested, 4u);
  run();
  for (size_t i = 0; i < 3; ++i) expect_as_alone(i);
}

TEST_F(Resting, NoStepsOfRestMeansThatNobodyDoes) {
  open(kThreeAreSlow, {"scheduler.rest_steps=0"});
  for (int32_t i = 0; i < 3; ++i) submit(request_of(i, 40));
  EXPECT_THAT(steps(40), Each(3u));
  EXPECT_EQ(engine_->totals().rested, 0u);
}

TEST_F(Resting, APromptWaitsForNobodyAndNobodyForIt) {
  open(kThreeAreSlow, {"scheduler.budget_rows=4"});
  for (int32_t i = 0; i < 2; ++i) submit(request_of(i, 100));
  while (step().size() < 2) {
  }
  steps(20);
  submit(request_of(2, 50));
  if (kDevice == "cuda") step();  // it may have been under way
  const uint64_t rested = engine_->totals().rested;
  // Two rows of four are left for its five tokens.
  EXPECT_THAT((std::array{step(), step()}), Each(ElementsAre(0, 1)));
  EXPECT_THAT(step(), ElementsAre(0, 1, 2));
  EXPECT_EQ(engine_->totals().rested, rested);
  EXPECT_THAT(steps(20), Contains(2u));
  run();
  for (size_t i = 0; i < 3; ++i) expect_as_alone(i);
}

TEST_F(Resting, AHigherPriorityRestsLast) {
  open(kThreeAreSlow);
  for (int32_t i = 0; i < 3; ++i) {
    Request r = request_of(i, 100);
    r.priority = i == 1 ? 1 : 0;
    submit(std::move(r));
  }
  steps(kMeasured);
  for (int i = 0; i < 40; ++i) EXPECT_THAT(step(), Contains(1u)) << i;
  EXPECT_EQ(engine_->totals().rested, 40u);
}

TEST_F(Resting, OneThatRestsIsCancelled) {
  open(kThreeAreSlow);
  for (int32_t i = 0; i < 3; ++i) submit(request_of(i, 50));
  steps(kMeasured + 5);
  const std::vector<size_t> ran = step();
  ASSERT_EQ(ran.size(), 2u);
  const size_t rests = 3 - ran[0] - ran[1];
  const uint32_t given = given_[rests];
  engine_->cancel(tickets_[rests]);
  step();
  EXPECT_EQ(results_[rests].finish, FinishReason::kCancelled);
  EXPECT_EQ(results_[rests].tokens.size(), given);
  run();
  for (const size_t i : ran) expect_as_alone(i);
}

TEST_F(Resting, TheOthersEndAndItGoesOn) {
  open(kThreeAreSlow);
  for (int32_t i = 0; i < 3; ++i) submit(request_of(i, i == 2 ? 60 : 8));
  run();
  EXPECT_GT(engine_->totals().rested, 0u);
  for (size_t i = 0; i < 3; ++i) expect_as_alone(i);
}

TEST_F(Resting, EachRestIsInTheTrace) {
  trace::Heard heard;
  trace::Recorder recorder({}, std::make_unique<trace::ListSink>(heard));
  open(kThreeAreSlow, {}, &recorder);
  for (int32_t i = 0; i < 3; ++i) submit(request_of(i, 40));
  run();
  const uint64_t rested = engine_->totals().rested;
  engine_.reset();
  ASSERT_TRUE(recorder.stop().ok());
  uint64_t steps = 0, rests = 0;
  for (const trace::Heard::Copy& event : heard.events) {
    if (event.request != trace::RequestEvent::kRested) continue;
    ASSERT_EQ(event.values.size(), 3u);
    ++rests;
    steps += event.values[2] - event.values[1] + 1;
  }
  EXPECT_EQ(steps, rested);
  EXPECT_GE(rests, rested / 4);
  EXPECT_LT(rests, rested / 2);
}

// Masks are made of what others have at the same time.
TEST_F(Resting, GrammarsMakeNoDifference) {
  open(kThreeAreSlow);
  const auto of = [](Engine& engine, int32_t i) {
    Request r = request_of(i, 60);
    if (i == 0) return r;
    GrammarText text;
    text.text = i == 1 ? "~abcdefgh" : "~>xyz";
    r.grammar = engine.compile(text);
    r.ignore_end = false;
    return r;
  };
  for (int32_t i = 0; i < 3; ++i) submit(of(*engine_, i));
  EXPECT_THAT(steps(kMeasured), Each(3u));
  EXPECT_THAT(steps(40), Each(2u));
  run();
  for (int32_t i = 0; i < 3; ++i) requests_[static_cast<size_t>(i)] = of(*alone_, i);
  for (size_t i = 0; i < 3; ++i) expect_as_alone(i);
}

TEST_F(Resting, LogProbabilitiesMakeNoDifference) {
  open(kThreeAreSlow);
  for (int32_t i = 0; i < 3; ++i) {
    Request r = request_of(i, 60);
    r.logprobs = i == 1;
    submit(std::move(r));
  }
  EXPECT_THAT(steps(kMeasured), Each(3u));
  EXPECT_THAT(steps(40), Each(2u));
  run();
  for (size_t i = 0; i < 3; ++i) expect_as_alone(i);
  EXPECT_EQ(results_[1].logprobs.size(), 60u);
}

}  // namespace
}  // namespace tenon::test
