// Sequences are saved, and requests begin from them: their text is what it is without. This is compiled for the CPU
// here and for a GPU in tests/cuda (TENON_TEST_DEVICE).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "on_a_device.h"
#include "support/pipelines.h"
#include "temp_folder.h"

namespace tenon::test {
namespace {

using ::testing::HasSubstr;
using Saved = std::shared_ptr<const SavedSequence>;

// Steps have so few rows that a row's bits do not depend on the rows beside it, on a GPU either. The penalty counts the
// tokens of the prompt, those that are loaded too.
const Settings kPipeline = {"quantization.use=none", "quantization.dtype=fp32", "kv_cache.capacity=192",
                            "scheduler.prefill_rows=8",
                            "sampler.chain=[{use=\"repetition_penalty\", penalty=1.3}, {use=\"top_k\", k=20}]"};

struct Cache {
  const char* name;
  Settings settings;
  bool keeps_every_token = true;
};
void PrintTo(const Cache& cache, std::ostream* out) {
  *out << cache.name;
}

const Cache kStatic{"static", {"kv_cache.use=static"}};
const std::vector<Cache> kCaches = {
    kStatic,
    {"fp32", {"kv_cache.use=static", "kv_cache.format=fp32"}},
    {"int8", {"kv_cache.use=int8"}},
    {"int4", {"kv_cache.use=int4"}},
    {"paged", {"kv_cache.use=paged"}},
    {"paged_int8", {"kv_cache.use=paged", "kv_cache.format=int8", "kv_cache.reuse=false"}},
    {"sink_window", {"kv_cache.use=sink_window", "kv_cache.sinks=2", "kv_cache.window=30"}, false},
    {"original", {"kv_cache.use=sink_window", "kv_cache.window=30", "kv_cache.positions=original"}, false}};

// These caches have dropped most of a text of 100 tokens.
const std::vector<Cache> kEvicting = {
    {"h2o", {"kv_cache.use=h2o", "kv_cache.heavy=16", "kv_cache.recent=8"}, false},
    {"h2o_fp32", {"kv_cache.use=h2o", "kv_cache.heavy=20", "kv_cache.recent=4", "kv_cache.format=fp32"}, false},
    {"snapkv",
     {"kv_cache.use=snapkv", "kv_cache.prompt=20", "kv_cache.room=12", "kv_cache.observe=8", "kv_cache.pool=5"},
     false}};

std::unique_ptr<Engine> open_pipeline(const Settings& more, bool sessions = true) {
  EngineOptions options;
  options.load_sessions = options.save_sessions = sessions;
  return open_with(std::move(options), kTiny, kDevice, with(kPipeline, more));
}

Request prompt(size_t tokens, uint32_t new_tokens = 24, int32_t seed = 0) {
  Request r;
  for (size_t i = 0; i < tokens; ++i) r.tokens.push_back((static_cast<int32_t>(i) * 37 + 5 + seed) % 200 + 3);
  r.max_new_tokens = new_tokens;
  r.ignore_end = true;
  r.seed = 5;
  return r;
}

Request saving(Request r) {
  r.save = true;
  return r;
}
Request from(const Saved& saved, Request r) {
  r.begin_from = saved;
  return r;
}

Saved through_a_file(const SavedSequence& saved) {
  const TempFolder folder;
  saved.write(folder.file("session"), false);
  return SavedSequence::read(folder.file("session"));
}

class Sessions : public OnADevice {};
class SessionsOfCaches : public OnADevice, public ::testing::WithParamInterface<Cache> {};
INSTANTIATE_TEST_SUITE_P(All, SessionsOfCaches, ::testing::ValuesIn(kCaches),
                         [](const auto& param) { return std::string(param.param.name); });
// The cells of such a cache depend on the steps in which a text came, so the text is the same where those are.
class SessionsOfEvictingCaches : public SessionsOfCaches {};
INSTANTIATE_TEST_SUITE_P(All, SessionsOfEvictingCaches, ::testing::ValuesIn(kEvicting),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(SessionsOfCaches, ARequestThatBeginsFromItsPromptHasTheSameText) {
  const Request r = prompt(70);
  const Result plain = open_pipeline(GetParam().settings, false)->generate(r);
  const Result computed = open_pipeline(GetParam().settings)->generate(saving(prompt(70, 0)));
  EXPECT_TRUE(computed.tokens.empty());
  ASSERT_NE(computed.saved, nullptr);
  EXPECT_EQ(computed.saved->tokens().size(), 70U);
  const auto engine = open_pipeline(GetParam().settings);
  RunStats stats;
  const Result loaded = engine->generate(from(through_a_file(*computed.saved), r), &stats);
  EXPECT_EQ(loaded.tokens, plain.tokens);
  EXPECT_EQ(loaded.reused, 69U);
  EXPECT_EQ(stats.prompt_tokens, 1U);
  EXPECT_EQ(stats.reused, 69U);
}

TEST_P(SessionsOfCaches, ATextGoesOnFromWhereItEnded) {
  const auto engine = open_pipeline(GetParam().settings);
  const Result first = engine->generate(saving(prompt(40)));
  ASSERT_NE(first.saved, nullptr);
  EXPECT_EQ(first.saved->tokens().size(), 40U + 23U) << "the newest token is not in the cache";
  Request more = prompt(40, 20);
  more.tokens.insert(more.tokens.end(), first.tokens.begin(), first.tokens.end());
  more.tokens.insert(more.tokens.end(), {7, 8, 9});
  const Result plain = open_pipeline(GetParam().settings, false)->generate(more);
  const auto other = open_pipeline(GetParam().settings);
  const Result loaded = other->generate(from(through_a_file(*first.saved), more));
  EXPECT_EQ(loaded.tokens, plain.tokens);
  EXPECT_EQ(loaded.reused, 63U);
}

TEST_P(SessionsOfCaches, APromptMayPartFromTheSessionWhereTheCacheKeepsEveryToken) {
  const auto engine = open_pipeline(GetParam().settings);
  const Saved saved = engine->generate(saving(prompt(60, 8))).saved;
  Request other = prompt(33);
  other.tokens.insert(other.tokens.end(), {7, 8, 9});
  if (GetParam().keeps_every_token) {
    const Result loaded = engine->generate(from(saved, other));
    EXPECT_EQ(loaded.reused, 33U);
    EXPECT_EQ(loaded.tokens, open_pipeline(GetParam().settings, false)->generate(other).tokens);
  } else {
    try {
      engine->generate(from(saved, other));
      FAIL() << "the ring has dropped what the prompt sees";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kRequest);
      EXPECT_THAT(error.what(), HasSubstr("the session has 67 tokens, of which the prompt has the first 33"));
    }
    EXPECT_EQ(engine->generate(other).tokens.size(), 24U) << "the engine is as good as before";
  }
}

TEST_P(SessionsOfEvictingCaches, APromptGoesOnAsIfItHadNotBeenSaved) {
  const Request whole = prompt(100);
  const Saved saved = open_pipeline(GetParam().settings)->generate(saving(prompt(64, 0))).saved;
  ASSERT_NE(saved, nullptr);
  const Result loaded = open_pipeline(GetParam().settings)->generate(from(through_a_file(*saved), whole));
  EXPECT_EQ(loaded.reused, 64U);
  EXPECT_EQ(loaded.tokens, open_pipeline(GetParam().settings, false)->generate(whole).tokens);
}

TEST_P(SessionsOfEvictingCaches, ATextGoesOnAsIfItHadNotBeenSaved) {
  const Settings greedy = with(GetParam().settings, {"sampler.chain=[]", "sampler.select=greedy"});
  const std::vector<int32_t> whole = open_pipeline(greedy, false)->generate(prompt(100, 60)).tokens;
  const Saved saved = open_pipeline(greedy)->generate(saving(prompt(100, 20))).saved;
  ASSERT_NE(saved, nullptr);
  // The copy is not in a GPU's memory, which its plan is of.
  if (kDevice != "cuda") {
    EXPECT_LE(saved->cells().size(), open_pipeline(greedy)->pipeline().plan().session_copy + 256);
  }
  Request more = prompt(100, 40);
  more.tokens.insert(more.tokens.end(), whole.begin(), whole.begin() + 20);
  const Result loaded = open_pipeline(greedy)->generate(from(through_a_file(*saved), more));
  EXPECT_EQ(loaded.reused, 119U) << "the newest token is not in the cache";
  EXPECT_EQ(loaded.tokens, std::vector<int32_t>(whole.begin() + 20, whole.end()));
}

TEST_P(SessionsOfEvictingCaches, ThePromptOfTheSessionItselfIsTakenAndOneThatPartsFromItIsRefused) {
  const auto engine = open_pipeline(GetParam().settings);
  const Saved saved = engine->generate(saving(prompt(100, 0))).saved;
  EXPECT_EQ(engine->generate(from(saved, prompt(100, 8))).reused, 99U);
  Request other = prompt(33);
  other.tokens.push_back(7);
  const Result refused = engine->generate(std::vector<Request>{from(saved, other)}).front();
  ASSERT_NE(refused.error, nullptr);
  EXPECT_EQ(engine->generate(other).tokens.size(), 24U) << "the engine is as good as before";
}

TEST_P(SessionsOfEvictingCaches, AnotherRuleAndFewerRowsAreRefused) {
  const Saved saved = open_pipeline(GetParam().settings)->generate(saving(prompt(100, 0))).saved;
  const auto problem = [&](const Settings& more) {
    const auto engine = open_pipeline(with(GetParam().settings, more));
    try {
      engine->generate(from(saved, prompt(101, 4)));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const bool h2o = GetParam().settings.front() == "kv_cache.use=h2o";
  EXPECT_THAT(problem({h2o ? "kv_cache.heavy=17" : "kv_cache.pool=3"}), HasSubstr("another rule of what it keeps"));
  EXPECT_THAT(problem({"kv_cache.format=bf16"}), HasSubstr("the cache stores bf16"));
  EXPECT_EQ(problem({"scheduler.prefill_rows=32"}), "");
}

void expect_made_up_cells_do_no_harm(const Settings& settings) {
  const auto engine = open_pipeline(settings);
  const Saved saved = engine->generate(saving(prompt(40, 0))).saved;
  const std::vector<SessionFact> facts(saved->facts().begin(), saved->facts().end());
  const std::vector<int32_t> tokens(saved->tokens().begin(), saved->tokens().end());
  const std::vector<std::byte> cells(saved->cells().begin(), saved->cells().end());
  // These stand before the keys and values: sizes, formats and shapes, each of which matters.
  constexpr size_t kHead = 56;
  std::vector<std::vector<std::byte>> altered;
  for (size_t i = 0; i < kHead; ++i) {
    altered.push_back(cells);
    altered.back()[i] ^= std::byte{0x41};
  }
  for (const size_t size : {size_t{0}, size_t{7}, size_t{8}, kHead, cells.size() - 1}) {
    altered.emplace_back(cells.begin(), cells.begin() + static_cast<std::ptrdiff_t>(size));
  }
  const auto outcome = [&](std::vector<int32_t> claimed, std::vector<std::byte> bytes) {
    const auto made_up = std::make_shared<SavedSequence>(facts, std::move(claimed), std::move(bytes));
    Request r = prompt(60, 2);
    const Result result = engine->generate(std::vector<Request>{from(made_up, r)}).front();
    return result.error != nullptr;
  };
  for (size_t i = 0; i < altered.size(); ++i) EXPECT_TRUE(outcome(tokens, altered[i])) << i;
  std::vector<int32_t> fewer(tokens.begin(), tokens.end() - 1);
  EXPECT_TRUE(outcome(fewer, cells)) << "the cells are those of another number of tokens";
  std::vector<std::byte> noise = cells;
  std::mt19937 random(3);
  std::generate(noise.begin() + kHead, noise.end(), [&] { return static_cast<std::byte>(random() % 0x3c); });
  outcome(tokens, noise);
  const Request after = prompt(30, 8, 11);
  EXPECT_EQ(engine->generate(after).tokens, open_pipeline(settings, false)->generate(after).tokens);
}

TEST_P(SessionsOfCaches, CellsThatAreMadeUpAreRefusedOrHarmless) {
  expect_made_up_cells_do_no_harm(GetParam().settings);
}
TEST_P(SessionsOfEvictingCaches, CellsThatAreMadeUpAreRefusedOrHarmless) {
  expect_made_up_cells_do_no_harm(GetParam().settings);
}

TEST_F(Sessions, DraftsGoOnAsWithout) {
  for (const Settings& drafts : {Settings{"draft.use=ngram"}, Settings{"draft.pipeline.tokens=3"}}) {
    const Settings greedy = with(drafts, {"sampler.chain=[]", "sampler.select=greedy"});
    const Request r = prompt(50);
    const Result plain = open_pipeline(greedy, false)->generate(r);
    const Saved saved = open_pipeline(greedy)->generate(saving(prompt(50, 5))).saved;
    const Result loaded = open_pipeline(greedy)->generate(from(saved, r));
    EXPECT_EQ(loaded.tokens, plain.tokens) << drafts.front();
    EXPECT_EQ(loaded.reused, 49U) << drafts.front();
  }
}

TEST_F(Sessions, SeveralRequestsBeginFromOneAtOnce) {
  const Settings many = {"kv_cache.use=paged", "scheduler.use=continuous", "scheduler.sequences=3",
                         "kv_cache.pool=256"};
  const Saved saved = open_pipeline(many)->generate(saving(prompt(50, 0))).saved;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 5; ++i) {
    requests.push_back(from(saved, prompt(50, 40)));
    requests.back().tokens.insert(requests.back().tokens.end(), {i + 3, i + 9});
    requests.back().seed = static_cast<uint64_t>(i);
  }
  const std::vector<Result> results = open_pipeline(many)->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request plain = requests[i];
    plain.begin_from = nullptr;
    EXPECT_EQ(results[i].tokens, open_pipeline(many, false)->generate(plain).tokens) << i;
  }
}

TEST_F(Sessions, ACancelledRequestLeavesWhatItHas) {
  const auto engine = open_pipeline(kStatic.settings);
  std::stop_source stop;
  Request r = saving(prompt(50));
  r.on_prompt = [&](uint32_t done, uint32_t) {
    if (done >= 24) stop.request_stop();
  };
  r.cancel = stop.get_token();
  const Result result = engine->generate(r);
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  ASSERT_NE(result.saved, nullptr);
  EXPECT_EQ(result.saved->tokens().size(), 24U);
  EXPECT_EQ(engine->generate(from(result.saved, prompt(50))).tokens,
            open_pipeline(kStatic.settings, false)->generate(prompt(50)).tokens);
}

std::string problem(const Settings& settings, const Saved& saved, const Request& r) {
  try {
    open_pipeline(settings)->generate(from(saved, r));
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRequest) << error.what();
    return error.what();
  }
}

TEST_F(Sessions, AnotherPipelineIsRefusedAndNamed) {
  const Saved saved = open_pipeline(kStatic.settings)->generate(saving(prompt(40, 0))).saved;
  const Request r = prompt(60);
  EXPECT_EQ(problem(kStatic.settings, saved, r), "");
  EXPECT_EQ(problem(with(kStatic.settings, {"kv_cache.capacity=100"}), saved, r), "");
  EXPECT_THAT(problem({"kv_cache.use=int8"}, saved, r),
              HasSubstr("kv_cache: the session was saved with kv_cache.static"));
  EXPECT_THAT(problem({"kv_cache.format=fp32"}, saved, r),
              HasSubstr("the sequence was exported as f16, the cache stores f32"));
  EXPECT_THAT(problem({"quantization.dtype=fp16"}, saved, r), HasSubstr("dtype = \"fp32\""));
  EXPECT_THAT(problem({"model.layers=1"}, saved, r), HasSubstr("1 layers"));
  EXPECT_THAT(problem({"kv_cache.capacity=32"}, saved, prompt(20)),
              HasSubstr("the session has 40 tokens; the cache holds 32; raise kv_cache.capacity"));
  EXPECT_THAT(problem({"draft.pipeline.tokens=3", "sampler.chain=[]", "sampler.select=greedy"}, saved, r),
              HasSubstr("draft/model: the session was saved with none"));
  EXPECT_THAT(problem({}, saved, prompt(60, 4, 1)), HasSubstr("the prompt does not begin as the session"));
}

TEST_F(Sessions, AnotherModelOfTheSameShapeIsRefused) {
  const auto other = [](const std::string& model) {
    EngineOptions options;
    options.load_sessions = options.save_sessions = true;
    return open_with(std::move(options), model, kDevice, kPipeline);
  };
  const Saved saved = other("tiny-linear-scaling")->generate(saving(prompt(20, 0))).saved;
  EXPECT_THAT(problem({}, saved, prompt(30)), HasSubstr("model: the session was saved with llama"));
}

TEST_F(Sessions, AnEngineHasToBeOpenedForThem) {
  const auto engine = open_pipeline({}, false);
  EXPECT_THROW(engine->generate(saving(prompt(10))), Error);
  const Saved saved = open_pipeline({})->generate(saving(prompt(10))).saved;
  EXPECT_THROW(engine->generate(from(saved, prompt(10))), Error);
}

TEST_F(Sessions, ThePlanHasTheCopy) {
  if (kDevice == "cuda") GTEST_SKIP() << "the copy is not in the device's memory";
  const auto engine = open_pipeline(kStatic.settings);
  const uint64_t copy = engine->pipeline().plan().session_copy;
  EXPECT_EQ(copy, engine->pipeline().kv_used_bytes(192));
  const Saved saved = engine->generate(saving(prompt(191, 1))).saved;
  EXPECT_EQ(saved->tokens().size(), 191U);
  EXPECT_LE(saved->cells().size(), copy + 256) << "with what stands before the cells";
  EXPECT_EQ(open_pipeline(kStatic.settings, false)->pipeline().plan().session_copy, 0U);
}

}  // namespace
}  // namespace tenon::test
