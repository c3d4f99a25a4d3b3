// Drafts change how many steps a text takes and nothing else: on the GPU, and, by the same tests, on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/one_sequence.h"
#include "support/pipelines.h"
#include "tenon/core/engine.h"

namespace tenon::test {
namespace {

using Tokens = std::vector<int32_t>;

class Speculation : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string problem = GetParam() == std::string("cuda") ? no_gpu() : "";
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
  std::unique_ptr<Engine> open_with(Settings settings, std::initializer_list<std::string> more) const {
    settings.insert(settings.end(), more);
    return open(kTiny, GetParam(), settings);
  }
};

// Returns a prompt that repeats itself, so that drafts are found and some of them survive.
Request repeating(uint32_t tokens, uint32_t length = 48) {
  Request r = request(tokens);
  r.tokens.clear();
  for (uint32_t i = 0; i < length; ++i) r.tokens.push_back(static_cast<int32_t>(i % 8 * 37 % 200 + 3));
  return r;
}

TEST_P(Speculation, GivesThePlainTextInFewerSteps) {
  const Settings greedy = {"sampler.chain=[]", "sampler.select=greedy"}, drawn = {};
  const Settings penalized = {"sampler.chain=[{use=\"repetition_penalty\", penalty=1.1}]", "sampler.select=greedy"};
  for (const char* scheme : {"none", "int8wo", "int4wo"}) {
    for (const Settings& sampling : {greedy, drawn, penalized}) {
      for (const char* execution : {"recorded", "auto"}) {
        Settings settings = sampling;
        settings.insert(settings.end(), {std::string("quantization.use=") + scheme, "kv_cache.capacity=256",
                                         std::string("pipeline.execution=") + execution});
        RunStats plain, drafted;
        const Tokens expected = open_with(settings, {})->generate(repeating(100), &plain).tokens;
        const auto engine = open_with(settings, {"draft.use=ngram", "draft.k=5"});
        const std::string what = std::string(scheme) + ", " + execution + ", " + testing::PrintToString(sampling);
        EXPECT_EQ(engine->generate(repeating(100), &drafted).tokens, expected) << what;
        EXPECT_EQ(engine->generate(repeating(100)).tokens, expected) << what << ", again";
        EXPECT_GT(drafted.drafted, 0u) << what;
        EXPECT_EQ(drafted.steps + drafted.accepted, plain.steps) << what;
        if (sampling == greedy) {
          EXPECT_GT(drafted.accepted, 0u) << what;
        }
      }
    }
  }
}

// A draft model gives rounds of one program, launched op by op, as a list and as a captured graph that runs ahead of
// the host.
TEST_P(Speculation, RoundsOfADraftModelGiveThePlainText) {
  const Settings penalized = {"sampler.chain=[{use=\"repetition_penalty\", penalty=1.1}]", "sampler.select=greedy"};
  for (const char* draft : {"draft.pipeline.quantization.use=int8wo", "draft.pipeline.model.layers=1"}) {
    for (const Settings& sampling : {kExact, penalized, Settings{}}) {
      for (const char* execution : {"per_op", "recorded", "auto"}) {
        Settings settings = sampling;
        settings.insert(settings.end(), {"quantization.use=none", "kv_cache.capacity=256",
                                         std::string("pipeline.execution=") + execution});
        const Tokens expected = open_with(settings, {})->generate(repeating(60)).tokens;
        const auto engine = open_with(settings, {draft, "draft.pipeline.tokens=4"});
        const std::string what = std::string(draft) + ", " + execution + ", " + testing::PrintToString(sampling);
        RunStats stats;
        EXPECT_EQ(engine->generate(repeating(60), &stats).tokens, expected) << what;
        EXPECT_EQ(engine->generate(repeating(60)).tokens, expected) << what << ", again";
        EXPECT_GT(stats.drafted, 0u) << what;
        EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak()) << what;
      }
    }
  }
}

TEST_P(Speculation, ADraftModelThatIsTheModelItselfIsAlwaysRight) {
  const auto engine = open_with(kExact, {"draft.pipeline.tokens=3"});
  RunStats stats;
  Request r = repeating(41);
  r.ignore_end = true;
  EXPECT_EQ(engine->generate(r, &stats).tokens, open_with(kExact, {})->generate(r).tokens);
  EXPECT_EQ(stats.accepted, stats.drafted);
  EXPECT_EQ(stats.steps, 1u + 10u);
}

TEST_P(Speculation, GivesThePlainTextOfGgufFiles) {
  for (const std::string name : {"tiny-gguf-k", "tiny-gguf-mixed", "tiny-gguf-q8_0"}) {
    const std::string model = name + "/" + name + ".gguf";
    Settings settings = {"kv_cache.capacity=256", "sampler.chain=[]", "sampler.select=greedy"};
    const Tokens expected = open(model, GetParam(), settings)->generate(repeating(100)).tokens;
    settings.insert(settings.end(), {"draft.use=ngram", "draft.k=7"});
    RunStats drafted;
    EXPECT_EQ(open(model, GetParam(), settings)->generate(repeating(100), &drafted).tokens, expected) << model;
    EXPECT_GT(drafted.drafted, 0u) << model;
  }
}

TEST_P(Speculation, SequencesInStepGiveThePlainTexts) {
  Settings lockstep = kExact;
  lockstep.push_back("scheduler.use=lockstep");
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 2; ++i) requests.push_back(repeating(30, 24 + 7 * i));
  lockstep.insert(lockstep.end(), {"draft.use=ngram", "draft.k=3"});
  RunStats stats;
  const std::vector<Result> together = open(kTiny, GetParam(), lockstep, 2)->generate(requests, &stats);
  EXPECT_GT(stats.drafted, 0u);
  const auto alone = open(kTiny, GetParam(), kExact);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone->generate(requests[i]).tokens) << "sequence " << i;
  }
}

// Makes the step of the tokens after the first `cached`, which are in the cache: those after row first_out are drafts.
StepBatch rows_of(const Tokens& tokens, size_t cached, size_t first_out) {
  const auto rows = std::span<const int32_t>(tokens).subspan(cached);
  StepBatch b = step_of_one(rows, cached, first_out);
  b.drafted = static_cast<uint32_t>(rows.size() - 1 - first_out);
  return b;
}

struct Chosen {
  Tokens next;
  int32_t accepted = 0;
  std::vector<float> logits;
};

Chosen run(Pipeline& pipeline, const StepBatch& batch) {
  EXPECT_TRUE(pipeline.reserve(0, static_cast<uint32_t>(batch.position.back()) + 1).ok());
  StepResult result;
  const Status status = pipeline.step(batch, result);
  EXPECT_TRUE(status.ok()) << status.message();
  if (!status.ok()) return {};
  return {
      {result.next.begin(), result.next.end()}, result.accepted.front(), {result.logits.begin(), result.logits.end()}};
}

TEST_P(Speculation, VerifyingFiveDraftedRowsIsFiveSingleSteps) {
  const auto engine = open_with(kExact, {"draft.use=ngram", "draft.k=5"});
  engine->load();
  Pipeline& pipeline = engine->pipeline();
  const size_t vocab = pipeline.model().vocab, prompt = 21;
  const auto start = [&] {
    Tokens text = request().tokens;
    pipeline.end_sequence(0);
    pipeline.start_sequence(0, 1, {});
    text.push_back(run(pipeline, rows_of(text, 0, prompt - 1)).next.front());
    return text;
  };
  Tokens text = start();
  std::vector<float> logits;
  for (int i = 0; i < 8; ++i) {
    const Chosen one = run(pipeline, rows_of(text, text.size() - 1, 0));
    text.push_back(one.next.front());
    if (i < 6) logits.insert(logits.end(), one.logits.begin(), one.logits.end());
  }
  // A step has the token after the prompt, and five drafts: right ones, or wrong from place `wrong` on.
  for (const size_t wrong : {size_t{5}, size_t{0}, size_t{3}}) {
    Tokens drafted = start();
    ASSERT_EQ(drafted.back(), text[prompt]);
    drafted.assign(text.begin(), text.begin() + prompt + 6);
    for (size_t i = wrong; i < 5; ++i) drafted[prompt + 1 + i] = (drafted[prompt + 1 + i] + 1) % 200;
    const Chosen all = run(pipeline, rows_of(drafted, prompt, 0));
    const size_t good = wrong + 1;
    EXPECT_EQ(all.accepted, static_cast<int32_t>(good));
    ASSERT_EQ(all.next.size(), 6u);
    ASSERT_EQ(all.logits.size(), logits.size());
    for (size_t i = 0; i < good; ++i) EXPECT_EQ(all.next[i], text[prompt + 1 + i]) << "row " << i;
    EXPECT_TRUE(
        std::equal(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(good * vocab), all.logits.begin()))
        << "not the bits of single steps, wrong from draft " << wrong << " on";
    // Drafts that were rejected leave no trace.
    pipeline.truncate(0, static_cast<uint32_t>(prompt + good));
    const Tokens kept(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt + good + 1));
    EXPECT_EQ(run(pipeline, rows_of(kept, kept.size() - 1, 0)).next.front(), text[prompt + good + 1]);
  }
}

INSTANTIATE_TEST_SUITE_P(On, Speculation, testing::Values("cpu", "cuda"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tenon::test
