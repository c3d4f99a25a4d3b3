// Steps are launched ahead of the host while it reads the logits of the step before. This is compiled for the device in
// queued.cc here, which needs no GPU, and for a GPU in tests/cuda (TENON_TEST_DEVICE).
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

const Settings kSettings = with(kExact, {"scheduler.use=continuous", "scheduler.sequences=3"});
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
      options.set.emplace_back("pipeline.execution=recorded");
    } else {
      options.set.push_back("device.use=" + device);
    }
    options.plugin_dirs = {plugins()};
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
                          return false;
                        },
                    .op = [](const Program&, size_t) {}});
  }

  // Returns what each request gets alone, on the CPU from a device that launches nothing ahead.
  static std::vector<Result> alone(const std::filesystem::path& model, const std::vector<Request>& requests,
                                   const Settings& more = {}) {
    const bool walks = kDevice == "queued";
    const auto engine =
        open_on(walks ? "cpu" : kDevice, model, walks ? with(more, {"device.isa=baseline", "device.threads=1"}) : more);
    std::vector<Result> results;
    for (const Request& r : requests) results.push_back(engine->generate(std::span(&r, 1)).front());
    return results;
  }

  // The result goes to results_, by the order of these calls.
  void submit(Request request) {
    request.on_done = [this, number = submitted_++](const Result& result) { results_[number] = result; };
    engine_->submit(std::move(request));
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

  std::list<Turn> turns_;
  std::unique_ptr<Engine> engine_;
  std::map<size_t, Result> results_;

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

Request request_of(int32_t number, uint32_t tokens) {
  Request r{.max_new_tokens = tokens, .ignore_end = true};
  for (int32_t i = 0; i < 5; ++i) r.tokens.push_back((i * 37 + number * 11) % 200 + 3);
  return r;
}

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

// A step may have several tokens of a sequence that wants them.
TEST_F(Ahead, RoundsOfADraftModelAreLaunchedToo) {
  std::vector<Request> requests = {request_of(0, 40), request_of(1, 40)};
  requests[1].logprobs = true;
  open(tiny(), {"draft.pipeline.tokens=2"});
  for (const Request& r : requests) submit(r);
  int64_t ahead = 0;
  while (results_.size() < requests.size()) ahead += step();
  EXPECT_GT(ahead, 8);
  const std::vector<Result> expected = alone(tiny(), requests);
  for (size_t i = 0; i < requests.size(); ++i) expect_same(results_.at(i), expected[i]);
}

// Requests come and go at random. They end at stop strings, at ends and at limits, and are cancelled, while the step
// after is under way.
TEST_F(Ahead, LogProbabilitiesAreThoseOfEachAlone) {
  std::vector<Request> requests = some_requests(100, 9);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].priority = 0;  // nobody is pre-empted
    requests[i].logprobs = i % 2 == 0;
    requests[i].top_logprobs = 2;
  }
  const std::vector<Result> expected = alone(tiny(), requests, kSampling);
  for (const FinishReason finish : {FinishReason::kStopString, FinishReason::kEndOfText, FinishReason::kLength}) {
    EXPECT_TRUE(std::ranges::any_of(expected, [&](const Result& r) {
      return r.finish == finish && !r.logprobs.empty();
    })) << to_string(finish);
  }
  open(tiny(), kSampling);
  const size_t ended_by_cancel = run_at_random(
      *engine_, requests, {.every = 6, .most = 8, .to_cancel = 10}, [&](const Result& r, size_t i, bool cancelled) {
        SCOPED_TRACE("request " + std::to_string(i));
        expect_same(r, expected[i], cancelled && r.finish == FinishReason::kCancelled);
      });
  EXPECT_GT(ended_by_cancel, 5u);
}

// The rows of the one that breaks are run again while the other one's next step has ended and nobody has read it yet.
TEST_F(Ahead, ARowThatIsNotFiniteLeavesThoseOfOthers) {
  constexpr size_t kWidth = 64;
  std::vector<Request> requests = {request_of(0, 24), request_of(1, 24)};
  for (Request& r : requests) r.logprobs = true;
  const std::vector<Result> sound = alone(tiny(), requests);
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
  const std::vector<Result> results = engine_->generate(requests);
  expect_same(results[0], sound[0]);
  EXPECT_THAT(error_of(results[1]), HasSubstr("model.embed_tokens.weight holds nan"));
  EXPECT_EQ(results[1].tokens.size(), at + 1);
  EXPECT_EQ(results[1].logprobs.size(), at + 1);
}

}  // namespace
}  // namespace tenon::test
