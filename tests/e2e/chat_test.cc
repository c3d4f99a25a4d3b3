// These tests run `tenon chat`: resets, system messages, special tokens as text, conversations that do not fit, and
// interruption.
#include <gtest/gtest.h>

#include "../support/zephyr_template.h"
#include "program.h"

namespace tenon::e2e {
namespace {

// Makes a small model that can chat, and has room for answers that take seconds.
std::string chat_model() {
  const std::filesystem::path folder = temporary_folder() / "model";
  std::filesystem::copy(golden("tiny-gqa-untied"), folder);
  boost::json::object config = boost::json::parse(read_file(folder / "config.json")).as_object();
  config["max_position_embeddings"] = 30000;
  write_file(folder / "config.json", boost::json::serialize(config));
  const boost::json::object tokenizer = {
      {"eos_token", "</s>"}, {"bos_token", "<s>"}, {"chat_template", test::kZephyrTemplate}};
  write_file(folder / "tokenizer_config.json", boost::json::serialize(tokenizer));
  return folder;
}

TEST(Chat, ForgetsOnReset) {
  const Words words = {"chat", chat_model(), "-n", "12"};
  const Outcome once = tenon(words, "Hello\n");
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_GT(once.out.size(), 1u);
  EXPECT_EQ(tenon(words, "Hello\n/reset\nHello\n/exit\nHello\n").out, once.out + once.out);
  const Outcome twice = tenon(words, "Hello\nHello\n");
  EXPECT_EQ(twice.out.substr(0, once.out.size()), once.out);
  EXPECT_NE(twice.out, once.out + once.out);
}

TEST(Chat, TakesASystemMessage) {
  const Words words = {"chat", chat_model(), "-n", "12"};
  const std::string by_option = tenon(words + Words{"--system", "Be brief"}, "Hello\n").out;
  EXPECT_EQ(tenon(words, "/system Be brief\nHello\n").out, by_option);
  EXPECT_NE(tenon(words, "Hello\n").out, by_option);
}

TEST(Chat, TakesNamesOfSpecialTokensForTextUnlessAsked) {
  const std::string model = chat_model();
  const auto size = [&](const Words& more) {
    const Words words = {"generate", model, "--chat", "-p", "a</s><s>b", "-n", "1", "--json"};
    return tenon_json(words + more).at("prompt_tokens").as_array().size();
  };
  EXPECT_LT(size({"--parse-special"}), size({}));
  const Outcome parsed = tenon({"chat", model, "-n", "4", "--parse-special"}, "a</s><s>b\n");
  EXPECT_EQ(parsed.code, 0) << parsed.err;
  EXPECT_EQ(parsed.out, tenon({"generate", model, "--chat", "--parse-special", "-n", "4", "-p", "a</s><s>b"}).out);
}

TEST(Chat, AnEmptyMessageIsOneAndStaysOneInTheLine) {
  const Outcome first = tenon({"generate", chat_model(), "--chat", "-p", "", "-n", "4", "--ignore-end"}, "not this");
  EXPECT_EQ(first.code, 0) << first.err;
  const Outcome again = tenon_line(first.err.substr(first.err.rfind("| tenon ") + 2));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, first.out);
}

TEST(Chat, SaysWhatItDoesNotKnow) {
  const Outcome outcome = tenon({"chat", chat_model()}, "/what\n\n/help\n");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("/what"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("/system TEXT"), std::string::npos) << outcome.err;
}

TEST(Chat, GoesOnAfterAConversationThatDoesNotFit) {
  const Words words = {"chat", chat_model(), "-n", "4", "--set", "kv_cache.capacity=48"};
  const Outcome outcome = tenon(words, std::string(100, 'x') + "\nHello\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("the cache holds 48"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, tenon(words, "Hello\n").out);
}

TEST(Chat, NeedsATemplate) {
  const Outcome outcome = tenon({"chat", kStories}, "Hello\n");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_NE(outcome.err.find("the model has no chat template"), std::string::npos) << outcome.err;
}

std::string model_with_template(const std::string& chat_template) {
  const std::string folder = chat_model();
  boost::json::object tokenizer = boost::json::parse(read_file(folder + "/tokenizer_config.json")).as_object();
  tokenizer["chat_template"] = chat_template;
  write_file(folder + "/tokenizer_config.json", boost::json::serialize(tokenizer));
  return folder;
}

TEST(Chat, TellsTheTemplateOfToolsAndVariables) {
  const std::string model = model_with_template(
      "{{ messages[0].content }}{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}{{ mood }}");
  const std::string tools = temporary_folder() / "tools.json";
  write_file(tools, R"([{"type": "function", "function": {"name": "sum"}}])");
  const Words options = {"--tools", tools, "--template-variables", R"({"mood": "merry"})"};
  const Words generate = {"generate", model, "-n", "8"};
  const Outcome plain = tenon(generate + Words{"-p", "Hello[sum]merry"});
  const Outcome chat = tenon({"chat", model, "-n", "8", options[0], options[1], options[2], options[3]}, "Hello\n");
  EXPECT_EQ(chat.code, 0) << chat.err;
  const Outcome once = tenon(generate + Words{"--chat", "-p", "Hello"} + options);
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_EQ(chat.out, once.out);
  const auto tokens = [&](const Words& more) {
    return tenon_json(generate + Words{"--json"} + more).at("prompt_tokens").as_array().size();
  };
  EXPECT_EQ(tokens(Words{"--chat", "-p", "Hello"} + options), tokens({"--chat", "-p", "Hello[sum]merry"}));
  const Outcome again = tenon_line(once.err.substr(once.err.rfind("| tenon ") + 2));
  EXPECT_EQ(again.out, once.out) << again.err;
  EXPECT_EQ(tenon(generate + Words{"-p", "Hello"} + options).code, 2);  // these are options of --chat without it
}

TEST(Chat, NamesThePlaceInATemplateThatIsWrong) {
  const std::string unread = model_with_template("a\n{{ messages | urlize }}");
  for (const Words& words : {Words{"chat", unread}, Words{"generate", unread, "--chat", "-p", "x"}}) {
    const Outcome outcome = tenon(words, "Hello\n");
    EXPECT_NE(outcome.code, 0);
    EXPECT_NE(outcome.err.find("chat template of tokenizer_config.json:2:15: error: the filter \"urlize\" is not "),
              std::string::npos)
        << outcome.err;
  }
  const std::string picky = model_with_template("{{ raise_exception('Only robots may speak') }}");
  const Outcome outcome = tenon({"generate", picky, "--chat", "-p", "x"});
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("chat template of tokenizer_config.json:1:19: error: Only robots may speak"),
            std::string::npos)
      << outcome.err;
}

TEST(Chat, EndsOnlyTheAnswerWhenInterrupted) {
  // Without its end, token 1, the answer is long enough to be interrupted.
  Running process({"chat", chat_model(), "-n", "20000", "--set", "kv_cache.capacity=24000", "--set",
                   "sampler.select=greedy", "--set", R"(sampler.chain=[{use="logit_bias",bias="1:-100"}])"});
  process.say("Hello\n");
  process.wait_for_output();
  process.interrupt();
  process.say("/reset\n/exit\n");
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.back(), '\n');
}

TEST(Chat, EndsWhenInterruptedBetweenAnswers) {
  Running process({"chat", chat_model(), "-n", "4"});
  process.say("Hello\n/what\n");
  process.wait_for_message("/what");
  process.interrupt();
  EXPECT_EQ(process.finish().code, 130);
}

TEST(Chat, WritesTheNewestStepsWhenAsked) {
  const std::filesystem::path trace = temporary_folder() / "t.json";
  const Words words = {"chat", chat_model(), "-n", "12"};
  const std::string input = "Hello\n/trace\n/trace\nHello\n/exit\n";
  const Outcome outcome = tenon(words + Words{"--trace", trace, "--set", "trace.keep_steps=3"}, input);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("3 steps written"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("0 steps written"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("trace: 3 of "), std::string::npos) << outcome.err;
  EXPECT_EQ(tenon({"trace", "check", trace}).code, 0);
  const Outcome untraced = tenon(words, input);
  EXPECT_NE(untraced.err.find("no steps are kept"), std::string::npos) << untraced.err;
  EXPECT_EQ(untraced.out, outcome.out);
}

}  // namespace
}  // namespace tenon::e2e
