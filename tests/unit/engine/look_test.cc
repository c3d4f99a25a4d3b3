// What modules leave is held against what is known of it otherwise. This is compiled for the CPU here and for a GPU in
// tests/cuda (TENON_TEST_DEVICE).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "on_a_device.h"
#include "support/pipelines.h"

namespace tenon::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// This has every result that a look was given, step by step.
struct Seen {
  struct Rows {
    uint32_t rows, columns;
    std::vector<float> values;
    std::string component;
  };
  std::map<std::string, std::vector<Rows>> by_path;

  Pipeline::Look look() {
    return [this](const Pipeline::ModuleResult& r) {
      by_path[std::string(r.path)].push_back(
          {r.rows, r.columns, {r.values.begin(), r.values.end()}, std::string(r.component)});
    };
  }
};

class LookAt : public OnADevice {
 protected:
  static std::unique_ptr<Engine> open_tiny(const Settings& more = {}) {
    return open(kTiny, kDevice, with(kExact, more));
  }
  static std::unique_ptr<Engine> open_with_all_rows(const Settings& more = {}) {
    EngineOptions options;
    options.all_rows = true;
    return open_with(std::move(options), kTiny, kDevice, with(kExact, more));
  }
};

std::vector<float> weight(const Engine& engine, const char* name) {
  const WeightTensor& t = *engine.weights().find(name);
  EXPECT_EQ(t.format, TENON_F32);
  std::vector<float> values(t.bytes / sizeof(float));
  engine.weights().read(t, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_F(LookAt, GivesTheRowsOfTheEmbeddingAsTheFileHasThem) {
  const auto engine = open_tiny();
  Seen seen;
  engine->pipeline().look_at({"embedding"}, seen.look());
  const Request prompt = request(3);
  const Result result = engine->generate(prompt);
  const std::vector<float> table = weight(*engine, "model.embed_tokens.weight");
  const std::vector<Seen::Rows>& steps = seen.by_path["embedding"];
  ASSERT_EQ(steps.size(), 3U);
  std::vector<int32_t> tokens = prompt.tokens;
  for (const Seen::Rows& step : steps) {
    ASSERT_EQ(step.rows, tokens.size());
    ASSERT_EQ(step.values.size(), size_t{step.rows} * step.columns);
    for (size_t row = 0; row < tokens.size(); ++row) {
      const size_t columns = step.columns;
      const auto expected = table.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(tokens[row]) * columns);
      const auto found = step.values.begin() + static_cast<ptrdiff_t>(row * columns);
      EXPECT_TRUE(std::equal(found, found + step.columns, expected)) << "row " << row;
    }
    tokens = {result.tokens[static_cast<size_t>(&step - steps.data())]};
  }
}

TEST_F(LookAt, GivesTheLogitsOfTheRowThatIsWantedAndChangesNoToken) {
  const Request prompt = request(8);
  const std::vector<int32_t> plain = open_tiny()->generate(prompt).tokens;
  const auto engine = open_tiny({"scheduler.prefill_rows=8"});
  Seen seen;
  engine->pipeline().look_at({"lm_head"}, seen.look());
  EXPECT_EQ(engine->generate(prompt).tokens, plain);
  const std::vector<Seen::Rows>& steps = seen.by_path["lm_head"];
  ASSERT_EQ(steps.size(), plain.size());  // the first pieces of the prompt want no logits
  for (size_t i = 0; i < steps.size(); ++i) {
    ASSERT_EQ(steps[i].rows, 1U);
    const auto best = std::max_element(steps[i].values.begin(), steps[i].values.end());
    EXPECT_EQ(best - steps[i].values.begin(), plain[i]);
  }
}

// The prompt has 21 tokens: one step of 21 rows, or three of 8, 8 and 5.
TEST_F(LookAt, GivesEachPieceOfAPromptByItselfAsTheWholePrompt) {
  Seen whole, pieces;
  const Request prompt = request(1);
  const auto one = open_with_all_rows(), three = open_with_all_rows({"scheduler.prefill_rows=8"});
  one->pipeline().look_at({"layers.1.mlp.down"}, whole.look());
  three->pipeline().look_at({"layers.1.mlp.down"}, pieces.look());
  EXPECT_EQ(one->generate(prompt).tokens, three->generate(prompt).tokens);
  const std::vector<Seen::Rows>& in_one = whole.by_path["layers.1.mlp.down"];
  ASSERT_EQ(in_one.size(), 1U);
  ASSERT_EQ(in_one.front().rows, prompt.tokens.size());
  EXPECT_EQ(in_one.front().component, "quantization.none");
  std::vector<float> joined;
  for (const Seen::Rows& piece : pieces.by_path["layers.1.mlp.down"]) {
    joined.insert(joined.end(), piece.values.begin(), piece.values.end());
  }
  const float near = kDevice == "cpu" ? 2e-5F : 2e-3F;  // a GPU has another kernel for few rows
  EXPECT_THAT(joined, ::testing::Pointwise(::testing::FloatNear(near), in_one.front().values));
}

// Both engines compute the same rows, but one leaves out those that nobody reads.
TEST_F(LookAt, SeesOnlyTheRowThatIsWantedAfterTheLastAttention) {
  const std::vector<std::string> paths = {"layers.0.mlp.down", "layers.1.attention", "layers.1.attention.o",
                                          "layers.1.mlp.down", "out_rows"};
  Seen wanted, all;
  const auto engine = open_tiny(), whole = open_with_all_rows();
  engine->pipeline().look_at(paths, wanted.look());
  whole->pipeline().look_at(paths, all.look());
  const Request prompt = request(1);
  EXPECT_EQ(engine->generate(prompt).tokens, whole->generate(prompt).tokens);
  const auto rows = static_cast<uint32_t>(prompt.tokens.size());
  for (const std::string& path : paths) {
    ASSERT_EQ(wanted.by_path[path].size(), 1U) << path;
    ASSERT_EQ(all.by_path[path].size(), 1U) << path;
    const Seen::Rows &some = wanted.by_path[path].front(), &every = all.by_path[path].front();
    EXPECT_EQ(some.rows, path == "layers.0.mlp.down" ? rows : 1) << path;
    if (path == "out_rows") continue;  // what is picked is another tensor
    ASSERT_EQ(every.rows, rows) << path;
    const std::vector<float> last(every.values.end() - static_cast<ptrdiff_t>(some.values.size()), every.values.end());
    const float near = kDevice == "cpu" ? 2e-5F : 2e-3F;  // a GPU has another kernel for few rows
    EXPECT_THAT(some.values, ::testing::Pointwise(::testing::FloatNear(near), last)) << path;
  }
}

TEST_F(LookAt, NamesWhatThereIs) {
  const auto engine = open_tiny();
  const auto message = [&](const std::string& path) -> std::string {
    try {
      engine->pipeline().look_at({path}, [](const Pipeline::ModuleResult&) {});
      return "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      return e.what();
    }
  };
  EXPECT_THAT(message("layers.1.mlp.dwon"), AllOf(HasSubstr("did you mean \"layers.1.mlp.down\"?"),
                                                  HasSubstr("layers.1 has attention.qkv, attention, attention.o")));
  EXPECT_THAT(message("layers.9.mlp.down"),
              AllOf(HasSubstr("there are embedding"), HasSubstr("of the 2 layers"), HasSubstr("lm_head")));
}

TEST_F(LookAt, EndsWhereNoPathsAreGiven) {
  const auto engine = open_tiny();
  Seen seen;
  engine->pipeline().look_at({"lm_head"}, seen.look());
  engine->generate(request(2));
  engine->pipeline().look_at({}, seen.look());
  engine->generate(request(2));
  EXPECT_EQ(seen.by_path["lm_head"].size(), 2U);
}

}  // namespace
}  // namespace tenon::test
