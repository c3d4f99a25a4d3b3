// This tests how results of the engine become JSON and server-sent events.
#include "answer.h"

#include <gtest/gtest.h>

#include "tenon/core/error.h"

namespace tenon::serve {
namespace {

namespace json = boost::json;

const Tokenizer& tokenizer() {
  static const auto ids = make_id_tokenizer(100);
  return *ids;
}

CompletionRequest request(bool chat, bool stream, uint32_t n = 1) {
  CompletionRequest r;
  r.chat = chat;
  r.stream = stream;
  r.n = n;
  r.prompts.resize(1);
  return r;
}

Answer answer(const CompletionRequest& r, std::vector<std::string> echoes = {}) {
  AnswerHead head;
  head.id = "id-1";
  head.model = "tiny";
  head.fingerprint = "print";
  head.created = 77;
  return Answer(r, std::move(head), std::move(echoes), tokenizer(), 50);
}

Event token(int32_t id, const std::string& text, uint32_t choice = 0) {
  Event e;
  e.token = id;
  e.text = text;
  e.choice = choice;
  return e;
}
Event last(FinishReason finish, const std::string& text = "", uint32_t choice = 0) {
  Event e;
  e.last = true;
  e.finish = finish;
  e.text = text;
  e.choice = choice;
  e.prompt_tokens = 5;
  e.reused = 4;
  e.tokens = 3;
  return e;
}
Event failed(ErrorCode code, uint32_t prompt_tokens = 5) {
  Event e = last(FinishReason::kError);
  e.prompt_tokens = prompt_tokens;
  e.failure = failure_by(std::make_exception_ptr(Error(code, "it went wrong")));
  return e;
}

// Returns the objects of a stream, without its end; fails the test if lines are not as they have to be.
std::vector<json::object> objects(std::string stream, bool ended = true) {
  const std::string end = "data: [DONE]\n\n";
  EXPECT_EQ(stream.ends_with(end), ended) << stream;
  if (ended) stream.resize(stream.size() - end.size());
  std::vector<json::object> all;
  while (!stream.empty()) {
    const size_t at = stream.find("\n\n");
    EXPECT_TRUE(stream.starts_with("data: {") && at != std::string::npos) << stream;
    if (at == std::string::npos) break;
    all.push_back(json::parse(stream.substr(6, at - 6)).as_object());
    stream.erase(0, at + 2);
  }
  return all;
}

TEST(ServeAnswer, AtOnce) {
  Answer a = answer(request(false, false));
  EXPECT_EQ(a.add({last(FinishReason::kEndOfText, "some \"text\"\n")}), "");
  ASSERT_TRUE(a.complete());
  EXPECT_EQ(
      json::parse(a.whole()),
      json::parse(R"({"id": "id-1", "object": "text_completion", "created": 77, "model": "tiny", "system_fingerprint":
      "print", "choices": [{"index": 0, "text": "some \"text\"\n", "logprobs": null, "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8,
      "prompt_tokens_details": {"cached_tokens": 4}}})"));
  Answer chat = answer(request(true, false));
  chat.add({last(FinishReason::kLength, "hi")});
  EXPECT_EQ(
      json::parse(chat.whole()),
      json::parse(R"({"id": "id-1", "object": "chat.completion", "created": 77, "model": "tiny", "system_fingerprint":
      "print", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi", "refusal": null},
      "logprobs": null, "finish_reason": "length"}], "usage": {"prompt_tokens": 5, "completion_tokens": 3,
      "total_tokens": 8, "prompt_tokens_details": {"cached_tokens": 4}}})"));
}

TEST(ServeAnswer, SeveralAnswersCountTheirPromptOnce) {
  CompletionRequest r = request(false, false, 2);
  r.prompts.resize(2);
  Answer a = answer(r, {"p", "q"});
  for (const uint32_t choice : {3U, 0U, 2U})
    a.add({last(FinishReason::kCapacity, "t" + std::to_string(choice), choice)});
  EXPECT_FALSE(a.complete());
  a.add({last(FinishReason::kStopString, "t1", 1)});
  ASSERT_TRUE(a.complete());
  const json::value whole = json::parse(a.whole());
  EXPECT_EQ(whole.at("usage"), json::parse(R"({"prompt_tokens": 10, "completion_tokens": 12, "total_tokens": 22,
      "prompt_tokens_details": {"cached_tokens": 8}})"));
  const char* texts[] = {"pt0", "pt1", "qt2", "qt3"};
  const char* reasons[] = {"length", "stop", "length", "length"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(whole.at("choices").at(i).at("text"), texts[i]);
    EXPECT_EQ(whole.at("choices").at(i).at("finish_reason"), reasons[i]);
  }
}

TEST(ServeAnswer, AStreamOfText) {
  CompletionRequest r = request(false, true);
  r.include_usage = true;
  Answer a = answer(r, {"prompt"});
  std::string stream = a.add({token(1, "a"), token(2, "")});
  stream += a.add({token(3, "b")});
  EXPECT_FALSE(a.complete());
  stream += a.add({last(FinishReason::kLength)});
  ASSERT_TRUE(a.complete());
  const auto all = objects(stream);
  ASSERT_EQ(all.size(), 5U);
  const char* texts[] = {"prompt", "a", "b", ""};
  for (size_t i = 0; i < 4; ++i) {
    const json::value& choice = all[i].at("choices").at(0);
    EXPECT_EQ(choice.at("text"), texts[i]);
    EXPECT_EQ(choice.at("finish_reason"), i == 3 ? json::value("length") : json::value());
    EXPECT_TRUE(all[i].at("usage").is_null());
    EXPECT_EQ(all[i].at("object"), "text_completion");
  }
  EXPECT_TRUE(all[4].at("choices").as_array().empty());
  EXPECT_EQ(all[4].at("usage").at("total_tokens"), 8);
}

TEST(ServeAnswer, SaysTheUsageSoFarInEveryChunkIfAsked) {
  CompletionRequest r = request(false, true);
  r.include_usage = r.continuous_usage = true;
  r.prompt_sizes = {5};
  Answer a = answer(r);
  std::string stream = a.add({token(1, "a"), token(2, "b")});
  stream += a.add({token(3, "c"), last(FinishReason::kLength)});
  const std::vector<json::object> all = objects(stream);
  ASSERT_EQ(all.size(), 5U);
  const std::vector<int> tokens = {1, 2, 3, 3, 3};
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].at("usage").at("completion_tokens"), tokens[i]) << i;
    EXPECT_EQ(all[i].at("usage").at("prompt_tokens"), 5) << i;
  }
}

TEST(ServeAnswer, AStreamOfAConversation) {
  Answer a = answer(request(true, true, 2));
  std::string stream = a.add({token(1, "a", 1), token(1, "b", 0), last(FinishReason::kEndOfText, "", 1)});
  stream += a.add({last(FinishReason::kLength, "", 0)});
  const auto all = objects(stream);
  ASSERT_EQ(all.size(), 6U);
  const char* expected[] = {
      R"({"index": 1, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null})",
      R"({"index": 1, "delta": {"content": "a"}, "logprobs": null, "finish_reason": null})",
      R"({"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null})",
      R"({"index": 0, "delta": {"content": "b"}, "logprobs": null, "finish_reason": null})",
      R"({"index": 1, "delta": {}, "logprobs": null, "finish_reason": "stop"})",
      R"({"index": 0, "delta": {}, "logprobs": null, "finish_reason": "length"})"};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(all[i].at("choices").at(0), json::parse(expected[i])) << i;
    EXPECT_EQ(all[i].at("object"), "chat.completion.chunk");
    EXPECT_FALSE(all[i].contains("usage"));
  }
}

TEST(ServeAnswer, CallsOfTools) {
  CompletionRequest r = request(true, false);
  r.calls = CallFormat::kHermes;
  Answer a = answer(r);
  a.add({token(1, "Well.\n<tool_"), token(2, "call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"),
         last(FinishReason::kEndOfText)});
  const json::value choice = json::parse(a.whole()).at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  const json::value& message = choice.at("message");
  EXPECT_EQ(message.at("content"), "Well.");
  const json::value& call = message.at("tool_calls").at(0);
  EXPECT_EQ(call.at("id").as_string().size(), 9U);
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("function"), json::parse(R"({"name": "f", "arguments": "{\"a\":1}"})"));

  Answer alone = answer(r);
  alone.add({last(FinishReason::kEndOfText, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>")});
  EXPECT_TRUE(json::parse(alone.whole()).at("choices").at(0).at("message").at("content").is_null());
  Answer none = answer(r);
  none.add({token(1, "a <tool"), last(FinishReason::kEndOfText)});
  const json::value text = json::parse(none.whole()).at("choices").at(0);
  EXPECT_EQ(text.at("finish_reason"), "stop");
  EXPECT_EQ(text.at("message"), json::parse(R"({"role": "assistant", "content": "a <tool", "refusal": null})"));
}

TEST(ServeAnswer, AStreamWithCallsOfTools) {
  CompletionRequest r = request(true, true);
  r.calls = CallFormat::kHermes;
  Answer a = answer(r);
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const auto all =
      objects(a.add({token(1, "Well.\n<tool_"), token(2, call.substr(6) + call), last(FinishReason::kEndOfText)}));
  ASSERT_EQ(all.size(), 5U);
  const auto delta = [&](size_t i) { return all[i].at("choices").at(0).at("delta").as_object(); };
  EXPECT_EQ(delta(0), json::parse(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(delta(1), json::parse(R"({"content": "Well."})"));
  for (const int64_t index : {0, 1}) {
    const json::object d = delta(static_cast<size_t>(index) + 2);
    EXPECT_FALSE(d.contains("content"));
    const json::value& one = d.at("tool_calls").at(0);
    EXPECT_EQ(one.at("index"), index);
    EXPECT_EQ(one.at("function"), json::parse(R"({"name": "f", "arguments": "{}"})"));
  }
  EXPECT_NE(delta(2).at("tool_calls").at(0).at("id"), delta(3).at("tool_calls").at(0).at("id"));
  EXPECT_TRUE(delta(4).empty());
  EXPECT_EQ(all[4].at("choices").at(0).at("finish_reason"), "tool_calls");
}

// Values without quotation marks are of the types that the request's tools state, and a call comes at its end.
TEST(ServeAnswer, AStreamWithCallsWithoutQuotationMarks) {
  CompletionRequest r = request(true, true);
  r.calls = CallFormat::kQwenCoder;
  r.parameter_types = std::make_shared<const ParameterTypes>(
      json::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}])")
          .get_array());
  r.answers_begin = "<tool_call>\n";
  Answer a = answer(r);
  const auto before =
      objects(a.add({token(1, "<function=f>\n<parameter=a>\n1"), token(2, "\n</parameter>\n</function>\n")}), false);
  ASSERT_EQ(before.size(), 1U);
  EXPECT_EQ(before[0].at("choices").at(0).at("delta"), json::parse(R"({"role": "assistant", "content": ""})"));
  const auto all = objects(a.add({token(3, "</tool_call>"), last(FinishReason::kEndOfText)}));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(json::value(all[0]).at_pointer("/choices/0/delta/tool_calls/0/function"),
            json::parse(R"({"name": "f", "arguments": "{\"a\":\"1\"}"})"));
  EXPECT_EQ(all[1].at("choices").at(0).at("finish_reason"), "tool_calls");
}

constexpr const char* kChannels =
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}";

CompletionRequest request_in_channels(bool stream, const std::string& answers_begin = "") {
  CompletionRequest r = request(true, stream);
  r.thoughts = Thoughts::kChannels;
  r.calls = CallFormat::kHarmony;
  r.answers_begin = answers_begin;
  return r;
}

TEST(ServeAnswer, InChannels) {
  const auto message_of = [](const std::string& begins, const std::string& text) {
    Answer a = answer(request_in_channels(false, begins));
    a.add({last(FinishReason::kEndOfText, text)});
    return json::parse(a.whole()).at("choices").at(0);
  };
  const json::value whole = message_of("", kChannels);
  EXPECT_EQ(whole.at("finish_reason"), "tool_calls");
  EXPECT_EQ(whole.at_pointer("/message/reasoning_content"), "Hm.");
  EXPECT_EQ(whole.at_pointer("/message/content"), "Let me see.");
  EXPECT_EQ(whole.at_pointer("/message/tool_calls/0/function"),
            json::parse(R"({"name": "f", "arguments": "{\"a\":1}"})"));
  const json::value forced = message_of("<|channel|>commentary to=functions.g <|constrain|>json<|message|>", "{}");
  EXPECT_EQ(forced.at_pointer("/message/content"), nullptr);
  EXPECT_EQ(forced.at_pointer("/message/tool_calls/0/function"), json::parse(R"({"name": "g", "arguments": "{}"})"));
  EXPECT_EQ(message_of("<|channel|>final<|message|>", "[1]").at_pointer("/message/content"), "[1]");
}

TEST(ServeAnswer, AStreamInChannels) {
  Answer a = answer(request_in_channels(true));
  std::string stream;
  const std::string text = kChannels;
  for (size_t at = 0; at < text.size(); at += 5) stream += a.add({token(1, text.substr(at, 5))});
  stream += a.add({last(FinishReason::kEndOfText)});
  std::string thought, content, finish;
  json::array calls;
  for (const json::object& object : objects(stream)) {
    const json::object& delta = object.at("choices").at(0).at("delta").as_object();
    if (delta.contains("reasoning_content")) thought += delta.at("reasoning_content").get_string();
    if (delta.contains("content")) content += delta.at("content").get_string();
    if (delta.contains("tool_calls")) calls = delta.at("tool_calls").as_array();
    if (object.at("choices").at(0).at("finish_reason").is_string()) {
      finish = object.at("choices").at(0).at("finish_reason").get_string();
    }
  }
  EXPECT_EQ(thought, "Hm.");
  EXPECT_EQ(content, "Let me see.");
  EXPECT_EQ(finish, "tool_calls");
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].at("function"), json::parse(R"({"name": "f", "arguments": "{\"a\":1}"})"));
}

TEST(ServeAnswer, LogprobsOfText) {
  CompletionRequest r = request(false, false);
  r.logprobs = true;
  Answer a = answer(r);
  Event first = token(7, "<7>"), second = token(8, "<8>");
  first.logprob = Logprob{7, -0.5F};
  first.top = {{9, -0.25F}, {7, -0.5F}};
  second.logprob = Logprob{8, -std::numeric_limits<float>::infinity()};
  a.add({first, second, last(FinishReason::kLength)});
  EXPECT_EQ(json::parse(a.whole()).at("choices").at(0).at("logprobs"),
            json::parse(R"({"tokens": ["<7>", "<8>"], "token_logprobs": [-0.5, -9999.0], "top_logprobs":
      [{"<9>": -0.25, "<7>": -0.5}, null], "text_offset": [0, 3]})"));
}

TEST(ServeAnswer, LogprobsOfAConversation) {
  CompletionRequest r = request(true, true);
  r.logprobs = true;
  Answer a = answer(r);
  Event held = token(7, "");  // its text comes later; its log probability does not
  held.logprob = Logprob{7, -0.5F};
  held.top = {{9, -0.25F}};
  const auto all = objects(a.add({held, last(FinishReason::kLength)}));
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1].at("choices").at(0).at("logprobs"),
            json::parse(R"({"content": [{"token": "<7>", "logprob": -0.5, "bytes": [60, 55, 62], "top_logprobs":
      [{"token": "<9>", "logprob": -0.25, "bytes": [60, 57, 62]}]}], "refusal": null})"));
}

TEST(ServeAnswer, Failures) {
  const auto failure = [](Event event, bool chat = false) {
    Answer a = answer(request(chat, true));
    EXPECT_EQ(a.add({std::move(event)}), "");
    return a.failure().value();
  };
  EXPECT_EQ(failure(failed(ErrorCode::kRequest)).status, 400U);
  EXPECT_EQ(failure(failed(ErrorCode::kRequest)).param, "prompt");
  EXPECT_EQ(failure(failed(ErrorCode::kRequest), true).param, "messages");
  EXPECT_EQ(failure(failed(ErrorCode::kRequest, 50)).code, "context_length_exceeded");
  EXPECT_EQ(failure(failed(ErrorCode::kNumbers)).status, 500U);
  EXPECT_STREQ(failure(failed(ErrorCode::kPlugin)).what(), "it went wrong");
}

TEST(ServeAnswer, WhatEndsEarlyIsNotTakenForWhole) {
  Answer a = answer(request(false, true, 2));
  const std::string stream = a.add({token(1, "a"), last(FinishReason::kCancelled), token(1, "b", 1)});
  ASSERT_TRUE(a.failure().has_value());
  EXPECT_EQ(a.failure()->status, 503U);
  EXPECT_EQ(objects(stream, false).size(), 1U);
}

TEST(ServeError, IsOpenAisObject) {
  ApiError error(429, "too many", "", "rate_limit_exceeded");
  error.retry_after = 3;
  const HttpResponse response = error_response(error);
  EXPECT_EQ(response.status, 429U);
  EXPECT_EQ(json::parse(response.body), json::parse(R"({"error": {"message": "too many", "type": "rate_limit_error",
      "param": null, "code": "rate_limit_exceeded"}})"));
  EXPECT_EQ(response.headers.front(), (std::pair<std::string, std::string>{"Retry-After", "3"}));
}

}  // namespace
}  // namespace tenon::serve
