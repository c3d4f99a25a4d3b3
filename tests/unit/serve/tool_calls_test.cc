// Calls of tools are read out of answers, whole and piece by piece.
#include "tool_calls.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "../tokenizer/support.h"
#include "forced_call.h"

namespace tenon::serve {
namespace {

struct Read {
  std::string text, calls;  // calls: name(arguments), one after the other
};

// These functions are known to the tests.
std::shared_ptr<const ParameterTypes> known_types() {
  return std::make_shared<const ParameterTypes>(
      boost::json::parse(R"([{"function": {"name": "plain"}}, {"function": {"name": "f", "parameters": {
          "type": "object", "$defs": {"word": {"type": "string"}}, "properties": {
          "text": {"type": "string"}, "word": {"$ref": "#/$defs/word"}, "count": {"type": "integer"},
          "share": {"type": "number"}, "flag": {"type": "boolean"}, "list": {"type": "array"},
          "object": {"type": "object"}, "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
          "colour": {"enum": ["red", "1"]}, "either": {"type": ["string", "integer"]}, "any": {}}}}}])")
          .get_array());
}

Read read(CallFormat format, const std::string& text, size_t piece_size) {
  CallReader reader(format, known_types());
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

// Returns a call of f in the form of Qwen3-Coder.
std::string qwen(const std::string& key, const std::string& value, const std::string& name = "f") {
  return "<tool_call>\n<function=" + name + ">\n<parameter=" + key + ">\n" + value +
         "\n</parameter>\n</function>\n</tool_call>";
}
std::string glm(const std::string& key, const std::string& value, const std::string& name = "f") {
  return "<tool_call>" + name + "\n<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n</tool_call>";
}

// What a text stands for is the same in both forms that have values without quotation marks.
TEST(ServeToolCalls, ValuesAreOfTheTypesThatTheSchemaLetsThemHave) {
  const struct {
    const char *key, *text, *value;
  } cases[] = {{"text", "12", R"("12")"},
               {"text", "{\"a\": 1}", R"("{\"a\": 1}")"},
               {"text", " a \n  b\n", R"(" a \n  b\n")"},
               {"text", "\"quoted\"", R"("\"quoted\"")"},
               {"text", "", R"("")"},
               {"word", "true", R"("true")"},
               {"colour", "1", R"("1")"},
               {"count", "12", "12"},
               {"count", " 12 ", "12"},
               {"count", "1.5", "1.5E0"},
               {"count", "twelve", R"("twelve")"},
               {"share", "3", "3"},
               {"flag", "true", "true"},
               {"flag", "False", "false"},
               {"flag", "None", R"("None")"},
               {"list", "[1, \"a\"]", R"([1,"a"])"},
               {"object", "{\n\"a\": {}\n}", R"({"a":{}})"},
               {"object", "{\"a\": ", R"("{\"a\": ")"},
               {"maybe", "null", "null"},
               {"maybe", "5", R"("5")"},
               {"maybe", "None", R"("None")"},
               {"either", "5", "5"},
               {"either", "5 apples", R"("5 apples")"},
               {"any", "[1]", "[1]"},
               {"any", "True", R"("True")"},
               {"other", "1", "1"},
               {"other", "a b", R"("a b")"}};
  for (const auto& c : cases) {
    const Read wanted = {"", std::string("f({\"") + c.key + "\":" + c.value + "})"};
    expect(CallFormat::kQwenCoder, qwen(c.key, c.text), wanted);
    expect(CallFormat::kGlm, glm(c.key, c.text), wanted);
  }
  // Without a schema a text is what it is as JSON.
  expect(CallFormat::kQwenCoder, qwen("text", "12", "plain"), {"", R"(plain({"text":12}))"});
  expect(CallFormat::kGlm, glm("text", "12", "unknown"), {"", R"(unknown({"text":12}))"});
}

TEST(ServeToolCalls, QwenCoderHasAFunctionWithParameters) {
  constexpr CallFormat kFormat = CallFormat::kQwenCoder;
  const std::string two =
      "<tool_call>\n<function=f>\n<parameter=count>\n1\n</parameter>\n<parameter=text>\nif a < b:\n  "
      "c()\n</parameter>\n</function>\n</tool_call>";
  const std::string called = R"x(f({"count":1,"text":"if a < b:\n  c()"}))x";
  expect(kFormat, two, {"", called});
  expect(kFormat, "Let me see.\n\n" + two + "\n" + two + "\n", {"Let me see.", called + called});
  expect(kFormat, "<tool_call><function=f></function></tool_call>", {"", "f({})"});
  expect(kFormat, "<tool_call>\n<function=f>\n<parameter=text>a</parameter>\n</function>", {"", R"(f({"text":"a"}))"});
  // A value may hold what looks like marks.
  for (const std::string value : {"</tool_call>", "a\n</parameter> b", "</function>\n</tool_call>", "<tool_call>",
                                  "<function=g>", "x</parameter></function>"}) {
    expect(kFormat, qwen("text", value) + "!",
           {"!", "f({\"text\":" + boost::json::serialize(boost::json::string(value)) + "})"});
  }
  for (const std::string text :
       {"<tool_call>\n<function=f>\n<parameter=text>\na\n</parameter>\n</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> x",
        "<tool_call>\n<function=>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=>\n1\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f g>\n</function>\n</tool_call>", "<tool_call>\n<function=f>\n<parameter=text>\na",
        "<tool_call>\n<function=f>\n", "<tool_call>\n<function=f>\n</function>\nx</tool_call>", "a <function=f>"}) {
    expect(kFormat, text, {text, ""});
  }
}

TEST(ServeToolCalls, GlmHasKeysAndValues) {
  constexpr CallFormat kFormat = CallFormat::kGlm;
  const std::string two =
      "<tool_call>f\n<arg_key>count</arg_key>\n<arg_value>1</arg_value>\n<arg_key>text</arg_key>\n<arg_value>a\n  "
      "<b</arg_value>\n</tool_call>";
  const std::string called = R"(f({"count":1,"text":"a\n  <b"}))";
  expect(kFormat, two, {"", called});
  expect(kFormat, "Let me see.\n" + two + "\n" + two, {"Let me see.", called + called});
  expect(kFormat, "<tool_call>f<arg_key>count</arg_key><arg_value>1</arg_value></tool_call>",
         {"", R"(f({"count":1}))"});
  expect(kFormat, "<tool_call>f\n</tool_call>", {"", "f({})"});
  for (const std::string value : {"</tool_call>", "</arg_value> b", "<arg_key>", "<tool_call>g</tool_call>"}) {
    expect(kFormat, glm("text", value) + "!",
           {"!", "f({\"text\":" + boost::json::serialize(boost::json::string(value)) + "})"});
  }
  for (const std::string text :
       {"<tool_call>two words</tool_call>", "<tool_call>\n</tool_call> x", "<tool_call>{\"name\": \"f\"}</tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\n</tool_call>",
        "<tool_call>f\n<arg_key></arg_key><arg_value>1</arg_value></tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</tool_call>",
        "<tool_call>f\n<arg_value>1</arg_value></tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\nx</tool_call>", "<arg_key>a</arg_key>",
        "<tool_call>f", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"}) {
    expect(kFormat, text, {text, ""});
  }
}

TEST(ServeToolCalls, DeepSeekHasAListBetweenMarks) {
  const std::string begin = "<｜tool▁calls▁begin｜>", end = "<｜tool▁calls▁end｜>";
  const auto old_call = [](const std::string& name, const std::string& arguments) {
    return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n" + arguments +
           "\n```<｜tool▁call▁end｜>";
  };
  const auto new_call = [](const std::string& name, const std::string& arguments) {
    return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + arguments + "<｜tool▁call▁end｜>";
  };
  for (const CallFormat format : {CallFormat::kDeepSeek3, CallFormat::kDeepSeek31}) {
    for (const auto& call : {std::function(old_call), std::function(new_call)}) {
      const std::string f = call("f", "{\"a\": [1, 2]}"), g = call("function", "{}");
      expect(format, begin + f + end, {"", R"(f({"a":[1,2]}))"});
      expect(format, "Let me see.\n" + begin + f + "\n" + g + end + "\n",
             {"Let me see.", R"(f({"a":[1,2]})function({}))"});
      expect(format, begin + f + g, {"", R"(f({"a":[1,2]})function({}))"});
      expect(format, begin + f + end + " and " + begin + g + end, {" and", R"(f({"a":[1,2]})function({}))"});
      // A call that is none stays; the others of its list are calls.
      const std::string none = call("f", "[1]");
      expect(format, begin + none + f + end + "x", {begin + none + "x", R"(f({"a":[1,2]}))"});
      for (const std::string& text :
           {begin + none + end, begin + call("", "{}") + end, begin + call("a b", "{}") + " x"}) {
        expect(format, text, {text, ""});
      }
    }
    for (const std::string& text : {begin, begin + end, begin + " \n", begin + "x" + end,
                                    begin + "<｜tool▁call▁begin｜>f{}<｜tool▁call▁end｜>" + end, new_call("f", "{}"),
                                    std::string("<｜tool▁calls"), std::string("<｜tool▁sep｜>")}) {
      expect(format, text, {text, ""});
    }
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
      {"Qwen3-Coder", CallFormat::kQwenCoder},
      {"Qwen3.5-4B", CallFormat::kQwenCoder},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", CallFormat::kQwenCoder},
      {"StepFun3.5-Flash", CallFormat::kQwenCoder},
      {"GLM-4.6", CallFormat::kGlm},
      {"GLM-4.7-Flash", CallFormat::kGlm},
      {"deepseek-ai-DeepSeek-V3.1", CallFormat::kDeepSeek31},
      // These write calls in other forms, some of them between the same tags, or none.
      {"Mistral-Small-3.2-24B-Instruct-2506", CallFormat::kNone},
      {"ByteDance-Seed-OSS", CallFormat::kNone},
      // This one writes a call only where the content is null, and here it is empty.
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", CallFormat::kNone},
      {"google-gemma-2-2b-it", CallFormat::kNone}};
  for (const auto& [name, format] : wanted) {
    TokenizerInfo info;
    info.chat_template = read_file(folder / (name + ".jinja"));
    const ChatTemplate chat(info);
    EXPECT_EQ(call_form_of(&chat, *tokenizer).format, format) << name;
    const Thoughts thoughts = chat.thoughts(*tokenizer, std::vector<ChatMessage>{{"user", "x"}});
    EXPECT_EQ(thoughts == Thoughts::kChannels, format == CallFormat::kHarmony) << name;
  }
  EXPECT_EQ(call_form_of(nullptr, *tokenizer).format, CallFormat::kNone);
}

// DeepSeek-V3's template joins the arguments to other texts, so they have to be one.
TEST(ServeToolCalls, ATemplateMayTakeArgumentsAsAText) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_with_ends();
  const auto form_of = [&](const std::string& arguments) {
    TokenizerInfo info;
    info.chat_template =
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ '<｜tool▁calls▁begin｜>"
        "<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.function.name + '\\n```json\\n' + " +
        arguments + " + '\\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>' }}{% endfor %}{% endfor %}";
    const ChatTemplate chat(info);
    return call_form_of(&chat, *tokenizer);
  };
  const CallForm text = form_of("c.function.arguments"), object = form_of("(c.function.arguments | tojson)");
  EXPECT_EQ(text.format, CallFormat::kDeepSeek3);
  EXPECT_TRUE(text.text_arguments);
  EXPECT_EQ(object.format, CallFormat::kDeepSeek3);
  EXPECT_FALSE(object.text_arguments);
  EXPECT_TRUE(object.tokens.empty());
  EXPECT_EQ(form_of("'{}'").format, CallFormat::kNone);
}

TEST(ServeToolCalls, ThatAreForcedFollowASchemaOfAllTools) {
  const auto tools = boost::json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"$ref": "#/$defs/x", "$defs": {"x": {"enum": [{"$ref": "#"}]}}}}}, {"function": {"name": "g"}}])")
                         .get_array();
  const auto schema = [&](CallFormat format, bool several) {
    const ForcedCall call = force_call({.format = format}, tools, several);
    EXPECT_EQ(call.begins, format == CallFormat::kHermes    ? "<tool_call>\n"
                           : format == CallFormat::kMistral ? "[TOOL_CALLS]"
                                                            : "");
    EXPECT_EQ(call.problem, "");
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
  const ForcedCall call = force_call({.format = CallFormat::kHarmony}, tools, true);
  EXPECT_EQ(call.begins, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>");
  EXPECT_EQ(boost::json::parse(call.grammar.text), tools[0].at("function").at("parameters"));
}

boost::json::array two_tools() {
  return boost::json::parse(
             R"([{"function": {"name": "f", "parameters": {"type": "object", "required": ["n"], "properties":
      {"t": {"type": "string", "maxLength": 3}, "n": {"type": "integer"}}}}}, {"function": {"name": "g"}}])")
      .get_array();
}

// Of several functions the model writes the name, and the rest of the header with it.
TEST(ServeToolCalls, ThatAreForcedInHarmonyAreAChoiceOfHeaders) {
  const std::string f = boost::json::serialize(two_tools()[0].at("function").at("parameters"));
  const ForcedCall call =
      force_call({.format = CallFormat::kHarmony, .tokens = {{"<|message|>", 7}}}, two_tools(), true);
  EXPECT_EQ(call.problem, "");
  EXPECT_EQ(call.begins, "<|channel|>commentary to=functions.");
  EXPECT_EQ(call.grammar.form, GrammarForm::kEbnf);
  EXPECT_EQ(call.grammar.text,
            "root ::= call0 | call1\n"
            "call0 ::= \"f \" \"<|constrain|>\" \"json\" Token(7) arguments0\narguments0 ::= %json " +
                f +
                "\n"
                "call1 ::= \"g \" \"<|constrain|>\" \"json\" Token(7) arguments1\n"
                "arguments1 ::= %json {\"type\":\"object\"}\n");
}

TEST(ServeToolCalls, ThatAreForcedInDeepSeeksFormsAreLists) {
  const std::string f = boost::json::serialize(two_tools()[0].at("function").at("parameters"));
  const CallForm old_form{.format = CallFormat::kDeepSeek3, .tokens = {{"<｜tool▁call▁end｜>", 5}}};
  const ForcedCall many = force_call(old_form, two_tools(), true);
  EXPECT_EQ(many.begins, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>");
  EXPECT_EQ(many.grammar.text,
            "root ::= call (\"\\n\" \"<｜tool▁call▁begin｜>\" call)* \"<｜tool▁calls▁end｜>\"\ncall ::= call0 | call1\n"
            "call0 ::= \"function\" \"<｜tool▁sep｜>\" \"f\\x0a```json\\x0a\" arguments0 \"\\n```\" Token(5)\n"
            "arguments0 ::= %json " +
                f +
                "\n"
                "call1 ::= \"function\" \"<｜tool▁sep｜>\" \"g\\x0a```json\\x0a\" arguments1 \"\\n```\" Token(5)\n"
                "arguments1 ::= %json {\"type\":\"object\"}\n");
  const ForcedCall one = force_call({.format = CallFormat::kDeepSeek31}, two_tools(), false);
  EXPECT_EQ(one.grammar.text,
            "root ::= call \"<｜tool▁calls▁end｜>\"\ncall ::= call0 | call1\n"
            "call0 ::= \"f\" \"<｜tool▁sep｜>\" arguments0 \"<｜tool▁call▁end｜>\"\narguments0 ::= %json " +
                f +
                "\n"
                "call1 ::= \"g\" \"<｜tool▁sep｜>\" arguments1 \"<｜tool▁call▁end｜>\"\n"
                "arguments1 ::= %json {\"type\":\"object\"}\n");
}

TEST(ServeToolCalls, ThatAreForcedWithMarkedParametersFollowTheSchemasOrder) {
  const ForcedCall qwen =
      force_call({.format = CallFormat::kQwenCoder, .tokens = {{"</tool_call>", 9}}}, two_tools(), true);
  EXPECT_EQ(qwen.problem, "");
  EXPECT_EQ(qwen.begins, "<tool_call>\n");
  EXPECT_EQ(qwen.grammar.text,
            "root ::= call0 | call1\n"
            "parameter0_0 ::= \"<parameter=t>\\x0a\" value0_0 \"\\n</parameter>\\n\"\n"
            "value0_0 ::= %text </parameter> {\"type\":\"string\",\"maxLength\":3}\n"
            "parameter0_1 ::= \"<parameter=n>\\x0a\" value0_1 \"\\n</parameter>\\n\"\n"
            "value0_1 ::= %json {\"type\":\"integer\"}\n"
            "call0 ::= \"<function=f>\\x0a\" parameter0_0? parameter0_1 \"</function>\\n\" Token(9)\n"
            "call1 ::= \"<function=g>\\x0a\" \"</function>\\n\" Token(9)\n");
  const ForcedCall glm = force_call({.format = CallFormat::kGlm, .tokens = {{"<arg_key>", 3}}}, two_tools(), true);
  EXPECT_EQ(glm.begins, "\n<tool_call>");
  EXPECT_NE(glm.grammar.text.find("parameter0_1 ::= Token(3) \"n\" \"</arg_key>\" line \"<arg_value>\" value0_1 "
                                  "\"</arg_value>\" line\nvalue0_1 ::= %json {\"type\":\"integer\"}\n"),
            std::string::npos)
      << glm.grammar.text;
  EXPECT_NE(glm.grammar.text.find("call0 ::= \"f\" line parameter0_0? parameter0_1 \"</tool_call>\"\n"),
            std::string::npos);
}

// Returns the rule of the value of a parameter with this schema, beside which the arguments' schema defines "word".
std::string value_rule(const std::string& schema) {
  const auto tools = boost::json::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"a": )" + schema +
                                        R"(}, "$defs": {"word": {"enum": ["x", "y"]}}}}}])");
  const ForcedCall call = force_call({.format = CallFormat::kQwenCoder}, tools.get_array(), true);
  EXPECT_EQ(call.problem, "") << schema;
  const size_t at = call.grammar.text.find("value0_0");
  const size_t rule = call.grammar.text.find("value0_0 ::= ", at), end = call.grammar.text.find('\n', rule);
  return call.grammar.text.substr(rule + 13, end - rule - 13);
}

TEST(ServeToolCalls, ThatAreForcedHaveTextsWithoutQuotationMarksWhereTheyAreReadAsTexts) {
  const std::string text = "%text </parameter> ", any = text + R"({"type": "string"})";
  EXPECT_EQ(value_rule(R"({"type": "string", "description": "x"})"), any);
  EXPECT_EQ(value_rule(R"({"type": ["string", "null"]})"), any);
  EXPECT_EQ(value_rule(R"({"anyOf": [{"type": "string"}, {"type": "integer"}], "default": 3})"), any);
  EXPECT_EQ(value_rule("{}"), any);
  EXPECT_EQ(value_rule("true"), any);
  EXPECT_EQ(value_rule(R"({"type": ["string"], "pattern": "a"})"), text + R"({"type":"string","pattern":"a"})");
  EXPECT_EQ(value_rule(R"({"$ref": "#/$defs/word"})"), text + R"({"enum":["x","y"]})");
  EXPECT_EQ(value_rule(R"({"const": "x"})"), text + R"({"const":"x"})");
  EXPECT_EQ(value_rule(R"({"oneOf": [{"const": "x"}, {"$ref": "#/$defs/word"}]})"), "value0_0_1 | value0_0_2");
  // Such a text could be read as a number that the schema does not allow.
  EXPECT_EQ(value_rule(R"({"anyOf": [{"type": "string"}, {"minimum": 3, "type": "integer"}]})"),
            R"(%json {"anyOf":[{"type":"string"},{"minimum":3,"type":"integer"}]})");
  EXPECT_EQ(value_rule(R"({"enum": ["x", 1]})"), R"(%json {"enum":["x",1]})");
  EXPECT_EQ(value_rule(R"({"items": {"$ref": "#/$defs/word"}, "type": "array"})"),
            R"(%json {"items":{"$ref":"#/$defs/word"},"type":"array","$defs":{"word":{"enum":["x","y"]}}})");
}

TEST(ServeToolCalls, ThatCannotBeForcedAreRefused) {
  const auto problem = [](CallFormat format, const std::string& function) {
    return force_call({.format = format}, boost::json::parse("[{\"function\": " + function + "}]").get_array(), true)
        .problem;
  };
  for (const CallFormat format : {CallFormat::kQwenCoder, CallFormat::kGlm}) {
    const auto of = [&](const std::string& schema) {
      return problem(format, R"({"name": "f", "parameters": )" + schema + "}");
    };
    EXPECT_EQ(of(R"({"properties": {"a": {}}, "required": ["a"], "additionalProperties": true})"), "");
    EXPECT_NE(of(R"({"anyOf": [{}]})").find("\"anyOf\""), std::string::npos);
    EXPECT_NE(of(R"({"required": ["a"]})").find("\"a\""), std::string::npos);
    EXPECT_NE(of(R"({"properties": {"a b": {}}})").find("\"a b\""), std::string::npos);
    EXPECT_NE(of(R"({"type": "array"})").find("no object"), std::string::npos);
    EXPECT_NE(of("true").find("not an object"), std::string::npos);
    EXPECT_NE(of(R"({"properties": {"a": {"anyOf": [{"const": "x"}, {"$ref": "#/properties/a"},
                 {"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]}}})")
                  .find("too many choices"),
              std::string::npos);
  }
  for (const CallFormat format : {CallFormat::kQwenCoder, CallFormat::kGlm, CallFormat::kDeepSeek3,
                                  CallFormat::kDeepSeek31, CallFormat::kHarmony}) {
    EXPECT_EQ(problem(format, R"({"name": "f"})"), "");
    EXPECT_NE(problem(format, R"({"name": "a<b"})").find("\"a<b\""), std::string::npos);
  }
}

}  // namespace
}  // namespace tenon::serve
