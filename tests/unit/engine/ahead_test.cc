// Steps are launched ahead of the host while it reads the logits of the step before, and makes masks. This is compiled for
// the device in queued.cc here, which needs no GPU, and for a GPU in tests/cuda (TENON_TEST_DEVICE).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <list>
#include <map>

#include "on_a_device.h"
#include "queued.h"
#include "support/random_requests.h"
#include "support/spoilt_model.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

using ::testing::HasSubstr;

// On a GPU a prompt beside others goes through other products than alone.
const double kLogprobs = kDevice == "cuda" ? 1e-3 : 0;

const Settings kSettings = with(kExact, {"scheduler.use=continuous", "scheduler.sequences=3", "grammar.use=letters"});
const Settings kSampling = {
    "sampler.chain=[{use=\"repetition_penalty\"}, {use=\"temperature\", value=0.9}, {use=\"top_k\"}]",
    "sampler.select=categorical"};

// An op of a CPU component runs, on one thread, when its turn in the queue comes.
struct Turn {
  const ProgramOp& op;
  void* self;  // the op's own
  std::vector<std::byte> thread_scratch{};
};

void run(Turn& turn, const tenon_launch* l) {
  constexpr uintptr_t kVector = 64;
  turn.thread_scratch.resize(turn.op.thread_scratch_bytes + kVector);
  const auto address = reinterpret_cast<uintptr_t>(turn.thread_scratch.data());
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  auto part = sdk::abi_struct<tenon_part>();
  part.launch = l;
  part.thread_scratch = turn.thread_scratch.data() + (kVector - address % kVector) % kVector;
  part.why = &why;
  for (; part.phase < turn.op.phases; ++part.phase) {
    part.end = turn.op.chunks[part.phase];
    EXPECT_EQ(turn.op.part(turn.self, turn.op.args.data(), &part), TENON_OK) << text;
  }
}

Request request_of(int32_t number, uint32_t tokens) {
  Request r{.max_new_tokens = tokens, .ignore_end = true};
  for (int32_t i = 0; i < 5; ++i) r.tokens.push_back((i * 37 + number * 11) % 200 + 3);
  return r;
}

// These are the letters of each request that has a grammar (letters.cc).
using Letters = std::map<size_t, std::string>;

std::vector<Request> with_grammars(Engine& engine, std::vector<Request> requests, const Letters& letters) {
  for (const auto& [i, of_request] : letters) {
    GrammarText text;
    text.text = of_request;
    requests[i].grammar = engine.compile(text);
    requests[i].ignore_end = false;
  }
  return requests;
}

class Ahead : public OnADevice {
 protected:
  static std::filesystem::path tiny() { return root() / "tests/golden/data" / kTiny; }

  static std::unique_ptr<Engine> open_on(const std::string& device, const std::filesystem::path& model,
                                         const Settings& more) {
    EngineOptions options{.config = model};
    options.set = with(kSettings, more);
    if (device == "queued") {
      const std::filesystem::path library = build() / "tests/unit/engine/queued/cpu.cpu.so";
      options.set.push_back("plugin=[{path=\"" + library.string() + "\"}]");
    } else {
      options.set.push_back("device.use=" + device);
    }
    options.plugin_dirs = {plugins(), build() / "tests/unit/engine/plugins"};
    options.grammars = true;
    return Engine::open(options);
  }

  void open(const std::filesystem::path& model, const Settings& more = {}) {
    engine_ = open_on(kDevice, model, more);
    Pipeline& pipeline = engine_->pipeline();
    const std::vector<const Program*> programs = pipeline.programs();
    if (kDevice == "queued") give_turns(programs);
    engine_->load();
    if (kDevice == "queued") static_cast<Queue*>(programs[0]->launch(0).queue)->begin();
    launched_ = 0;
    submitted_ = 0;
    results_.clear();
    pipeline.watch({.begin =
                        [this, programs](const Program& program, const StepLoad&) {
                          launched_ += std::ranges::count(programs, &program);
                          return one_by_one_every_ != 0 && launched_ % one_by_one_every_ == 0;
                        },
                    .op = [](const Program&, size_t) {}});
  }

  // Returns what each request gets alone, on the CPU from a device that launches nothing ahead.
  static std::vector<Result> alone(const std::filesystem::path& model, const std::vector<Request>& requests,
                                   const Settings& more = {}, const Letters& letters = {}) {
    const bool walks = kDevice == "queued";
    const auto engine =
        open_on(walks ? "cpu" : kDevice, model, walks ? with(more, {"device.isa=baseline", "device.threads=1"}) : more);
    std::vector<Result> results;
    for (const Request& r : with_grammars(*engine, requests, letters)) {
      results.push_back(engine->generate(std::span(&r, 1)).front());
    }
    return results;
  }

  // The result goes to results_, by the order of these calls.
  Ticket submit(Request request) {
    request.on_done = [this, number = submitted_++](const Result& result) { results_[number] = result; };
    return engine_->submit(std::move(request));
  }

  // Makes a step, and says how many more are under way.
  int64_t step() {
    engine_->step();
    return launched_ - static_cast<int64_t>(engine_->totals().steps);
  }

  static void expect_same(const Result& r, const Result& expected, bool cancelled = false) {
    expect_as_alone(r, expected, cancelled, false);
    ASSERT_LE(r.logprobs.size(), expected.logprobs.size());
    EXPECT_TRUE(cancelled || r.logprobs.size() == expected.logprobs.size());
    for (size_t i = 0; i < r.logprobs.size(); ++i) {
      EXPECT_NEAR(r.logprobs[i].value, expected.logprobs[i].value, kLogprobs) << "token " << i;
    }
  }

  // See run_at_random() of random_requests.h.
  size_t run_at_random(const std::vector<Request>& requests, const Letters& letters,
                       const std::vector<Result>& expected) {
    return test::run_at_random(*engine_, with_grammars(*engine_, requests, letters),
                               {.every = 6, .most = 8, .to_cancel = 10},
                               [&](const Result& r, size_t i, bool cancelled) {
                                 SCOPED_TRACE("request " + std::to_string(i));
                                 expect_same(r, expected[i], cancelled && r.finish == FinishReason::kCancelled);
                               });
  }

  // The first of two requests stays as it is where the second one breaks.
  void expect_first_as_alone_beside_broken(const Letters& letters) {
    constexpr size_t kWidth = 64;
    std::vector<Request> requests = {request_of(0, 24), request_of(1, 24)};
    for (Request& r : requests) r.logprobs = true;
    const std::vector<Result> sound = alone(tiny(), requests, {}, letters);
    // The second one breaks after a token that nobody has before.
    std::vector<int32_t> seen = sound[0].tokens;
    for (const Request& r : requests) seen.insert(seen.end(), r.tokens.begin(), r.tokens.end());
    const std::vector<int32_t>& own = sound[1].tokens;
    size_t at = 0;
    for (; at < 4 || std::ranges::count(seen, own[at]) > 0; ++at) {
      ASSERT_LT(at + 4, own.size());
      seen.push_back(own[at]);
    }
    SpoiltModel model(tiny());
    model.set("model.embed_tokens.weight", static_cast<size_t>(own[at]) * kWidth,
              std::numeric_limits<float>::quiet_NaN());
    open(model.path());
    const std::vector<Result> results = engine_->generate(with_grammars(*engine_, requests, letters));
    expect_same(results[0], sound[0]);
    EXPECT_THAT(error_of(results[1]), HasSubstr("model.embed_tokens.weight holds nan"));
    EXPECT_EQ(results[1].tokens.size(), at + 1);
    EXPECT_EQ(results[1].logprobs.size(), at + 1);
  }

  std::list<Turn> turns_;
  std::unique_ptr<Engine> engine_;
  std::map<size_t, Result> results_;
  int64_t one_by_one_every_ = 0;  // one in so many programs runs op by op; 0: those do that run for the first time

 private:
  // Components of the CPU leave ops without a launch. The programs are the engine's own, and not const there.
  void give_turns(const std::vector<const Program*>& programs) {
    for (const Program* program : programs) {
      for (const ProgramOp& op : program->ops()) {
        auto& mine = const_cast<ProgramOp&>(op);
        mine.self = &turns_.emplace_back(Turn{.op = op, .self = op.self});
        mine.launch = [](void* self, const void*, const tenon_launch* l, tenon_reason*) -> tenon_status {
          static_cast<Queue*>(l->queue)->enqueue([self, l] { run(*static_cast<Turn*>(self), l); });
          return TENON_OK;
        };
      }
    }
  }

  size_t submitted_ = 0;
  int64_t launched_ = 0;
};

// Requests that run, and one that comes later, want log probabilities or do not.
TEST_F(Ahead, ARequestThatWantsLogProbabilitiesHoldsUpNobody) {
  for (const bool logprobs : {false, true}) {
    SCOPED_TRACE(logprobs);
    std::vector<Request> requests = {request_of(0, 40), request_of(1, 30), request_of(2, 20)};
    requests[1].logprobs = requests[2].logprobs = logprobs;
    open(tiny());
    submit(requests[0]);
    submit(requests[1]);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(step(), 1);
    submit(requests[2]);
    for (int i = 5; i < 39; ++i) EXPECT_EQ(step(), 1) << i;
    EXPECT_EQ(step(), 0);
    const std::vector<Result> expected = alone(tiny(), requests);
    for (size_t i = 0; i < requests.size(); ++i) expect_same(results_.at(i), expected[i]);
  }
}

TEST_F(Ahead, ARequestWithAGrammarHoldsUpNobody) {
  const std::vector<Request> requests = {request_of(0, 40), request_of(1, 30), request_of(2, 20), request_of(3, 20)};
  const Letters letters = {{1, "~abcdefghij"}, {2, "~>xyz"}, {3, "~#abc"}};  // after six letters nothing comes
  const std::vector<Result> expected = alone(tiny(), requests, {}, letters);
  EXPECT_THAT(error_of(expected[3]), HasSubstr("the grammar allows no token of the vocabulary here"));
  for (const int64_t every : {0, 3}) {
    SCOPED_TRACE(every);
    one_by_one_every_ = every;
    open(tiny());
    const std::vector<Request> own = with_grammars(*engine_, requests, letters);
    submit(own[0]);
    submit(own[1]);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(step(), 1);
    submit(own[2]);
    submit(own[3]);
    for (int i = 5; i < 39; ++i) EXPECT_EQ(step(), 1) << i;
    EXPECT_EQ(step(), 0);
    for (size_t i = 0; i < 3; ++i) expect_same(results_.at(i), expected[i]);
    EXPECT_EQ(error_of(results_.at(3)), error_of(expected[3]));
    EXPECT_EQ(results_.at(3).tokens, expected[3].tokens);
  }
}

// The step of one that was cancelled is under way, and has no masks yet, when its slot is another one's.
TEST_F(Ahead, AStepThatNobodyWantsLeavesTheNextSequenceAlone) {
  const Settings more = with(kSampling, {"scheduler.sequences=1"});
  std::vector<Request> requests;
  Letters letters;
  for (size_t i = 0; i < 24; ++i) {
    Request& r = requests.emplace_back(request_of(static_cast<int32_t>(i), 20));
    r.sampler = {{"repetition_penalty.penalty", "4"}};
    r.seed = i;
    letters[i] = "~abcdefghij";
  }
  const std::vector<Result> expected = alone(tiny(), requests, more, letters);
  open(tiny(), more);
  const std::vector<Request> own = with_grammars(*engine_, requests, letters);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const bool cancelled = i % 2 == 0;
    const Ticket ticket = submit(own[i]);
    for (int s = 0; cancelled && s < 5; ++s) engine_->step();
    if (cancelled) engine_->cancel(ticket);
    while (!results_.contains(i)) engine_->step();
    expect_same(results_[i], expected[i], cancelled);
  }
}

// A step may have several tokens of a sequence that wants them.
TEST_F(Ahead, RoundsOfADraftModelAreLaunchedToo) {
  std::vector<Request> requests = {request_of(0, 40), request_of(1, 40)};
  requests[1].logprobs = true;
  open(tiny(), {"draft.pipeline.tokens=2", "scheduler.sequences=2"});
  for (const Request& r : requests) submit(r);
  int64_t ahead = 0;
  while (results_.size() < requests.size()) ahead += step();
  EXPECT_GT(ahead, 8);
  const std::vector<Result> expected = alone(tiny(), requests);
  for (size_t i = 0; i < requests.size(); ++i) expect_same(results_.at(i), expected[i]);
}

// Requests come and go at random. They end at stop strings, at ends and at limits, and are cancelled, while the step
// after is under way. One in three has a grammar.
TEST_F(Ahead, EachGetsWhatItGetsAlone) {
  std::vector<Request> requests = some_requests(100, 9);
  Letters letters;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].priority = 0;  // nobody is pre-empted
    requests[i].logprobs = i % 2 == 0;
    requests[i].top_logprobs = 2;
    if (i % 3 == 1) letters[i] = i % 2 == 0 ? "abcd" : ">xyz";
  }
  const std::vector<Result> expected = alone(tiny(), requests, kSampling, letters);
  for (const FinishReason finish : {FinishReason::kStopString, FinishReason::kEndOfText, FinishReason::kLength}) {
    EXPECT_TRUE(std::ranges::any_of(expected, [&](const Result& r) {
      return r.finish == finish && !r.logprobs.empty();
    })) << to_string(finish);
  }
  open(tiny(), kSampling);
  EXPECT_GT(run_at_random(requests, letters, expected), 5u);
}

// Where pages are short, or others are of a higher priority, some lose their place; and texts under a grammar may have
// drafts.
TEST_F(Ahead, EachGetsWhatItGetsAloneInAnyPipeline) {
  if (kDevice == "cuda") GTEST_SKIP() << "the cache with few pages is for the CPU";
  std::vector<Request> requests = some_requests(60, 17);
  Letters letters;
  for (size_t i = 0; i < requests.size(); i += 2) letters[i] = i % 4 == 0 ? "abcd" : ">xyz";
  const std::vector<Result> expected = alone(tiny(), requests, kSampling, letters);
  for (const Settings& more : {Settings{"kv_cache.use=few_pages", "kv_cache.pages=20", "scheduler.sequences=6"},
                               Settings{"draft.use=ngram", "draft.k=3"}, Settings{"draft.pipeline.tokens=2"}}) {
    SCOPED_TRACE(more[0]);
    open(tiny(), with(kSampling, more));
    run_at_random(requests, letters, expected);
    EXPECT_GT(engine_->totals().preempted, 0u);
  }
}

// The rows of the one that breaks are run again while the other one's next step has ended and nobody has read it yet, or
// is under way as far as it needs no mask.
TEST_F(Ahead, ARowThatIsNotFiniteLeavesThoseOfOthers) {
  expect_first_as_alone_beside_broken({});
  expect_first_as_alone_beside_broken({{0, "~abcdefghij"}});
  expect_first_as_alone_beside_broken(
      {{0, "~abcdefghij"}, {1, "~ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789klmnopqrstuvwxyz"}});
}

}  // namespace
}  // namespace tenon::test
