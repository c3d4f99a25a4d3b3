// A component that leaves something wrong ends with an error that names it and says what, while the pipeline is made
// where that can be known, else in the step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../support/wrong_candidates.h"
#include "tenon/core/engine.h"

namespace tenon {
namespace {

using testing::HasSubstr;

const std::string kTiny = std::string(TENON_SOURCE_DIR) + "/tests/golden/data/tiny-gqa-untied";

std::unique_ptr<Engine> open(const std::string& bad, std::vector<std::string> set) {
  set.insert(set.begin(), {"kv_cache.capacity=256", "device.threads=1"});
  EngineOptions options;
  options.config = kTiny;
  options.set = std::move(set);
  options.plugin_dirs = {std::string(TENON_BAD_PLUGINS) + "/" + bad};
  return Engine::open(options);
}

// Returns the plugin error of opening the pipeline, or of its first tokens.
std::string error_of(const std::string& bad, const std::vector<std::string>& set) {
  std::unique_ptr<Engine> engine;
  try {
    engine = open(bad, set);
    engine->load();
    Request request{.tokens = {3, 4, 5, 4, 5}, .max_new_tokens = 8, .ignore_end = true};
    static_cast<void>(engine->generate(request));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kPlugin) << e.what();
    return std::string(engine ? "step: " : "plan: ") + e.what();
  }
  return "no error";
}

using test::Wrong;

class LeavesWrong : public testing::TestWithParam<Wrong> {};

TEST_P(LeavesWrong, IsAnErrorThatNamesTheSampler) {
  const std::string chain = std::string("sampler.chain=[{use = \"leaves_wrong\", what = \"") + GetParam().what + "\"}]";
  const std::string error = error_of("leaves_wrong", {chain});
  EXPECT_THAT(error, HasSubstr("plan: "));
  EXPECT_THAT(error, HasSubstr("sampler.leaves_wrong"));
  EXPECT_THAT(error, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, LeavesWrong,
    testing::Values(Wrong{"form", "leaves candidates of the form 7, which is neither DENSE nor SPARSE"},
                    Wrong{"cap", "leaves room for "}, Wrong{"no_tensor", "leaves logits that are no tensor"},
                    Wrong{"format", "leaves logits that are f16, not f32"},
                    Wrong{"shape", " elements; this step needs "},
                    Wrong{"unwritten", "leaves logits that no operation writes"},
                    Wrong{"input", "writes to the candidates that it was given"},
                    Wrong{"malformed", "asks for a malformed tensor (rank 2, format f32)"}),
    [](const auto& param_info) { return std::string(param_info.param.what); });

class LeavesWrongValues : public testing::TestWithParam<Wrong> {};

// This is known in a step alone, where it is left: not in the selector, which is sound.
TEST_P(LeavesWrongValues, IsAnErrorThatNamesTheSampler) {
  const std::string chain =
      std::string("sampler.chain=[{use = \"temperature\"}, {use = \"leaves_wrong_values\", what = \"") +
      GetParam().what + "\"}]";
  EXPECT_THAT(error_of("leaves_wrong_values", {chain}),
              HasSubstr(std::string("step: error: sampler: sampler.leaves_wrong_values failed in check: ") +
                        GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(All, LeavesWrongValues, testing::ValuesIn(test::kWrongCandidates),
                         [](const auto& param_info) { return std::string(param_info.param.what); });

TEST(ComponentErrors, ASamplerThatLeavesNothingWrong) {
  EXPECT_EQ(error_of("leaves_wrong_values", {"sampler.chain=[{use = \"leaves_wrong_values\"}]"}), "no error");
}

// The model's logits are finite: the sampler is at fault that leaves others, wherever it stands.
TEST(ComponentErrors, CandidatesThatAreNotFinite) {
  for (const char* what : {"nan", "infinity"}) {
    const std::string bad = std::string("{use = \"leaves_wrong\", what = \"") + what + "\"}";
    const std::string before = "{use = \"repetition_penalty\"}, {use = \"temperature\"}, ";
    for (const std::string& chain :
         {bad, before + bad, before + bad + ", {use = \"top_k\", k = 100}", bad + ", " + bad}) {
      for (const std::vector<std::string>& draft :
           {std::vector<std::string>{}, {"draft.use=ngram"}, {"draft.pipeline.tokens=2"}}) {
        SCOPED_TRACE(chain + testing::PrintToString(draft));
        std::vector<std::string> set = {"sampler.chain=[" + chain + "]"};
        set.insert(set.end(), draft.begin(), draft.end());
        EXPECT_THAT(
            error_of("leaves_wrong", set),
            HasSubstr(std::string("step: error: sampler.leaves_wrong: leaves ") + (what[0] == 'n' ? "nan" : "inf") +
                      " among the candidates, after 5 tokens, from logits that are finite"));
      }
    }
  }
}

TEST(ComponentErrors, ASelectorThatWritesNothing) {
  EXPECT_THAT(error_of("chooses_wrong", {"sampler.chain=[{use = \"chooses_wrong\", token = -2}]"}),
              HasSubstr("plan: error: sampler.chooses_wrong: chooses no token"));
}

TEST(ComponentErrors, ATokenOutsideOfTheVocabulary) {
  for (const char* token : {"-1", "100000"}) {
    for (const char* draft : {"draft.use=none", "draft.use=ngram", "draft.pipeline.tokens=2"}) {
      EXPECT_THAT(
          error_of("chooses_wrong",
                   {std::string("sampler.chain=[{use = \"chooses_wrong\", token = ") + token + "}]", draft}),
          HasSubstr(std::string("sampler.chooses_wrong: chooses token ") + token + ", outside of the vocabulary of "));
    }
  }
}

TEST(ComponentErrors, AProposalOutsideOfTheVocabulary) {
  EXPECT_THAT(error_of("proposes_minus_one", {"draft.use=minus_one"}),
              HasSubstr("step: error: draft.minus_one: proposes token -1, outside of the vocabulary of "));
}

// It says who does what: also the samplers with their values, the draft, and which layers an override took.
TEST(Decisions, NameSamplersDraftAndOverriddenLayers) {
  const std::unique_ptr<Engine> engine =
      open("good", {"sampler.chain=[{use = \"top_k\", k = 7}]", "draft.use=ngram",
                    "quantization.override=[{match = \"layers.1.mlp.down\", use = \"int8wo\"}]"});
  std::vector<std::string> lines;
  for (const Decision& d : engine->pipeline().decisions()) lines.push_back(d.path + ": " + d.text);
  EXPECT_THAT(lines, testing::Contains("sampler 1: sampler.top_k (k = 7)"));
  EXPECT_THAT(lines, testing::Contains("sampler 2: sampler.categorical, selects"));
  EXPECT_THAT(lines, testing::Contains(testing::StartsWith("draft: draft.ngram (")));
  EXPECT_THAT(lines, testing::Contains(testing::StartsWith("layers.1.mlp.down: quantization.int8wo from ")));
  EXPECT_THAT(lines, testing::Contains(testing::StartsWith("layers.0")));
  EXPECT_THAT(lines, testing::Contains(testing::StartsWith("layers.*.mlp.gate_up: ")));
}

// A scheme that promises less than there are sequences is no error, but the plan says what follows.
TEST(Decisions, NameHowManySequencesLeaveATextAlone) {
  const auto lines_of = [](const char* scheme) {
    const std::unique_ptr<Engine> engine =
        open("wrong_product",
             {std::string("quantization.override=[{match = \"layers.1.mlp.down\", use = \"") + scheme + "\"}]",
              "scheduler.use=lockstep", "scheduler.sequences=2"});
    std::vector<std::string> lines;
    for (const Decision& d : engine->pipeline().decisions()) lines.push_back(d.path + ": " + d.text);
    return lines;
  };
  EXPECT_THAT(lines_of("wrong_product"),
              testing::Contains("sequences: in steps of more than 1 of them a text may depend on those beside it"));
  EXPECT_THAT(lines_of("int8wo"), testing::Not(testing::Contains(testing::StartsWith("sequences: "))));
}

}  // namespace
}  // namespace tenon
