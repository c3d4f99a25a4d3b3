// Requests whose text has to match a grammar run beside others that need not. This is compiled for the CPU here and for
// a GPU in tests/cuda (TENON_TEST_DEVICE).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "on_a_device.h"
#include "support/pipelines.h"

namespace tenon::test {
namespace {

using ::testing::HasSubstr;

std::string message_of(const Result& result) {
  if (!result.error) return "";
  try {
    std::rethrow_exception(result.error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

class GrammarRequests : public OnADevice {
 protected:
  // On a GPU a prompt beside others goes through other products than alone.
  const double kLogprobs = kDevice == "cuda" ? 1e-4 : 0;

  static std::unique_ptr<Engine> open(std::vector<std::string> set = {}, bool grammars = true) {
    EngineOptions options;
    options.config = root() / "tests/golden/data" / kTiny;
    options.set = {
        "kv_cache.capacity=128", "quantization.use=none", "device.use=" + kDevice, "grammar.use=letters",
        "sampler.chain=[{use=\"repetition_penalty\"}, {use=\"temperature\", value=1.5}, {use=\"top_k\", k=40}]"};
    options.set.insert(options.set.end(), set.begin(), set.end());
    options.plugin_dirs = {plugins(), build() / "tests/unit/engine/plugins"};
    options.grammars = grammars;
    return Engine::open(options);
  }

  static std::shared_ptr<const Grammar> letters(Engine& engine, const std::string& text) {
    GrammarText grammar;
    grammar.form = GrammarForm::kRegex;
    grammar.text = text;
    return engine.compile(grammar);
  }

  static Request request(uint32_t seed) {
    Request r;
    for (uint32_t i = 0; i < 5 + seed % 30; ++i)
      r.tokens.push_back(static_cast<int32_t>((i * 7919 + seed * 613) % 250 + 3));
    r.max_new_tokens = 40;
    r.seed = seed;
    return r;
  }

  // Two in three have a grammar; the others differ from those in nothing else.
  static std::vector<Request> some_requests(Engine& engine, uint32_t n) {
    std::vector<Request> requests;
    for (uint32_t i = 0; i < n; ++i) {
      Request r = request(i);
      if (i % 3 != 0) r.grammar = letters(engine, i % 3 == 1 ? "abc" : "xyz \n");
      if (i % 4 == 1) r.sampler = {{"temperature.value", "0.3"}, {"top_k.k", "2"}};
      if (i % 5 == 2) r.stop = {"ba", "zx"};
      r.logprobs = i % 7 == 3;
      requests.push_back(std::move(r));
    }
    return requests;
  }

  void expect_equal(const std::vector<std::string>& set) {
    const auto alone = open(), together = open(set);
    const std::vector<Request> one = some_requests(*alone, 24), all = some_requests(*together, 24);
    const std::vector<Result> results = together->generate(all);
    for (size_t i = 0; i < one.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      const Result expected = alone->generate(one[i]);
      EXPECT_EQ(message_of(results[i]), "");
      EXPECT_EQ(results[i].tokens, expected.tokens);
      EXPECT_EQ(results[i].text, expected.text);
      EXPECT_EQ(results[i].finish, expected.finish);
      ASSERT_EQ(results[i].logprobs.size(), expected.logprobs.size());
      for (size_t t = 0; t < expected.logprobs.size(); ++t) {
        EXPECT_NEAR(results[i].logprobs[t].value, expected.logprobs[t].value, kLogprobs);
      }
      if (i % 3 == 0) continue;
      const char* letters = i % 3 == 1 ? "abc" : "xyz \n";
      EXPECT_EQ(expected.text.find_first_not_of(letters), std::string::npos) << expected.text;
    }
  }
};

TEST_F(GrammarRequests, TextHasOnlyWhatItsGrammarAllowsAndEndsOnlyWhereThatMayEnd) {
  const auto engine = open();
  size_t ended = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Request r = request(seed);
    r.max_new_tokens = 100 - static_cast<uint32_t>(r.tokens.size());
    r.grammar = letters(*engine, "qrstu");
    const Result result = engine->generate(r);
    EXPECT_EQ(result.text.find_first_not_of("qrstu"), std::string::npos) << result.text;
    if (result.finish != FinishReason::kEndOfText) continue;
    ++ended;
    EXPECT_GE(result.text.size(), 3u);
  }
  EXPECT_GT(ended, 50u);
}

TEST_F(GrammarRequests, GetTheTextThatTheyGetAlone) {
  expect_equal({"scheduler.use=continuous", "scheduler.sequences=6"});
}

TEST_F(GrammarRequests, GetTheTextThatTheyGetWithoutDrafts) {
  expect_equal({"scheduler.use=continuous", "scheduler.sequences=2", "draft.use=ngram", "draft.k=3"});
  expect_equal({"scheduler.use=continuous", "scheduler.sequences=2", "draft.pipeline.tokens=2"});
}

// Texts of few letters repeat themselves, so some of what they are said to go on with comes. Letters that come in turn
// have another mask for each draft, and after six nothing comes, be it behind the text or behind a draft.
TEST_F(GrammarRequests, HaveDraftsOfTheirOwn) {
  for (const std::string text : {"ab", ">abc", ">ab", "#ab", "#abcde"}) {
    SCOPED_TRACE(text);
    const auto plain = open(), engine = open({"draft.use=ngram", "draft.k=3"});
    for (uint32_t seed = 0; seed < 12; ++seed) {
      std::vector<Request> with = {request(seed)}, without = {request(seed)};
      with[0].grammar = letters(*engine, text);
      without[0].grammar = letters(*plain, text);
      const Result got = engine->generate(with).front(), expected = plain->generate(without).front();
      EXPECT_EQ(got.tokens, expected.tokens);
      EXPECT_EQ(got.text, expected.text);
      EXPECT_EQ(message_of(got), message_of(expected));
    }
    const RunStats stats = engine->totals();
    EXPECT_GT(stats.drafted, stats.accepted);
    EXPECT_GT(stats.accepted, 0u);
  }
}

TEST_F(GrammarRequests, HaveNoDraftsWhereNothingIsTakenBack) {
  const auto engine = open({"draft.use=ngram", "draft.k=3"});
  Request r = request(1);
  r.grammar = letters(*engine, "-ab");
  EXPECT_EQ(message_of(engine->generate(r)), "");
  EXPECT_EQ(engine->totals().drafted, 0u);
}

TEST_F(GrammarRequests, GetTheTextThatTheyGetWithoutPreemption) {
  if (kDevice == "cuda") GTEST_SKIP() << "the cache with few pages is for the CPU";
  expect_equal({"scheduler.use=continuous", "scheduler.sequences=8", "kv_cache.use=few_pages", "kv_cache.pages=20"});
}

// The programs that run while no request has a grammar are those of an engine that takes none.
TEST_F(GrammarRequests, CostOthersNothing) {
  const auto plain = open({}, false), engine = open();
  std::vector<size_t> expected, unmasked;
  const auto masks = [](const Program& p) {
    return std::count_if(p.ops().begin(), p.ops().end(), [](const ProgramOp& op) { return op.name == "mask"; });
  };
  for (const Program* p : plain->pipeline().programs()) expected.push_back(p->ops().size());
  for (const Program* p : engine->pipeline().programs()) {
    if (masks(*p) == 0) unmasked.push_back(p->ops().size());
  }
  EXPECT_EQ(unmasked, expected);
  engine->load();
  int64_t masked = 0, steps = 0;
  engine->pipeline().watch({.begin =
                                [&](const Program& p, const StepLoad&) {
                                  masked += masks(p);
                                  ++steps;
                                  return false;
                                },
                            .op = [](const Program&, size_t) {}});
  EXPECT_EQ(engine->generate(request(1)).tokens, plain->generate(request(1)).tokens);
  EXPECT_GT(steps, 0);
  EXPECT_EQ(masked, 0);
  Request with = request(1);
  with.grammar = letters(*engine, "abc");
  engine->generate(with);
  EXPECT_GT(masked, 0);
}

TEST_F(GrammarRequests, WhatGoesWrongWithAMaskEndsThatRequestAlone) {
  for (const std::vector<std::string>& drafts : {std::vector<std::string>(), {"draft.use=ngram", "draft.k=3"}}) {
    std::vector<std::string> set = {"scheduler.use=continuous", "scheduler.sequences=2"};
    set.insert(set.end(), drafts.begin(), drafts.end());
    const auto engine = open(set);
    std::vector<Request> requests = {request(1), request(2), request(3)};
    requests[1].grammar = letters(*engine, "!");
    requests[2].grammar = letters(*engine, "0");
    const std::vector<Result> results = engine->generate(requests);
    EXPECT_EQ(results[0].tokens, open()->generate(request(1)).tokens);
    EXPECT_THAT(message_of(results[1]), HasSubstr("grammar.letters: mask: there is no mask today"));
    EXPECT_THAT(message_of(results[2]), HasSubstr("the grammar allows no token of the vocabulary here"));
    EXPECT_EQ(results[2].text, "0");
  }
}

TEST_F(GrammarRequests, WhatCannotBeHadIsSaid) {
  const auto error_of = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kRequest);
      return e.what();
    }
    return "no error";
  };
  const auto engine = open(), none = open({"grammar.use=none"}), without = open({}, false);
  EXPECT_EQ(engine->grammar_problem(), "");
  EXPECT_EQ(error_of([&] { letters(*engine, ""); }), "error: there are no letters");
  EXPECT_THAT(error_of([&] { letters(*none, "a"); }), HasSubstr("grammar.use is \"none\""));
  EXPECT_THAT(error_of([&] { letters(*without, "a"); }), HasSubstr("opened without grammars"));
  Request endless = request(1);
  endless.grammar = letters(*engine, "a");
  endless.ignore_end = true;
  EXPECT_THAT(error_of([&] { engine->generate(endless); }), HasSubstr("ignore_end"));
}

TEST_F(GrammarRequests, MayOutliveTheirEngine) {
  auto engine = open();
  Request kept;
  kept.grammar = letters(*engine, "abc");
  engine.reset();
  EXPECT_EQ(kept.grammar.use_count(), 1);
}

TEST_F(GrammarRequests, OfOneEngineAreRefusedByAnother) {
  const auto one = open(), other = open();
  std::vector<Request> requests = {request(0)};
  requests[0].grammar = letters(*one, "abc");
  EXPECT_EQ(message_of(other->generate(requests).front()), "error: the grammar was compiled by another engine");
}

TEST_F(GrammarRequests, AreCompiledOnce) {
  const auto engine = open();
  const auto first = letters(*engine, "abc");
  EXPECT_EQ(letters(*engine, "abc"), first);
  EXPECT_NE(letters(*engine, "abd"), first);
}

}  // namespace
}  // namespace tenon::test
