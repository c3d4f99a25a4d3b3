// Calls of tools are read out of answers, whole and piece by piece.
#include "tool_calls.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "../tokenizer/support.h"
#include "forced_call.h"

namespace tenon::serve {
namespace {

struct Read {
  std::string text, calls;  // calls: name(arguments), one after the other
};

Read read(CallFormat format, const std::string& text, size_t piece_size) {
  CallReader reader(format);
  Read all;
  const auto take = [&](const CallReader::Piece& piece) {
    all.text += piece.text;
    for (const ToolCall& call : piece.calls) all.calls += call.name + "(" + call.arguments + ")";
  };
  for (size_t at = 0; at < text.size(); at += piece_size) take(reader.add(text.substr(at, piece_size), false));
  take(reader.add("", true));
  return all;
}

void expect(CallFormat format, const std::string& text, const Read& wanted) {
  for (const size_t size : {size_t{1}, size_t{3}, size_t{7}, text.size()}) {
    const Read found = read(format, text, size);
    EXPECT_EQ(found.text, wanted.text) << text << " in pieces of " << size;
    EXPECT_EQ(found.calls, wanted.calls) << text << " in pieces of " << size;
  }
}

TEST(ServeToolCalls, HermesHasTags) {
  constexpr CallFormat kFormat = CallFormat::kHermes;
  const std::string sum = "<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": [1, 2]}}\n</tool_call>";
  expect(kFormat, sum, {"", R"(sum({"a":[1,2]}))"});
  expect(kFormat, "Let me see.\n" + sum + "\n" + sum + "\n", {"Let me see.", R"(sum({"a":[1,2]})sum({"a":[1,2]}))"});
  expect(kFormat, R"(<tool_call>{"name": "f", "arguments": {}})", {"", "f({})"});  // it has no end
  // There are no calls: it is text, to the byte.
  for (const std::string text :
       {" a < b <tool \n", "<tool_call>{\"name\": \"f\", \"argu", "<tool_call>f()</tool_call> x",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>", "\n\n"}) {
    expect(kFormat, text, {text, ""});
  }
}

TEST(ServeToolCalls, MistralHasAList) {
  constexpr CallFormat kFormat = CallFormat::kMistral;
  expect(kFormat, R"([TOOL_CALLS] [{"name": "f", "arguments": {"x": "]"}}, {"name": "g", "arguments": {}}])",
         {"", R"(f({"x":"]"})g({}))"});
  for (const std::string text : {"a [TOOL", "[TOOL_CALLS] f", R"([TOOL_CALLS][{"name": "f"}])", "[]"}) {
    expect(kFormat, text, {text, ""});
  }
}

TEST(ServeToolCalls, LlamaHasAnObject) {
  constexpr CallFormat kFormat = CallFormat::kLlama;
  expect(kFormat, "\n{\"name\": \"f\", \"parameters\": {\"x\": 1}}", {"", R"(f({"x":1}))"});
  for (const std::string text : {"a {\"name\": \"f\", \"parameters\": {}}", "{\"name\": \"f\"}", "{", " "}) {
    expect(kFormat, text, {text, ""});
  }
}

TEST(ServeToolCalls, HarmonyHasMessagesToFunctions) {
  constexpr CallFormat kFormat = CallFormat::kHarmony;
  const std::string sum = "<|start|> to=functions.sum<|channel|>commentary json<|message|>{\"a\": [1, 2]}<|end|>",
                    now = "<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}";
  expect(kFormat, sum, {"", R"(sum({"a":[1,2]}))"});
  expect(kFormat, "Let me see.\n" + sum + now, {"Let me see.", R"(sum({"a":[1,2]})now({}))"});
  for (const std::string text :
       {"<|start|>assistant to=functions.f<|message|>1", "<|start|> to=functions.<|message|>{}",
        "<|start|>assistant<|message|>to=functions.f", "a<|start|> to=functions.f", "to=functions.f<|message|>{}"}) {
    expect(kFormat, text, {text, ""});
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Returns a tokenizer with <s> and </s>, which templates write.
std::unique_ptr<Tokenizer> tokenizer_with_ends() {
  test::TemporaryFolder folder;
  folder.write("tokenizer.json", read_file(TENON_SOURCE_DIR "/tests/data/tokenizer/llama2/tokenizer.json"));
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  return make_tokenizer(folder.path());
}

TEST(ServeToolCalls, PublishedTemplatesSayWhichFormItIs) {
  const std::filesystem::path folder = TENON_SOURCE_DIR "/build/chat_templates";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "the templates are not there; scripts/fetch_chat_templates.sh fetches them";
  }
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_with_ends();
  const std::map<std::string, CallFormat> wanted = {
      {"Qwen-Qwen2.5-7B-Instruct", CallFormat::kHermes},
      {"Qwen-Qwen3-0.6B", CallFormat::kHermes},
      {"Qwen-QwQ-32B", CallFormat::kHermes},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", CallFormat::kHermes},
      {"ibm-granite-granite-4.0", CallFormat::kHermes},
      {"mistralai-Mistral-Nemo-Instruct-2407", CallFormat::kMistral},
      {"meta-llama-Llama-3.1-8B-Instruct", CallFormat::kLlama},
      {"meta-llama-Llama-3.2-3B-Instruct", CallFormat::kLlama},
      {"meta-llama-Llama-3.3-70B-Instruct", CallFormat::kLlama},
      {"openai-gpt-oss-120b", CallFormat::kHarmony},
      // These write calls in other forms, some of them between the same tags, or none.
      {"Qwen3-Coder", CallFormat::kNone},
      {"GLM-4.6", CallFormat::kNone},
      {"Mistral-Small-3.2-24B-Instruct-2506", CallFormat::kNone},
      {"deepseek-ai-DeepSeek-V3.1", CallFormat::kNone},
      {"google-gemma-2-2b-it", CallFormat::kNone}};
  for (const auto& [name, format] : wanted) {
    TokenizerInfo info;
    info.chat_template = read_file(folder / (name + ".jinja"));
    const ChatTemplate chat(info);
    EXPECT_EQ(call_format_of(&chat, *tokenizer), format) << name;
    const Thoughts thoughts = chat.thoughts(*tokenizer, std::vector<ChatMessage>{{"user", "x"}});
    EXPECT_EQ(thoughts == Thoughts::kChannels, format == CallFormat::kHarmony) << name;
  }
  EXPECT_EQ(call_format_of(nullptr, *tokenizer), CallFormat::kNone);
}

TEST(ServeToolCalls, ThatAreForcedFollowASchemaOfAllTools) {
  const auto tools = boost::json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"$ref": "#/$defs/x", "$defs": {"x": {"enum": [{"$ref": "#"}]}}}}}, {"function": {"name": "g"}}])")
                         .get_array();
  const auto schema = [&](CallFormat format, bool several) {
    const ForcedCall call = force_call(format, tools, several);
    EXPECT_EQ(call.begins, call_begin(format));
    return boost::json::parse(call.grammar.text);
  };
  const auto f = [](const std::string& arguments) {
    return boost::json::parse(R"({"type": "object", "properties": {"name": {"const": "f"}, ")" + arguments +
                              R"(": {"$ref": "#/$defs/tool0"}}, "required": ["name", ")" + arguments +
                              R"("], "additionalProperties": false})");
  };
  const boost::json::value hermes = schema(CallFormat::kHermes, true), llama = schema(CallFormat::kLlama, true),
                           mistral = schema(CallFormat::kMistral, true), one = schema(CallFormat::kMistral, false);
  EXPECT_EQ(hermes.at_pointer("/anyOf/0"), f("arguments"));
  EXPECT_EQ(hermes.at_pointer("/anyOf/1/properties/name/const"), "g");
  EXPECT_EQ(llama.at_pointer("/anyOf/0"), f("parameters"));
  EXPECT_EQ(mistral.at_pointer("/items/anyOf/0"), f("arguments"));
  EXPECT_EQ(hermes.at("$defs"), boost::json::parse(R"({"tool0": {"$ref": "#/$defs/tool0/$defs/x",
      "$defs": {"x": {"enum": [{"$ref": "#"}]}}}, "tool1": {"type": "object"}})"));
  EXPECT_FALSE(mistral.get_object().contains("maxItems"));
  EXPECT_EQ(one.at("maxItems"), 1);
}

TEST(ServeToolCalls, ThatAreForcedInHarmonyAreTheArgumentsAlone) {
  const auto tools = boost::json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"$ref": "#/$defs/x", "$defs": {"x": {"enum": [1]}}}}}])")
                         .get_array();
  const ForcedCall call = force_call(CallFormat::kHarmony, tools, true);
  EXPECT_EQ(call.begins, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>");
  EXPECT_EQ(boost::json::parse(call.grammar.text), tools[0].at("function").at("parameters"));
}

}  // namespace
}  // namespace tenon::serve
