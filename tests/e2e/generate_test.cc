// This tests `tenon generate`: what goes where, and what must not change the text.
#include <gtest/gtest.h>

#include "program.h"

namespace tenon::e2e {
namespace {

const std::string kPrompt = "<10><11><12><13>";

std::string text_of(const Words& words, const std::string& input = "") {
  return std::string(tenon_json(Words{"generate"} + words + Words{"--json"}, input).at("text").as_string());
}

TEST(Generate, PutsOnlyTheTextOnStandardOutput) {
  const Words words = {"generate", kStories, "-p", kPrompt, "-n", "12", "--ignore-end"};
  const Outcome plain = tenon(words);
  EXPECT_EQ(plain.code, 0);
  EXPECT_NE(plain.err.find("tok/s"), std::string::npos) << plain.err;
  const boost::json::value json = tenon_json(words + Words{"--json"});
  EXPECT_EQ(plain.out, std::string(json.at("text").as_string()) + "\n");
  EXPECT_EQ(json.at("tokens").as_array().size(), 12u);
  EXPECT_EQ(json.at("finish").as_string(), "length");
  EXPECT_EQ(tenon(words + Words{"--quiet"}).err, "");
}

TEST(Generate, ContinuesAsTransformersDoes) {
  const boost::json::value data = boost::json::parse(read_file(golden("tiny-gqa-untied/golden.json")));
  for (const boost::json::value& prompt : data.at("prompts").as_array()) {
    if (prompt.at("text").is_null()) continue;
    for (const char* model : {"tiny-gqa-untied", "tiny-gqa-untied.gguf"}) {
      const boost::json::value json =
          tenon_json(Words{"generate", golden(model), "-p", std::string(prompt.at("text").as_string()), "-n", "64",
                           "--ignore-end", "--json"} +
                     greedy());
      EXPECT_EQ(json.at("prompt_tokens"), prompt.at("ids")) << model;
      EXPECT_EQ(json.at("tokens"), prompt.at("greedy")) << model;
    }
  }
}

TEST(Generate, GivesTheSameForASeedWithAnyThreadsInAnyProcess) {
  for (const std::string& model : {kStories, golden("tiny-gguf-mixed/tiny-gguf-mixed.gguf").string()}) {
    const Words words = {"generate", model, "-p", "<10>", "-n", "24", "--ignore-end", "--json", "--seed", "7"};
    const boost::json::value first = tenon_json(words + Words{"--threads", "1"});
    for (const char* threads : {"1", "2", "3"}) {
      const boost::json::value other = tenon_json(words + Words{"--threads", threads});
      EXPECT_EQ(first.at("tokens"), other.at("tokens")) << model << ", threads " << threads;
      EXPECT_EQ(first.at("hash"), other.at("hash"));
    }
  }
}

TEST(Generate, ChangesWithTheSeed) {
  const Words words = {kStories, "-p", kPrompt, "-n", "24", "--ignore-end"};
  EXPECT_NE(text_of(words + Words{"--seed", "1"}), text_of(words + Words{"--seed", "2"}));
}

TEST(Generate, OptionsOfTheirOwnWinOverSetAndLeaveTheOthers) {
  const Words words = {kStories, "-p", kPrompt, "-n", "24", "--ignore-end"};
  const std::string seven = text_of(words + Words{"--seed", "7"});
  const Words set = {"--set", "sampler.seed=8", "--set", "device.threads=1"};
  EXPECT_EQ(text_of(words + set + Words{"--seed", "7"}), seven);
  EXPECT_EQ(text_of(words + Words{"--seed", "7"} + set), seven);
  EXPECT_EQ(text_of(words + set), text_of(words + Words{"--seed", "8"}));
  const Words cold = {"--set", "sampler.chain=[]", "--set", "sampler.select=greedy"};
  EXPECT_EQ(text_of(words + cold + Words{"--seed", "7"}), text_of(words + cold));
  const Outcome wrong = tenon(Words{"generate"} + words + Words{"--set", "device.threads=1", "--seed", "-7"});
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.err.find("sampler.seed"), std::string::npos) << wrong.err;
}

TEST(Generate, DraftsChangeNoToken) {
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += kPrompt;
  for (const Words& sampling :
       {greedy(), Words{"--seed", "3"}, Words{"--set", "sampler.chain=[{use=\"top_k\",k=2}]"}}) {
    const Words words = Words{"generate", kStories, "-p", prompt, "-n", "48", "--ignore-end", "--json"} + sampling;
    const boost::json::value plain = tenon_json(words);
    const boost::json::value drafted = tenon_json(words + Words{"--set", "draft.use=ngram"});
    EXPECT_EQ(plain.at("tokens"), drafted.at("tokens")) << sampling.back();
    EXPECT_GT(drafted.at_pointer("/stats/drafted").to_number<int64_t>(), 0) << sampling.back();
  }
}

TEST(Generate, TakesThePromptFromAnArgumentAFileOrStandardInput) {
  const std::filesystem::path file = temporary_folder() / "prompt.txt";
  write_file(file, kPrompt);
  const Words words = {kStories, "-n", "12", "--ignore-end"};
  const std::string expected = text_of(words + Words{"-p", kPrompt});
  EXPECT_EQ(text_of(words + Words{"-f", file}), expected);
  EXPECT_EQ(text_of(words, kPrompt), expected);
}

TEST(Generate, EndsBeforeAStopString) {
  const Words words = {kStories, "-p", kPrompt, "-n", "24", "--ignore-end"};
  const std::string whole = text_of(words);
  const std::string stop = whole.substr(whole.size() / 2, 5);
  const boost::json::value json = tenon_json(Words{"generate"} + words + Words{"--json", "--stop", stop});
  EXPECT_EQ(json.at("text").as_string(), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(json.at("finish").as_string(), "stop_string");
}

TEST(Generate, SaysHowToGetTheSameAgain) {
  const Outcome first = tenon({"generate", kStories, "-p", "it's <10>", "-n", "8", "--seed", "9"});
  const size_t line = first.err.rfind("| tenon ");
  ASSERT_NE(line, std::string::npos) << first.err;
  const Outcome again = tenon_line(first.err.substr(line + 2));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, first.out);
}

// The command at the end of what a run says is run as it is printed.
Outcome again(const Outcome& first) {
  const size_t line = first.err.rfind("| tenon ");
  EXPECT_NE(line, std::string::npos) << first.err;
  return line == std::string::npos ? Outcome() : tenon_line(first.err.substr(line + 2));
}

std::string hash_of(const Outcome& outcome) {
  const size_t at = outcome.err.rfind("| hash ");
  return at == std::string::npos ? "none in " + outcome.err : outcome.err.substr(at + 7, 16);
}

TEST(Generate, SaysHowToGetTheSameAgainWithEveryOption) {
  const std::string whole = text_of({kStories, "-p", kPrompt, "-n", "24", "--ignore-end"});
  const std::string stop = whole.substr(whole.size() / 2, 5);
  const std::filesystem::path folder = temporary_folder();
  write_file(folder / "prompt", kPrompt);
  std::filesystem::copy(golden("tiny-gqa-untied"), folder / "own");
  boost::json::object config = boost::json::parse(read_file(folder / "own/config.json")).as_object();
  config["auto_map"] = {{"AutoConfig", "own.Config"}};
  write_file(folder / "own/config.json", boost::json::serialize(config));
  const std::string tiny = golden("tiny-gqa-untied");
  const Words stories = {"generate", kStories, "-p", kPrompt, "-n", "24"};
  const Words faults = {"--plugin-dir", std::string(TENON_BAD_PLUGINS) + "/good",
                        "--set",        "sampler.chain=[]",
                        "--set",        "sampler.select=good"};
  for (const Words& words : std::vector<Words>{
           stories + Words{"--ignore-end", "--stop", stop, "--stop", "it's"},
           stories + Words{"--ignore-end"} + faults,
           stories + Words{"--ignore-end", "--set", "model.layers=2", "--set", "model.context=64"},
           {"generate", kStories, "-f", folder / "prompt", "-n", "8", "--ignore-end", "--seed", "3"},
           {"generate", tiny, "-p", "--stop", "-n", "8"},
           {"generate", tiny, "-p", "a</s>b", "-n", "8", "--ignore-end", "--parse-special"},
           {"generate", folder / "own", "-p", "x", "-n", "8", "--set", "model.ignore_unknown=[\"auto_map\"]"},
       }) {
    Words given = words;
    if (given[3] == "--stop") {
      given[2] = "--prompt=--stop";
      given.erase(given.begin() + 3);
    }
    const Outcome first = tenon(given), second = again(first);
    EXPECT_EQ(second.code, 0) << first.err << second.err;
    EXPECT_EQ(second.out, first.out) << first.err;
    EXPECT_EQ(hash_of(second), hash_of(first)) << first.err;
    const Outcome json = tenon(given + Words{"--json", "--logprobs", "2"}), json_again = again(json);
    EXPECT_EQ(json_again.code, 0) << json_again.err;
    const boost::json::value a = boost::json::parse(json.out), b = boost::json::parse(json_again.out);
    for (const char* key : {"text", "finish", "prompt_tokens", "tokens", "hash", "logprobs"})
      EXPECT_EQ(a.at(key), b.at(key)) << key;
  }
}

TEST(Generate, SaysHowToGetTheSameAgainAsFromStandardInput) {
  const Outcome first = tenon({"generate", kStories, "-n", "8", "--ignore-end"}, "<10> it's\n<11>");
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(again(first).out, first.out);
  EXPECT_EQ(hash_of(again(first)), hash_of(first));
}

TEST(Generate, TakesNamesOfSpecialTokensForTextUnlessAsked) {
  const std::string tiny = golden("tiny-gqa-untied");
  const auto ids = [&](const Words& more) {
    return tenon_json(Words{"generate", tiny, "-p", "a</s>b", "-n", "1", "--json"} + more)
        .at("prompt_tokens")
        .as_array();
  };
  const boost::json::array as_text = ids({}), parsed = ids({"--parse-special"});
  EXPECT_LT(parsed.size(), as_text.size());
  const auto of = [&](const Words& more) {
    std::string line;
    for (const boost::json::value& id : ids(more)) line += (line.empty() ? "" : " ") + std::to_string(id.as_int64());
    return line + "\n";
  };
  EXPECT_EQ(of({}), tenon({"tokenize", tiny, "-p", "a</s>b"}).out);
  EXPECT_EQ(of({"--parse-special"}), tenon({"tokenize", tiny, "-p", "a</s>b", "--parse-special"}).out);
}

class GenerateTrace : public testing::TestWithParam<const char*> {};

TEST_P(GenerateTrace, IsWholeAndChangesNothing) {
  const std::string path = temporary_folder() / GetParam();
  const Words words = {"generate", kStories, "-p", kPrompt, "-n", "6", "--ignore-end"};
  const Outcome traced = tenon(words + Words{"--trace", path});
  EXPECT_EQ(traced.code, 0) << traced.err;
  EXPECT_EQ(traced.out, tenon(words).out);
  EXPECT_GT(std::filesystem::file_size(path), 0u);
  const Outcome check = tenon({"trace", "check", path});
  EXPECT_EQ(check.code, 0) << check.out << check.err;
}

INSTANTIATE_TEST_SUITE_P(Formats, GenerateTrace, testing::Values("t.json", "t.json.gz"),
                         [](const auto& param) { return std::string(param.index == 0 ? "Plain" : "Compressed"); });

TEST(Generate, EndsAtOnceWhenInterruptedWhileItLoads) {
  Running process({"-v", "generate", "synthetic:llama-3.2-1b", "-p", kPrompt, "--set", "quantization.use=int8wo"});
  process.wait_for_message("loading");
  process.interrupt();
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.find("tok/s"), std::string::npos) << "loaded to its end: " << outcome.err;
}

TEST(Generate, KeepsWhatWasMadeWhenInterrupted) {
  const std::string trace = temporary_folder() / "t.json";
  Running process({"generate", kStories, "-p", kPrompt, "-n", "8000", "--ignore-end", "--set", "kv_cache.capacity=8192",
                   "--trace", trace, "--set", "trace.steps=4"});
  process.wait_for_output();
  process.interrupt();
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.out.back(), '\n');
  const std::string whole = text_of({kStories, "-p", kPrompt, "-n", "64", "--ignore-end"});
  const size_t common = std::min(whole.size(), outcome.out.size() - 1);
  EXPECT_EQ(outcome.out.substr(0, common), whole.substr(0, common));
  EXPECT_EQ(tenon({"trace", "check", trace}).code, 0);
}

}  // namespace
}  // namespace tenon::e2e
