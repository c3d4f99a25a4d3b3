// An embedding is a request that ends after its prompt, with what its final hidden states came to. tests/golden holds
// it against transformers. This is compiled for the CPU here and for a GPU in tests/cuda (TENON_TEST_DEVICE).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "on_a_device.h"
#include "support/pipelines.h"
#include "support/spoilt_model.h"

namespace tenon::test {
namespace {

using ::testing::HasSubstr;

// A row's bits do not depend on the rows beside it: on the CPU whatever their count, on a GPU up to some count.
const float kTolerance = kDevice == "cpu" ? 0 : 1e-3F;

class Embeddings : public OnADevice {
 protected:
  static std::unique_ptr<Engine> open_tiny(const Settings& more = {}) {
    return open(kTiny, kDevice, with(with(kExact, {"pipeline.embeddings=true"}), more));
  }
};

const Settings kServes = {"kv_cache.use=paged", "scheduler.use=continuous", "scheduler.sequences=4"};

Request embed(Pooling pooling, uint32_t tokens = 60, int32_t seed = 0) {
  Request r;
  for (uint32_t i = 0; i < tokens; ++i) {
    r.tokens.push_back((static_cast<int32_t>(i) * 37 + 5 + seed) % 200 + 3);
  }
  r.embed = pooling;
  return r;
}

void expect_same(const std::vector<float>& found, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  float worst = 0, peak = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(found[i] - expected[i]));
    peak = std::max(peak, std::abs(expected[i]));
  }
  EXPECT_GT(peak, 0.1F) << what;
  EXPECT_LE(worst, kTolerance * peak) << what;
}

TEST_F(Embeddings, EndAfterThePromptWithAVectorOfTheModelsWidth) {
  const auto engine = open_tiny();
  const Result r = engine->generate(embed(Pooling::kMean));
  EXPECT_EQ(r.embedding.size(), engine->pipeline().model().width);
  EXPECT_EQ(r.prompt_tokens.size(), 60U);
  EXPECT_TRUE(r.tokens.empty() && r.text.empty());
  const Result one = engine->generate(embed(Pooling::kMean, 1)), last = engine->generate(embed(Pooling::kLast, 1));
  EXPECT_EQ(one.embedding, last.embedding) << "of one token the mean is the last";
  EXPECT_NE(engine->generate(embed(Pooling::kLast)).embedding, r.embedding);
  EXPECT_TRUE(engine->generate(request(3)).embedding.empty());
}

TEST_F(Embeddings, AreTheSameAloneInPiecesAndAmongOthers) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    const std::vector<float> alone = open_tiny()->generate(embed(pooling)).embedding;
    for (const char* rows : {"1", "7", "16", "59", "60"}) {
      const auto engine = open_tiny({std::string("scheduler.prefill_rows=") + rows});
      expect_same(engine->generate(embed(pooling)).embedding, alone, std::string("in steps of rows: ") + rows);
    }
    const auto engine = open_tiny(with(kServes, {"scheduler.prefill_rows=24", "scheduler.budget_rows=9"}));
    const std::vector<Request> others = {request(20), embed(pooling, 60, 1), embed(pooling),
                                         request(5),  embed(pooling, 3),     embed(pooling)};
    const std::vector<Result> results = engine->generate(others);
    expect_same(results[2].embedding, alone, "among others");
    expect_same(results[5].embedding, alone, "later among others");
    expect_same(results[1].embedding, open_tiny()->generate(others[1]).embedding, "another text");
    expect_same(results[4].embedding, open_tiny()->generate(others[4]).embedding, "a short text");
    EXPECT_EQ(results[0].tokens, open_tiny()->generate(others[0]).tokens) << "who generates beside";
  }
}

TEST_F(Embeddings, AMeanTakesAllRowsAndALastOneWhatIsThere) {
  const auto engine = open_tiny(kServes);
  const Result first = engine->generate(embed(Pooling::kMean)), mean = engine->generate(embed(Pooling::kMean)),
               last = engine->generate(embed(Pooling::kLast));
  EXPECT_EQ(mean.reused, 0U);
  EXPECT_EQ(last.reused, 48U) << "three pages of 16 tokens";
  expect_same(mean.embedding, first.embedding, "once more");
  expect_same(last.embedding, open_tiny()->generate(embed(Pooling::kLast)).embedding, "after what was found");
  Request goes_on = embed(Pooling::kNone);
  goes_on.max_new_tokens = 2;
  EXPECT_EQ(engine->generate(goes_on).reused, 48U) << "an embedding's prompt is there for others";
}

TEST_F(Embeddings, AreTheSameAfterPreemption) {
  const auto engine = open_tiny({"scheduler.use=continuous", "scheduler.sequences=1", "scheduler.prefill_rows=16"});
  const std::vector<float> alone = engine->generate(embed(Pooling::kMean)).embedding;
  const Ticket ticket = engine->submit(embed(Pooling::kMean));
  engine->step();
  engine->step();
  Request urgent = request(4);
  urgent.priority = 1;
  const Ticket other = engine->submit(urgent);
  while (engine->step()) {
  }
  EXPECT_EQ(engine->totals().preempted, 1U);
  EXPECT_EQ(engine->take(other)->tokens.size(), 4U);
  expect_same(engine->take(ticket)->embedding, alone, "computed anew");
}

TEST_F(Embeddings, AreTheSameBesideDrafts) {
  const std::vector<float> alone = open_tiny()->generate(embed(Pooling::kMean)).embedding;
  const auto engine = open_tiny({"draft.use=ngram", "draft.k=3", "scheduler.use=lockstep", "scheduler.sequences=2"});
  const std::vector<Result> results = engine->generate(std::vector{request(30), embed(Pooling::kMean)});
  expect_same(results[1].embedding, alone, "beside drafts");
  EXPECT_EQ(results[0].tokens, open_tiny()->generate(request(30)).tokens);
}

TEST_F(Embeddings, CostRequestsThatGenerateNothing) {
  const auto with_them = open_tiny(kServes);
  Settings plain = with(kExact, kServes);
  const auto without = open(kTiny, kDevice, plain);
  const auto ops_of = [](const Program& p) {
    std::vector<std::string> ops;
    for (const ProgramOp& op : p.ops()) ops.push_back(op.path + " " + op.component + "." + op.name);
    return ops;
  };
  const auto all = with_them->pipeline().programs(), generate = without->pipeline().programs();
  ASSERT_GT(all.size(), generate.size());
  for (size_t i = 0; i < generate.size(); ++i) EXPECT_EQ(ops_of(*all[i]), ops_of(*generate[i]));
  for (size_t i = generate.size(); i < all.size(); ++i) {
    EXPECT_THAT(ops_of(*all[i]), ::testing::Contains("pool device." + kDevice + ".pool"));
  }
  const uint64_t bytes = uint64_t{4} * 2 * with_them->pipeline().model().width * sizeof(float);
  EXPECT_EQ(with_them->pipeline().plan().of(MemoryKind::kState),
            without->pipeline().plan().of(MemoryKind::kState) + align(bytes));
}

TEST_F(Embeddings, ThatAreNotFiniteAreAnErrorThatNamesTheWeight) {
  SpoiltModel model(root() / "tests/golden/data" / kTiny);
  model.set("model.layers.1.mlp.down_proj.weight", 7, std::numeric_limits<float>::quiet_NaN());
  const auto engine = open(model.path(), kDevice, with(kExact, {"pipeline.embeddings=true"}));
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    try {
      engine->generate(embed(pooling));
      ADD_FAILURE() << "it was given";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kNumbers);
      EXPECT_THAT(e.what(), HasSubstr("model.layers.1.mlp.down_proj.weight holds nan in row 0, column 7"));
    }
  }
}

TEST_F(Embeddings, AreRefusedWhereNobodyAskedForThem) {
  const auto engine = open(kTiny, kDevice, kExact);
  try {
    engine->generate(embed(Pooling::kMean));
    ADD_FAILURE() << "it was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kRequest);
    EXPECT_THAT(e.what(), HasSubstr("pipeline.embeddings = true"));
  }
  EXPECT_EQ(engine->generate(request(3)).tokens.size(), 3U);
}

}  // namespace
}  // namespace tenon::test
