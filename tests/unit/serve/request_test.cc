// This tests how a body becomes the engine's requests: every field, and every refusal by the field's name.
#include <gtest/gtest.h>

#include "completion_request.h"

namespace tenon::serve {
namespace {

using Overrides = SamplerOverrides;

Abilities abilities() {
  Abilities a;
  a.models = {"tiny", "other"};
  a.chain.processors = {"logit_bias", "repetition_penalty", "frequency_presence", "temperature", "top_k", "top_p",
                        "min_p"};
  a.chain.select = "categorical";
  a.vocab = 100;
  return a;
}

CompletionRequest text(const std::string& fields, const Abilities& a = abilities()) {
  return parse_completion(parse_object(R"({"prompt": "x")" + (fields.empty() ? "" : ", " + fields) + "}"), false, a);
}
CompletionRequest chat(const std::string& fields, const Abilities& a = abilities()) {
  return parse_completion(
      parse_object(R"({"messages": [{"role": "user", "content": "x"}])" + (fields.empty() ? "" : ", " + fields) + "}"),
      true, a);
}

// Returns the field that a refusal names; "none" where there is none.
template <class Parse>
std::string refused(const Parse& parse) {
  try {
    parse();
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status, 400U) << e.what();
    EXPECT_FALSE(e.param.empty()) << e.what();
    EXPECT_NE(std::string(e.what()).find(e.param), std::string::npos) << e.what();
    return e.param;
  }
  return "none";
}
std::string refused_text(const std::string& fields, const Abilities& a = abilities()) {
  return refused([&] { text(fields, a); });
}
std::string refused_chat(const std::string& fields, const Abilities& a = abilities()) {
  return refused([&] { chat(fields, a); });
}
std::string refused_messages(const std::string& messages) {
  return refused([&] { parse_completion(parse_object("{\"messages\": " + messages + "}"), true, abilities()); });
}
std::string refused_prompt(const std::string& prompt) {
  return refused([&] { parse_completion(parse_object("{\"prompt\": " + prompt + "}"), false, abilities()); });
}
Overrides sampler(const std::string& fields, const Abilities& a = abilities()) {
  return text(fields, a).prompts.front().sampler;
}

TEST(ServeRequest, DefaultsAreOpenAis) {
  const CompletionRequest t = text("");
  EXPECT_FALSE(t.chat || t.stream || t.echo || t.logprobs || t.include_usage);
  EXPECT_EQ(t.n, 1U);
  EXPECT_EQ(t.prompts.front().max_new_tokens, 16U);
  EXPECT_FALSE(t.seed.has_value());
  EXPECT_TRUE(t.prompts.front().sampler.empty());
  EXPECT_GT(chat("").prompts.front().max_new_tokens, 1000000U);  // it goes on until the cache is full
}

TEST(ServeRequest, TakesEveryField) {
  const CompletionRequest t = text(
      R"("model": "other", "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false}, "n": 3,
         "max_tokens": 7, "stop": ["a", "", "b"], "seed": -1, "logprobs": 4, "ignore_eos": true, "parse_special": true, "priority": 5, "user": "me",
         "best_of": 3, "metadata": {"a": 1}, "response_format": {"type": "text"}, "suffix": "")");
  EXPECT_TRUE(t.stream && t.include_usage && t.logprobs);
  EXPECT_FALSE(t.continuous_usage);
  EXPECT_TRUE(text(R"("stream": true, "stream_options": {"continuous_usage_stats": true})").continuous_usage);
  EXPECT_EQ(t.n, 3U);
  EXPECT_EQ(t.choices(), 3U);
  EXPECT_EQ(t.seed, ~uint64_t{0});
  const Request& r = t.prompts.front();
  EXPECT_EQ(r.prompt, "x");
  EXPECT_EQ(r.max_new_tokens, 7U);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(r.logprobs && r.ignore_end && r.parse_special);
  EXPECT_FALSE(text("").prompts.front().parse_special);
  EXPECT_EQ(r.top_logprobs, 4U);
  EXPECT_EQ(r.priority, -5);

  const CompletionRequest c = chat(
      R"("max_completion_tokens": 9, "max_tokens": 9, "stop": "end", "logprobs": true, "top_logprobs": 2, "tools": [],
         "tool_choice": "none", "parallel_tool_calls": true, "modalities": ["text"], "temperature": null, "store": false)");
  EXPECT_EQ(c.prompts.front().max_new_tokens, 9U);
  EXPECT_EQ(c.prompts.front().stop, std::vector<std::string>{"end"});
  EXPECT_EQ(c.prompts.front().top_logprobs, 2U);
  EXPECT_EQ(c.prompts.front().chat.front().content, "x");
  EXPECT_TRUE(text(R"("echo": true, "max_tokens": 0)").echo);
}

TEST(ServeRequest, TakesPromptsOfAllKinds) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion(parse_object("{\"n\": 2, \"prompt\": " + prompt + "}"), false, abilities());
  };
  EXPECT_EQ(prompts("[1, 2, 99]").prompts.front().tokens, (std::vector<int32_t>{1, 2, 99}));
  const CompletionRequest mixed = prompts(R"(["a", [5], "b"])");
  EXPECT_EQ(mixed.choices(), 6U);
  EXPECT_EQ(mixed.prompts[0].prompt, "a");
  EXPECT_EQ(mixed.prompts[1].tokens, std::vector<int32_t>{5});
  EXPECT_EQ(mixed.prompts[2].prompt, "b");
  for (const char* bad :
       {"null", "3", "[]", "{}", "[[]]", "[100]", "[-1]", "[1, \"a\"]", "[[1], 2]", "[1.5]", "[true]"}) {
    EXPECT_EQ(refused_prompt(bad), "prompt") << bad;
  }
  std::string many = "[\"x\"";
  for (int i = 0; i < 128; ++i) many += ", \"x\"";
  EXPECT_EQ(refused_prompt(many + "]"), "prompt");
}

constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";

Abilities abilities_with_calls() {
  Abilities a = abilities();
  a.calls.format = CallFormat::kHermes;
  return a;
}

TEST(ServeRequest, TakesTools) {
  const CompletionRequest with = chat(kTools, abilities_with_calls());
  EXPECT_EQ(with.calls, CallFormat::kHermes);
  EXPECT_EQ(with.parameter_types->of("f", "x"), kAnyType);
  EXPECT_EQ(with.prompts.front().chat_options.tools,
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(chat(kTools + std::string(R"(, "tool_choice": "auto")"), abilities_with_calls()).calls,
            CallFormat::kHermes);
  for (const char* fields : {"\"tools\": []", "\"tools\": null", "\"tool_choice\": \"auto\""}) {
    EXPECT_EQ(chat(fields, abilities_with_calls()).calls, CallFormat::kNone) << fields;
  }
  const CompletionRequest none = chat(kTools + std::string(R"(, "tool_choice": "none")"));
  EXPECT_EQ(none.calls, CallFormat::kNone);
  EXPECT_EQ(none.prompts.front().chat_options.tools, "");

  EXPECT_EQ(refused_chat(kTools), "tools");  // the model's template writes no calls
  const auto refused_with = [](const std::string& fields) { return refused_chat(fields, abilities_with_calls()); };
  EXPECT_EQ(refused_with(R"("tools": {})"), "tools");
  EXPECT_EQ(refused_with(R"("tools": [3])"), "tools[0]");
  EXPECT_EQ(refused_with(R"("tools": [{"type": "robot"}])"), "tools[0].type");
  EXPECT_EQ(refused_with(R"("tools": [{"type": "function"}])"), "tools[0].function");
  EXPECT_EQ(refused_with(R"("tools": [{"type": "function", "function": {}}])"), "tools[0].function.name");
  EXPECT_EQ(refused_with(R"("tool_choice": "perhaps")"), "tool_choice");
}

constexpr const char* kTwoTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
                 {"type": "function", "function": {"name": "g"}}])";

TEST(ServeRequest, TakesCallsThatAreForced) {
  const CompletionRequest any = chat(kTwoTools + std::string(R"(, "tool_choice": "required")"), abilities_with_calls());
  EXPECT_EQ(any.calls, CallFormat::kHermes);
  EXPECT_EQ(any.answers_begin, "<tool_call>\n");
  EXPECT_EQ(any.prompts.front().chat_options.answer_begins, any.answers_begin);
  EXPECT_EQ(any.grammar->text.form, GrammarForm::kJsonSchema);
  EXPECT_EQ(any.grammar->field, "tools");
  EXPECT_NE(any.grammar->text.text.find(R"("const":"f")"), std::string::npos);
  EXPECT_NE(any.grammar->text.text.find(R"("const":"g")"), std::string::npos);

  const CompletionRequest named =
      chat(kTwoTools + std::string(R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})"),
           abilities_with_calls());
  EXPECT_EQ(named.grammar->text.text.find(R"("const":"f")"), std::string::npos);
  EXPECT_NE(named.grammar->text.text.find(R"("const":"g")"), std::string::npos);
  EXPECT_NE(named.prompts.front().chat_options.tools.find(R"("name":"f")"), std::string::npos);

  const auto refused_with = [](const std::string& fields) { return refused_chat(fields, abilities_with_calls()); };
  const std::string tools = kTwoTools + std::string(", ");
  EXPECT_EQ(refused_with(R"("tool_choice": "required")"), "tool_choice");
  EXPECT_EQ(refused_with(R"("tools": [], "tool_choice": "required")"), "tool_choice");
  EXPECT_EQ(refused_with(tools + R"("tool_choice": {"type": "function", "function": {"name": "h"}})"), "tool_choice");
  EXPECT_EQ(refused_with(tools + R"("tool_choice": {"type": "function"})"), "tool_choice.function");
  EXPECT_EQ(refused_with(tools + R"("tool_choice": {"type": "function", "function": {}})"),
            "tool_choice.function.name");
  EXPECT_EQ(refused_with(tools + R"("tool_choice": "required", "ignore_eos": true)"), "ignore_eos");
  EXPECT_EQ(refused_with(tools + R"("tool_choice": "required", "response_format": {"type": "json_object"})"),
            "tool_choice");
  Abilities no_grammar = abilities_with_calls();
  no_grammar.grammar_problem = "structured output is not available";
  EXPECT_EQ(refused_chat(tools + R"("tool_choice": "required")", no_grammar), "tool_choice");
}

// Such models write what they think before their text, unless the prompt has begun the text.
TEST(ServeRequest, BeginsTheAnswersOfModelsWithChannels) {
  Abilities a = abilities();
  a.calls.format = CallFormat::kHarmony;
  const auto begins = [&](const std::string& fields) {
    const CompletionRequest r = chat(fields, a);
    EXPECT_EQ(r.prompts.front().chat_options.answer_begins, r.answers_begin);
    return r.answers_begin;
  };
  EXPECT_EQ(begins(""), "");
  EXPECT_EQ(begins(kTools), "");
  EXPECT_EQ(begins(R"("response_format": {"type": "json_object"})"), "<|channel|>final<|message|>");
  const std::string call = "<|channel|>commentary to=functions.", json = " <|constrain|>json<|message|>";
  EXPECT_EQ(begins(kTools + std::string(R"(, "tool_choice": "required")")), call + "f" + json);
  EXPECT_EQ(begins(kTwoTools + std::string(R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})")),
            call + "g" + json);
  EXPECT_EQ(begins(kTwoTools + std::string(R"(, "tool_choice": "required")")), call);
  EXPECT_EQ(refused_chat(
                R"("tools": [{"type": "function", "function": {"name": "f<|end|>"}}], "tool_choice": "required")", a),
            "tools");
}

TEST(ServeRequest, TakesVariablesOfTheTemplate) {
  EXPECT_EQ(chat(R"("chat_template_kwargs": {"enable_thinking": false})").prompts.front().chat_options.variables,
            R"({"enable_thinking":false})");
  EXPECT_EQ(refused_chat(R"("chat_template_kwargs": [])"), "chat_template_kwargs");
}

TEST(ServeRequest, TakesCallsAndTheirResults) {
  const CompletionRequest c = parse_completion(parse_object(R"({"messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "index": 0,
       "function": {"name": "f", "arguments": "{\"a\": [1]}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "two"}]})"),
                                               true, abilities());
  const auto& messages = c.prompts.front().chat;
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[1].more,
            R"({"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"a":[1]}}}]})");
  Abilities with_texts = abilities();
  with_texts.calls.text_arguments = true;
  const CompletionRequest text = parse_completion(
      parse_object(R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "c1", "type": "function",
                       "function": {"name": "f", "arguments": "{\"a\": [1]}"}}]}]})"),
      true, with_texts);
  EXPECT_EQ(text.prompts.front().chat[0].more,
            R"({"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":[1]}"}}]})");
  EXPECT_EQ(messages[2].role, "tool");
  EXPECT_EQ(messages[2].content, "two");
  EXPECT_EQ(messages[2].more, R"({"tool_call_id":"c1"})");
  const auto refused_call = [](const std::string& call) {
    return refused_messages(R"([{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": )" +
                            call + "}]}]");
  };
  EXPECT_EQ(refused_call(R"({"arguments": "{}"})"), "messages[0].tool_calls[0].function.name");
  EXPECT_EQ(refused_call(R"({"name": "f", "arguments": "[]"})"), "messages[0].tool_calls[0].function.arguments");
  EXPECT_EQ(refused_call(R"({"name": "f", "arguments": "{"})"), "messages[0].tool_calls[0].function.arguments");
}

TEST(ServeRequest, TakesConversations) {
  const CompletionRequest c = parse_completion(parse_object(R"({"messages": [
      {"role": "developer", "content": "be brief"}, {"role": "user", "name": "me", "content": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}]}, {"role": "assistant", "content": "c", "refusal": null, "tool_calls": null}]})"),
                                               true, abilities());
  const auto& messages = c.prompts.front().chat;
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[1].content, "ab");
  EXPECT_EQ(messages[2].role, "assistant");
  EXPECT_EQ(refused_messages("null"), "messages");
  EXPECT_EQ(refused_messages("[]"), "messages");
  EXPECT_EQ(refused_messages("[3]"), "messages[0]");
  EXPECT_EQ(refused_messages(R"([{"role": "robot", "content": "x"}])"), "messages[0].role");
  EXPECT_EQ(refused_messages(R"([{"role": "user"}])"), "messages[0].content");
  EXPECT_EQ(refused_messages(R"([{"role": "user", "content": 3}])"), "messages[0].content");
  EXPECT_EQ(refused_messages(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"),
            "messages[0].content.type");
  EXPECT_EQ(refused_messages(R"([{"role": "user", "content": [{"type": "text"}]}])"), "messages[0].content.text");
  EXPECT_EQ(refused_messages(R"([{"role": "assistant", "content": "x", "tool_calls": [{}]}])"),
            "messages[0].tool_calls[0].function");
  EXPECT_EQ(refused_messages(R"([{"role": "user", "content": "x", "tool_calls": []}])"), "messages[0].tool_calls");
  EXPECT_EQ(refused_messages(R"([{"role": "user", "content": "x", "what": 1}])"), "messages[0].what");
  Abilities none = abilities();
  none.chat_problem = "the model has no chat template";
  EXPECT_EQ(refused_chat("", none), "messages");
}

TEST(ServeRequest, RefusesByName) {
  const std::pair<const char*, const char*> both[] = {
      {R"("n": 0)", "n"},
      {R"("n": 129)", "n"},
      {R"("n": 1.5)", "n"},
      {R"("stream": 1)", "stream"},
      {R"("stream_options": {})", "stream_options"},
      {R"("stream": true, "stream_options": 3)", "stream_options"},
      {R"("stream": true, "stream_options": {"what": 1})", "stream_options.what"},
      {R"("stream": true, "stream_options": {"continuous_usage_stats": 1})", "stream_options.continuous_usage_stats"},
      {R"("max_tokens": -1)", "max_tokens"},
      {R"("max_tokens": "7")", "max_tokens"},
      {R"("stop": 3)", "stop"},
      {R"("stop": ["a", 3])", "stop"},
      {R"("seed": "a")", "seed"},
      {R"("seed": 1e30)", "seed"},
      {R"("temperature": -0.1)", "temperature"},
      {R"("temperature": "1")", "temperature"},
      {R"("temperature": 1e999)", ""},  // this is no number of JSON's
      {R"("top_p": 1.1)", "top_p"},
      {R"("min_p": -1)", "min_p"},
      {R"("top_k": -2)", "top_k"},
      {R"("top_k": 2.5)", "top_k"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("frequency_penalty": 2.1)", "frequency_penalty"},
      {R"("presence_penalty": -2.1)", "presence_penalty"},
      {R"("logit_bias": 3)", "logit_bias"},
      {R"("logit_bias": {"a": 1})", "logit_bias"},
      {R"("logit_bias": {"100": 1})", "logit_bias"},
      {R"("logit_bias": {"01": 1})", "logit_bias"},
      {R"("logit_bias": {"1": 101})", "logit_bias.1"},
      {R"("logit_bias": {"1": null})", "logit_bias.1"},
      {R"("response_format": {"type": "grammar"})", "response_format.type"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})", "response_format.json_schema.name"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a"}})",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": 1}})",
       "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_object", "schema": {}})", "response_format.schema"},
      {R"("best_of": 2)", "best_of"},
      {R"("use_beam_search": true)", "use_beam_search"},
      {R"("min_tokens": 3)", "min_tokens"},
      {R"("stop_token_ids": [3])", "stop_token_ids"},
      {R"("include_stop_str_in_output": true)", "include_stop_str_in_output"},
      {R"("skip_special_tokens": false)", "skip_special_tokens"},
      {R"("guided_json": 3)", "guided_json"},
      {R"("guided_regex": {})", "guided_regex"},
      {R"("guided_grammar": 1)", "guided_grammar"},
      {R"("guided_choice": [])", "guided_choice"},
      {R"("guided_choice": ["a", 1])", "guided_choice"},
      {R"("guided_json": {}, "guided_regex": "a")", "guided_regex"},
      {R"("response_format": {"type": "json_object"}, "guided_json": {})", "guided_json"},
      {R"("guided_json": {}, "ignore_eos": true)", "ignore_eos"},
      {R"("guided_decoding_backend": "outlines")", "guided_decoding_backend"},
      {R"("structured_outputs": {"json": {}, "regex": "a"})", "structured_outputs.regex"},
      {R"("structured_outputs": {"whitespace_pattern": " "})", "structured_outputs.whitespace_pattern"},
      {R"("tempature": 1)", "tempature"},
      {R"("model": 3)", "model"},
  };
  for (const auto& [fields, param] : both) {
    if (*param == '\0') {
      EXPECT_THROW(text(fields), ApiError);
      continue;
    }
    EXPECT_EQ(refused_text(fields), param) << fields;
    EXPECT_EQ(refused_chat(fields), param) << fields;
  }
  EXPECT_EQ(refused_text(R"("logprobs": true)"), "logprobs");
  EXPECT_EQ(refused_text(R"("logprobs": 65)"), "logprobs");
  EXPECT_EQ(refused_text(R"("echo": true, "logprobs": 1)"), "echo");
  EXPECT_EQ(refused_text(R"("suffix": "end")"), "suffix");
  EXPECT_EQ(refused_text(R"("max_completion_tokens": 5)"), "max_completion_tokens");
  EXPECT_EQ(refused_text(R"("messages": [])"), "messages");
  EXPECT_EQ(refused_chat(R"("prompt": "x")"), "prompt");
  EXPECT_EQ(refused_chat(R"("max_tokens": 0)"), "max_tokens");
  EXPECT_EQ(refused_chat(R"("max_tokens": 5, "max_completion_tokens": 6)"), "max_completion_tokens");
  EXPECT_EQ(refused_chat(R"("logprobs": 1)"), "logprobs");
  EXPECT_EQ(refused_chat(R"("top_logprobs": 2)"), "top_logprobs");
  EXPECT_EQ(refused_chat(R"("logprobs": true, "top_logprobs": 21)"), "top_logprobs");
  EXPECT_EQ(refused_chat(R"("functions": [])"), "functions");
  EXPECT_EQ(refused_chat(R"("reasoning_effort": "low")"), "reasoning_effort");
  EXPECT_EQ(refused_chat(R"("modalities": ["audio"])"), "modalities");
  EXPECT_EQ(refused_chat(R"("echo": true)"), "echo");
  std::string stops = R"("stop": ["a")";
  for (int i = 0; i < 16; ++i) stops += ", \"a\"";
  EXPECT_EQ(refused_text(stops + "]"), "stop");
}

TEST(ServeRequest, AModelThatIsNotServedIs404) {
  try {
    text(R"("model": "gpt-4")");
    FAIL();
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status, 404U);
    EXPECT_EQ(e.code, "model_not_found");
    EXPECT_NE(std::string(e.what()).find("tiny, other"), std::string::npos);
  }
}

TEST(ServeRequest, WhatIsNoObjectIsNoRequest) {
  for (const char* body : {"", "{", "[]", "3", "null", "\"x\"", "{\"a\": 1} x", "{\"a\": \"\xff\"}", "{'a': 1}"}) {
    EXPECT_THROW(parse_object(body), ApiError) << body;
  }
  EXPECT_THROW(parse_object("{\"a\":" + std::string(100000, '[')), ApiError);
}

TEST(ServeSampler, FieldsAreParametersOfTheChain) {
  EXPECT_EQ(sampler(R"("temperature": 0.25)"), (Overrides{{"temperature.value", "0.25"}}));
  EXPECT_EQ(sampler(R"("top_k": 40, "top_p": 0.9, "min_p": 0.1)"),
            (Overrides{{"top_k.k", "40"}, {"top_p.p", "0.9"}, {"min_p.p", "0.1"}}));
  EXPECT_EQ(sampler(R"("top_k": -1)"), (Overrides{{"top_k.k", "0"}}));
  EXPECT_EQ(sampler(R"("repetition_penalty": 1.5, "frequency_penalty": 1, "presence_penalty": -0.5)"),
            (Overrides{{"repetition_penalty.penalty", "1.5"},
                       {"frequency_presence.frequency", "1"},
                       {"frequency_presence.presence", "-0.5"}}));
  EXPECT_EQ(sampler(R"("logit_bias": {"7": -100, "3": 1e-3})"), (Overrides{{"logit_bias.bias", "7:-100,3:0.001"}}));
  EXPECT_EQ(sampler(R"("logit_bias": {})"), Overrides{});
}

TEST(ServeSampler, AtTemperature0TheLikeliestTokenIsAllThatIsLeft) {
  EXPECT_EQ(sampler(R"("temperature": 0, "top_k": 50, "min_p": 0.2)"),
            (Overrides{{"temperature.value", "1"}, {"top_k.k", "1"}, {"min_p.p", "0.2"}}));
  Abilities a = abilities();
  a.chain.processors = {"min_p"};
  EXPECT_EQ(sampler(R"("temperature": 0, "min_p": 0.2)", a), (Overrides{{"min_p.p", "1"}}));
  a.chain.processors = {"temperature"};
  EXPECT_EQ(sampler(R"("temperature": 0)", a), (Overrides{{"temperature.value", "0"}}));
  a.chain.processors = {};
  EXPECT_EQ(refused_text(R"("temperature": 0)", a), "temperature");
  a.chain.select = "greedy";
  EXPECT_EQ(sampler(R"("temperature": 0)", a), Overrides{});
  EXPECT_EQ(refused_text(R"("temperature": 1)", a), "temperature");
}

TEST(ServeSampler, WhatTheChainLacksIsRefusedUnlessItChangesNothing) {
  Abilities a = abilities();
  a.chain.processors = {};
  const std::pair<const char*, const char*> fields[] = {{"temperature", "1.0"},
                                                        {"top_p", "1"},
                                                        {"min_p", "0"},
                                                        {"repetition_penalty", "1.0"},
                                                        {"frequency_penalty", "0.0"},
                                                        {"presence_penalty", "0"},
                                                        {"top_k", "0"},
                                                        {"logit_bias", "{}"}};
  for (const auto& [field, neutral] : fields) {
    const std::string name = "\"" + std::string(field) + "\": ";
    EXPECT_EQ(sampler(name + neutral, a), Overrides{}) << field;
    const bool object = *neutral == '{';
    EXPECT_EQ(refused_text(name + (object ? "{\"1\": 1}" : std::string(field) == "top_k" ? "5" : "0.5"), a), field);
  }
}

TEST(Grammars, AreReadWhereTheyAreStated) {
  struct Case {
    const char *fields, *field, *text;
    GrammarForm form;
    bool closed;
  };
  const Case all[] = {
      {R"("response_format": {"type": "json_object"})", "response_format.type", R"({"type": "object"})",
       GrammarForm::kJsonSchema, false},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type":"null"}}})",
       "response_format.json_schema.schema", R"({"type":"null"})", GrammarForm::kJsonSchema, true},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": true, "strict": false}})",
       "response_format.json_schema.schema", "true", GrammarForm::kJsonSchema, false},
      {R"("guided_json": {"b":1,"a":2})", "guided_json", R"({"b":1,"a":2})", GrammarForm::kJsonSchema, true},
      {R"("guided_json": "{}")", "guided_json", "{}", GrammarForm::kJsonSchema, true},
      {R"("guided_regex": "a+")", "guided_regex", "a+", GrammarForm::kRegex, true},
      {R"("guided_grammar": "root ::= \"a\"")", "guided_grammar", R"(root ::= "a")", GrammarForm::kEbnf, true},
      {R"("guided_choice": ["a\"", "b\\\n"])", "guided_choice", "root ::= \"a\\\"\" | \"b\\\\\\x0a\"\n",
       GrammarForm::kEbnf, true},
      {R"("structured_outputs": {"json_object": true})", "structured_outputs.json_object", R"({"type": "object"})",
       GrammarForm::kJsonSchema, false},
      {R"("structured_outputs": {"regex": "b"})", "structured_outputs.regex", "b", GrammarForm::kRegex, true}};
  for (const Case& c : all) {
    SCOPED_TRACE(c.fields);
    const CompletionRequest request = text(c.fields);
    ASSERT_TRUE(request.grammar.has_value());
    EXPECT_EQ(request.grammar->field, c.field);
    EXPECT_EQ(request.grammar->text.text, c.text);
    EXPECT_EQ(request.grammar->text.form, c.form);
    EXPECT_EQ(request.grammar->text.closed, c.closed);
    Abilities none = abilities();
    none.grammar_problem = "there is no engine";
    EXPECT_EQ(refused_text(c.fields, none), c.field);
  }
  EXPECT_FALSE(text(R"("response_format": {"type": "text"}, "structured_outputs": {})").grammar.has_value());
}

}  // namespace
}  // namespace tenon::serve
