// Numbers that are not finite end the request, and no other, with an error that says where they come from. This is
// compiled for the CPU here and for a GPU in tests/cuda (TENON_TEST_DEVICE).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "on_a_device.h"
#include "support/pipelines.h"
#include "support/spoilt_model.h"

namespace tenon::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinite = std::numeric_limits<float>::infinity();
constexpr int32_t kWidth = 64;

// Returns every way of running a step that the device has.
std::vector<Settings> modes() {
  std::vector<Settings> all = {{}, {"pipeline.execution=recorded"}, {"pipeline.execution=per_op"}};
  if (kDevice == "cpu") return {{"device.threads=1"}, {"device.threads=3"}};
  all.push_back({"pipeline.execution=graph"});
  return all;
}

class Finite : public OnADevice {
 protected:
  static std::filesystem::path tiny() { return root() / "tests/golden/data" / kTiny; }
  static std::unique_ptr<Engine> open_with(const std::filesystem::path& model, const Settings& more,
                                           uint32_t sequences = 0) {
    return open(model, kDevice, with(kExact, more), sequences);
  }
};

std::string message_of(const Result& result, ErrorCode code = ErrorCode::kNumbers) {
  if (!result.error) return "no error";
  try {
    std::rethrow_exception(result.error);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
}

Result run(Engine& engine, const Request& request) {
  return engine.generate(std::span(&request, 1)).front();
}

// Returns the error of a request that gets no token at all.
std::string error_of(Engine& engine, const Request& request = test::request()) {
  const Result r = run(engine, request);
  EXPECT_EQ(r.finish, FinishReason::kError);
  EXPECT_EQ(r.text, "");
  EXPECT_TRUE(r.tokens.empty() && r.logprobs.empty());
  return message_of(r);
}

struct Spoilt {
  const char *tensor, *path;
};

TEST_F(Finite, TheModuleIsNamedWhoseWeightIsNot) {
  const Spoilt kAll[] = {{"model.embed_tokens.weight", "embedding"},
                         {"model.layers.0.input_layernorm.weight", "layers.0.attention.qkv"},
                         {"model.layers.0.self_attn.v_proj.weight", "layers.0.attention.qkv"},
                         {"model.layers.1.self_attn.o_proj.weight", "layers.1.attention.o"},
                         {"model.layers.1.post_attention_layernorm.weight", "layers.1.mlp.gate_up"},
                         {"model.layers.1.mlp.down_proj.weight", "layers.1.mlp.down"},
                         {"model.norm.weight", "lm_head"},
                         {"lm_head.weight", "lm_head"}};
  for (const Spoilt& s : kAll) {
    SpoiltModel model(tiny());
    // This is the embedding's row of a token that the prompt has.
    const bool embedding = s.path == std::string("embedding");
    model.set(s.tensor, embedding ? static_cast<size_t>(request().tokens[2]) * kWidth + 7 : 7, kNan);
    for (const Settings& mode : modes()) {
      SCOPED_TRACE(std::string(s.tensor) + ", " + ::testing::PrintToString(mode));
      const auto engine = open_with(model.path(), mode);
      const std::string error = error_of(*engine);
      EXPECT_THAT(error, HasSubstr("the logits after 21 tokens are not finite"));
      EXPECT_THAT(error, HasSubstr(std::string(" is that of ") + s.path + " ("));
      EXPECT_THAT(error, HasSubstr(std::string(s.tensor) + " holds nan"));
      EXPECT_EQ(error_of(*engine), error) << "again";
    }
  }
}

struct SpoiltWith {
  std::string model, tensor;
  Settings set;
};

// A NaN that a weight makes stays NaN through a choice of experts, learned sinks, and caches of few bits.
TEST_F(Finite, NothingOnTheWayMakesANumberOfIt) {
  std::vector<SpoiltWith> all = {{"tiny-mixtral", "model.layers.0.block_sparse_moe.gate.weight", {}},
                                 {"tiny-qwen3-moe", "model.layers.1.mlp.gate.weight", {}},
                                 {"tiny-gpt-oss", "model.layers.0.mlp.router.bias", {}},
                                 {"tiny-gpt-oss", "model.layers.0.self_attn.k_proj.weight", {}},
                                 {"tiny-gpt-oss", "model.layers.1.input_layernorm.weight", {}}};
  for (const char* cache : {"int8", "fp8", "int4"}) {
    for (const char* tensor : {"model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight"}) {
      all.push_back({kTiny, tensor, {std::string("kv_cache.use=") + cache}});
    }
  }
  for (const SpoiltWith& s : all) {
    SCOPED_TRACE(s.model + " " + s.tensor + " " + ::testing::PrintToString(s.set));
    SpoiltModel model(root() / "tests/golden/data" / s.model);
    model.set(s.tensor, 0, kNan);
    // Its formats are not those of the other caches.
    Settings exact = kExact;
    if (!s.set.empty()) std::erase(exact, "kv_cache.format=fp32");
    EXPECT_THAT(error_of(*open(model.path(), kDevice, with(exact, s.set), 0)),
                HasSubstr(std::string(s.tensor) + " holds nan"));
  }
}

TEST_F(Finite, AnInfiniteLogitIsNoLogit) {
  SpoiltModel model(tiny());
  model.set("lm_head.weight", 9 * kWidth + 3, kInfinite);
  EXPECT_THAT(error_of(*open_with(model.path(), {})), HasSubstr("lm_head.weight holds inf in row 9, column 3"));
}

TEST_F(Finite, WithLogProbabilitiesAndOtherSamplersToo) {
  SpoiltModel model(tiny());
  model.set("model.layers.1.mlp.down_proj.weight", 7, kNan);
  const Settings chain = {
      "sampler.chain=[{use=\"repetition_penalty\"}, {use=\"temperature\"}, {use=\"top_k\"}, {use=\"top_p\"}]",
      "sampler.select=categorical"};
  for (const Settings& sampling : {Settings{}, chain}) {
    for (const bool logprobs : {false, true}) {
      Request r = request();
      r.logprobs = logprobs;
      r.top_logprobs = logprobs ? 3 : 0;
      EXPECT_THAT(error_of(*open_with(model.path(), sampling), r),
                  HasSubstr("model.layers.1.mlp.down_proj.weight holds nan in row 0, column 7"));
    }
  }
}

// The prompt takes several steps; what is wrong lies in one whose logits nobody wanted.
TEST_F(Finite, ATokenOfThePromptLongBeforeIsFound) {
  SpoiltModel model(tiny());
  const int32_t token = request().tokens[2];
  model.set("model.embed_tokens.weight", static_cast<size_t>(token * kWidth + 7), kNan);
  const std::string error = error_of(*open_with(model.path(), {"scheduler.prefill_rows=4"}));
  EXPECT_THAT(error,
              HasSubstr("embedding (quantization.none): nan at position 2 (token " + std::to_string(token) + ")"));
  EXPECT_THAT(error, HasSubstr("model.embed_tokens.weight holds nan in row " + std::to_string(token) + ", column 7"));
}

// Keys or values are such that f16 cannot hold them, in one step and over several.
TEST_F(Finite, TheFormatOfTheCacheIsNamed) {
  for (const char* what : {"k", "v"}) {
    SpoiltModel model(tiny());
    model.scale(std::string("model.layers.1.self_attn.") + what + "_proj.weight", 3e4f);
    for (const Settings& steps : {Settings{}, Settings{"scheduler.prefill_rows=4"}}) {
      Settings narrow = steps;
      narrow.emplace_back("kv_cache.format=fp16");
      for (const Settings& mode : modes()) {
        Settings all = narrow;
        all.insert(all.end(), mode.begin(), mode.end());
        SCOPED_TRACE(std::string(what) + ", " + ::testing::PrintToString(all));
        const std::string error = error_of(*open_with(model.path(), all));
        EXPECT_THAT(error, HasSubstr("layers.1.attention (attention.flash)"));
        EXPECT_THAT(error, HasSubstr(std::string("kv_cache.static keeps ") + (what[0] == 'k' ? "keys" : "values") +
                                     " as f16, up to 65504, and the largest is "));
        EXPECT_THAT(error, HasSubstr("kv_cache.format = \"fp32\" would hold it"));
      }
      EXPECT_EQ(message_of(run(*open_with(model.path(), steps), request())), "no error");
    }
  }
}

TEST_F(Finite, SoIsThatOfScales) {
  SpoiltModel model(tiny());
  model.scale("model.layers.0.self_attn.v_proj.weight", 4e6f);
  const auto narrow = open_with(model.path(), {"kv_cache.use=int8", "kv_cache.format=fp16_scales"});
  EXPECT_THAT(error_of(*narrow), AllOf(HasSubstr("kv_cache.int8 keeps values as i8, up to "),
                                       HasSubstr("kv_cache.format = \"fp32_scales\" would hold it")));
}

TEST_F(Finite, InABatchOnlyThatRequestEnds) {
  SpoiltModel model(tiny());
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4; ++i) {
    Request r{.tokens = {}, .max_new_tokens = 24, .ignore_end = true};
    for (int32_t t = 0; t < 6 + 3 * i; ++t) r.tokens.push_back((t * 29 + i * 11) % 120 + 3);
    requests.push_back(r);
  }
  constexpr int32_t kSpoilt = 250;
  requests[1].tokens.push_back(kSpoilt), requests[1].tokens.push_back(5);
  model.set("model.embed_tokens.weight", static_cast<size_t>(kSpoilt) * kWidth, kNan);
  for (const char* scheduler : {"lockstep", "continuous"}) {
    for (const Settings& mode : modes()) {
      SCOPED_TRACE(std::string(scheduler) + ", " + ::testing::PrintToString(mode));
      Settings all = mode;
      all.push_back(std::string("scheduler.use=") + scheduler);
      const auto engine = open_with(model.path(), all, 4), alone = open_with(model.path(), mode);
      for (int round = 0; round < 2; ++round) {
        const std::vector<Result> results = engine->generate(requests);
        for (size_t i = 0; i < requests.size(); ++i) {
          const Result expected = run(*alone, requests[i]);
          EXPECT_EQ(message_of(results[i]), message_of(expected)) << i;
          EXPECT_EQ(results[i].tokens, expected.tokens) << i;
          EXPECT_EQ(results[i].text, expected.text) << i;
          EXPECT_EQ(expected.error != nullptr, i == 1);
        }
      }
    }
  }
}

// A text goes well until the model has chosen a token that it cannot embed. What came before stays as it is.
class InTheMiddle : public Finite {
 protected:
  void SetUp() override {
    Finite::SetUp();
    if (IsSkipped()) return;
    clean_ = run(*open_with(tiny(), {}), long_request());
    const std::vector<int32_t>& t = clean_.tokens;
    for (at_ = 6; at_ < t.size(); ++at_) {
      const auto end = t.begin() + static_cast<std::ptrdiff_t>(at_);
      const std::vector<int32_t> prompt = long_request().tokens;
      if (std::find(t.begin(), end, *end) == end && std::find(prompt.begin(), prompt.end(), *end) == prompt.end())
        break;
    }
    ASSERT_LT(at_ + 2, t.size());
    model_.set("model.embed_tokens.weight", static_cast<size_t>(t[at_]) * kWidth + 1, kNan);
  }
  static Request long_request() { return request(80); }
  void expect_the_beginning(const Result& r) const {
    const auto length = static_cast<std::ptrdiff_t>(at_) + 1;
    EXPECT_EQ(r.tokens, std::vector<int32_t>(clean_.tokens.begin(), clean_.tokens.begin() + length));
    EXPECT_THAT(message_of(r),
                AllOf(HasSubstr("the logits after " + std::to_string(21 + length) + " tokens"),
                      HasSubstr("embedding (quantization.none): nan at position " + std::to_string(20 + length)),
                      HasSubstr("model.embed_tokens.weight holds nan")));
    EXPECT_LE(r.logprobs.size(), static_cast<size_t>(length));
  }

  SpoiltModel model_{tiny()};
  Result clean_;
  size_t at_ = 0;
};

TEST_F(InTheMiddle, TheTokensBeforeAreThere) {
  for (const Settings& mode : modes()) {
    for (const bool logprobs : {false, true}) {
      SCOPED_TRACE(::testing::PrintToString(mode));
      Request r = long_request();
      r.logprobs = logprobs;
      expect_the_beginning(run(*open_with(model_.path(), mode), r));
    }
  }
}

TEST_F(InTheMiddle, WithDraftsToo) {
  const Settings kDrafts[] = {{"draft.use=ngram", "draft.k=3"},
                              {"draft.pipeline.tokens=3"},
                              {"draft.pipeline.tokens=2", "draft.pipeline.model.layers=1"}};
  for (const Settings& draft : kDrafts) {
    for (const Settings& mode : modes()) {
      SCOPED_TRACE(::testing::PrintToString(draft) + ::testing::PrintToString(mode));
      Settings all = mode;
      all.insert(all.end(), draft.begin(), draft.end());
      const auto engine = open_with(model_.path(), all);
      expect_the_beginning(run(*engine, long_request()));
      expect_the_beginning(run(*engine, long_request()));
    }
  }
}

// A draft model whose own numbers are not finite proposes nothing of use, and changes no token.
TEST_F(Finite, ADraftModelsOwnNumbersDoNoHarm) {
  SpoiltModel model(tiny());
  model.set("model.norm.weight", 0, kNan);
  const Request r = request(24);
  const Result alone = run(*open_with(tiny(), {}), r);
  const Result drafted =
      run(*open_with(tiny(), {"draft.pipeline.tokens=3", "draft.pipeline.model.path=" + model.path().string()}), r);
  EXPECT_EQ(message_of(drafted), "no error");
  EXPECT_EQ(drafted.tokens, alone.tokens);
}

TEST_F(Finite, ATextIsNotScored) {
  SpoiltModel model(tiny());
  const std::vector<int32_t> tokens = request().tokens;
  model.set("model.embed_tokens.weight", static_cast<size_t>(tokens[9]) * kWidth, kNan);
  EngineOptions options;
  options.config = model.path();
  options.set = kExact;
  options.set.push_back("device.use=" + kDevice);
  options.plugin_dirs = {plugins()};
  options.score_rows = 4;
  const auto engine = Engine::open(options);
  uint32_t rows = 0;
  try {
    engine->score(tokens, 0, [&](uint32_t, std::span<const float>) { ++rows; });
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNumbers);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("the logits after 10 tokens"), HasSubstr("nan at position 9")));
  }
  EXPECT_EQ(rows, 9u);
}

}  // namespace
}  // namespace tenon::test
