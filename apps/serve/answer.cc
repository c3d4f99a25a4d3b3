// An Answer takes the events of the generations of one request and gives the bytes to send after each of them: nothing
// until the end, or a chunk for each piece of text (server-sent events). Thoughts and tool calls are told from the text
// on the way (ThoughtReader, CallReader).
#include "answer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

namespace tenon::serve {
namespace {

namespace json = boost::json;

constexpr double kLeastLogprob = -9999;  // stands for minus infinity, which JSON does not have

double finite(float logprob) {
  return std::isfinite(logprob) ? std::max<double>(static_cast<double>(logprob), kLeastLogprob) : kLeastLogprob;
}

uint64_t count_characters(std::string_view text) {
  return static_cast<uint64_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

// Gives a token's bytes as text by themselves, with U+FFFD for those that are none.
std::string as_text(const Tokenizer& tokenizer, int32_t id) {
  const std::array<int32_t, 1> ids = {id};
  return decode(tokenizer, ids, {.show_control = true, .continues = true});
}

const char* finish_name(FinishReason finish) {
  switch (finish) {
    case FinishReason::kEndOfText:
    case FinishReason::kStopString:
      return "stop";
    default:
      return "length";
  }
}

}  // namespace

std::optional<ApiError> failure_of(const Event& event, const char* field, uint32_t longest) {
  if (event.finish == FinishReason::kCancelled) {
    return ApiError(503, "the request was ended: the server is shutting down, or it took longer than its time limit",
                    "", "cancelled");
  }
  if (event.finish != FinishReason::kError) return std::nullopt;
  const Failure& f = *event.failure;
  if (!f.of_prompt) return ApiError(f.status, f.message, f.param, f.code);
  const bool long_prompt = event.prompt_tokens >= longest;
  return ApiError(f.status, f.message, field, long_prompt ? "context_length_exceeded" : "");
}

std::string sse(const std::string& text) {
  return "data: " + text + "\n\n";
}

Answer::Answer(const CompletionRequest& request, AnswerHead head, std::vector<std::string> prompts,
               const Tokenizer& tokenizer, uint32_t longest)
    : chat_(request.chat),
      stream_(request.stream),
      include_usage_(request.include_usage),
      continuous_usage_(request.continuous_usage),
      logprobs_(request.logprobs),
      hides_thoughts_(request.hides_thoughts),
      n_(request.n),
      head_(std::move(head)),
      prompts_(std::move(prompts)),
      tokenizer_(tokenizer),
      longest_(longest),
      choices_(request.choices()),
      left_(choices_.size()) {
  for (size_t i = 0; i < choices_.size() && !prompts_.empty(); ++i) choices_[i].text = prompts_[i / n_];
  for (Choice& choice : choices_) {
    choice.thoughts = ThoughtReader(request.thoughts);
    if (request.calls != CallFormat::kNone) choice.reader.emplace(request.calls, request.parameter_types);
    const std::string begun = choice.thoughts.add(request.answers_begin, false).text;
    if (choice.reader) choice.reader->add(begun, false);
  }
  const std::vector<uint64_t>& sizes = request.prompt_sizes;
  for (size_t i = 0; i < choices_.size() && !sizes.empty(); ++i) choices_[i].prompt_tokens = sizes[i / n_];
}

// ---- log probabilities ----------------------------------------------------------------------------------------------

// Returns a token's name in OpenAI's older interface: its text, or its bytes if they are no text.
std::string Answer::token_name(int32_t id) const {
  std::string text = as_text(tokenizer_, id);
  if (text.find("\xEF\xBF\xBD") == std::string::npos) return text;
  constexpr const char* kDigits = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char c : tokenizer_.bytes(id)) {
    const auto byte = static_cast<unsigned char>(c);
    name += "\\x";
    name += kDigits[byte >> 4U];
    name += kDigits[byte & 15U];
  }
  return name;
}

json::object Answer::logprob_object(const Logprob& logprob) const {
  json::array bytes;
  for (const char c : tokenizer_.bytes(logprob.id)) bytes.emplace_back(static_cast<unsigned char>(c));
  return {{"token", as_text(tokenizer_, logprob.id)}, {"logprob", finite(logprob.value)}, {"bytes", std::move(bytes)}};
}

void Answer::add_logprob(Choice& choice, const Event& event) const {
  if (!logprobs_ || !event.logprob) return;
  if (chat_) {
    json::object entry = logprob_object(*event.logprob);
    json::array top;
    for (const Logprob& l : event.top) top.push_back(logprob_object(l));
    entry["top_logprobs"] = std::move(top);
    choice.content.push_back(std::move(entry));
    return;
  }
  choice.tokens_of_text.push_back(json::string(token_name(event.token)));
  choice.values.push_back(finite(event.logprob->value));
  choice.offsets.push_back(choice.characters);
  json::object top;
  for (const Logprob& l : event.top) top[token_name(l.id)] = finite(l.value);
  if (!event.top.empty()) top[token_name(event.token)] = finite(event.logprob->value);
  choice.top.push_back(event.top.empty() ? json::value() : json::value(std::move(top)));
}

json::value Answer::take_logprobs(Choice& choice) const {
  if (!logprobs_) return nullptr;
  if (chat_) return json::object{{"content", std::exchange(choice.content, {})}, {"refusal", nullptr}};
  return json::object{{"tokens", std::exchange(choice.tokens_of_text, {})},
                      {"token_logprobs", std::exchange(choice.values, {})},
                      {"top_logprobs", std::exchange(choice.top, {})},
                      {"text_offset", std::exchange(choice.offsets, {})}};
}

// ---- objects --------------------------------------------------------------------------------------------------------

json::object Answer::begin(const char* object) const {
  return {{"id", head_.id},
          {"object", object},
          {"created", head_.created},
          {"model", head_.model},
          {"system_fingerprint", head_.fingerprint}};
}

// A prompt counts once, however many answers it has.
json::object Answer::usage() const {
  uint64_t prompt = 0, reused = 0, tokens = 0;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i % n_ == 0) {
      prompt += choices_[i].prompt_tokens;
      reused += choices_[i].reused;
    }
    tokens += choices_[i].tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", tokens},
          {"total_tokens", prompt + tokens},
          {"prompt_tokens_details", json::object{{"cached_tokens", reused}}}};
}

void Answer::write_chunk(uint32_t index, std::string_view text, const json::value& finish, std::string& chunks) {
  Choice& choice = choices_[index];
  json::object one = {{"index", index}};
  if (chat_) {
    json::object delta;
    if (!choice.begun) delta["role"] = "assistant";
    if (choice.call) {
      delta["tool_calls"] = json::array{*std::exchange(choice.call, std::nullopt)};
    } else if (!choice.thought.empty()) {
      delta["reasoning_content"] = std::exchange(choice.thought, {});
    } else if (!choice.begun || finish.is_null()) {
      delta["content"] = text;
    }
    one["delta"] = std::move(delta);
  } else {
    one["text"] = text;
  }
  choice.begun = true;
  one["logprobs"] =
      finish.is_null() || !choice.content.empty() || !choice.values.empty() ? take_logprobs(choice) : json::value();
  one["finish_reason"] = finish;
  json::object object = begin(chat_ ? "chat.completion.chunk" : "text_completion");
  object["choices"] = json::array{std::move(one)};
  if (continuous_usage_) {
    object["usage"] = usage();
  } else if (include_usage_) {
    object["usage"] = nullptr;
  }
  chunks += sse(json::serialize(object));
}

void Answer::write_end(std::string& chunks) const {
  if (include_usage_) {
    json::object object = begin(chat_ ? "chat.completion.chunk" : "text_completion");
    object["choices"] = json::array{};
    object["usage"] = usage();
    chunks += sse(json::serialize(object));
  }
  chunks += sse("[DONE]");
}

// Ids are nine letters and digits, since templates refuse others.
json::object Answer::call_object(uint32_t choice, const ToolCall& call) const {
  constexpr std::string_view kSigns = "0123456789abcdefghijklmnopqrstuvwxyz";
  const size_t index = choices_[choice].calls.size();
  size_t hash = std::hash<std::string>()(head_.id + "-" + std::to_string(choice) + "-" + std::to_string(index));
  std::string id;
  for (int i = 0; i < 9; ++i, hash /= kSigns.size()) id += kSigns[hash % kSigns.size()];
  return {{"id", id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

void Answer::take_thought(Event& event, std::string& chunks) {
  Choice& choice = choices_[event.choice];
  ThoughtReader::Piece piece = choice.thoughts.add(event.text, event.last);
  event.text = std::move(piece.text);
  if (hides_thoughts_ || piece.thought.empty()) return;
  choice.thought += piece.thought;
  if (stream_) write_chunk(event.choice, "", nullptr, chunks);
}

void Answer::take_calls(Event& event, std::string& chunks) {
  Choice& choice = choices_[event.choice];
  if (!choice.reader) return;
  CallReader::Piece piece = choice.reader->add(event.text, event.last);
  event.text = std::move(piece.text);
  for (const ToolCall& call : piece.calls) {
    json::object object = call_object(event.choice, call);
    if (stream_) {
      // The stream has the text before the call first, as the answer has.
      if (!event.text.empty()) write_chunk(event.choice, std::exchange(event.text, {}), nullptr, chunks);
      json::object delta = object;
      delta["index"] = choice.calls.size();
      choice.call = std::move(delta);
      write_chunk(event.choice, "", nullptr, chunks);
    }
    choice.calls.push_back(std::move(object));
  }
}

const char* Answer::finish_of(const Choice& choice) const {
  const bool calls = !choice.calls.empty() && choice.finish == FinishReason::kEndOfText;
  return calls ? "tool_calls" : finish_name(choice.finish);
}

void Answer::add(Event event, std::string& chunks) {
  Choice& choice = choices_[event.choice];
  if (stream_ && !choice.begun && !event.failure && (chat_ || !choice.text.empty())) {
    write_chunk(event.choice, choice.text, nullptr, chunks);  // it has the role, or the prompt
  }
  add_logprob(choice, event);
  take_thought(event, chunks);
  take_calls(event, chunks);
  if (event.token >= 0) ++choice.tokens;
  choice.characters += count_characters(event.text);
  if (!stream_) {
    choice.text += event.text;
  } else if (!event.text.empty() || (logprobs_ && event.logprob)) {
    write_chunk(event.choice, event.text, nullptr, chunks);
  }
  if (!event.last) return;
  --left_;
  choice.finish = event.finish;
  choice.prompt_tokens = event.prompt_tokens;
  choice.reused = event.reused;
  choice.tokens = event.tokens;
  if (!failure_) failure_ = failure_of(event, chat_ ? "messages" : "prompt", longest_);
  if (stream_ && !failure_) write_chunk(event.choice, "", finish_of(choice), chunks);
}

std::string Answer::add(std::vector<Event> events) {
  std::string chunks;
  for (Event& event : events) {
    if (!failure_ || event.last) add(std::move(event), chunks);
  }
  if (stream_ && complete() && !failure_) write_end(chunks);
  return chunks;
}

std::string Answer::whole() const {
  json::object object = begin(chat_ ? "chat.completion" : "text_completion");
  json::array list;
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice choice = choices_[i];
    const char* finish = finish_of(choice);
    json::object one = {{"index", i}};
    if (chat_) {
      json::object message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
      if (!choice.thought.empty()) message["reasoning_content"] = choice.thought;
      if (!choice.calls.empty()) {
        if (choice.text.empty()) message["content"] = nullptr;
        message["tool_calls"] = std::move(choice.calls);
      }
      one["message"] = std::move(message);
    } else {
      one["text"] = choice.text;
    }
    one["logprobs"] = take_logprobs(choice);
    one["finish_reason"] = finish;
    list.push_back(std::move(one));
  }
  object["choices"] = std::move(list);
  object["usage"] = usage();
  return json::serialize(object);
}

}  // namespace tenon::serve
