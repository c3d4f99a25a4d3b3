// CallReader takes an answer piece by piece and holds back what may belong to a call. A call in Hermes's form or in
// gpt-oss's is handed on at its end mark, those of Mistral and Llama at the end of the answer, since only then is their
// JSON known to be whole. What turns out to be no call is text again.
#include "tool_calls.h"

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <utility>

#include "tenon/core/error.h"

namespace tenon::serve {
namespace {

namespace json = boost::json;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kHermesBegin = "<tool_call>", kHermesEnd = "</tool_call>", kMistralBegin = "[TOOL_CALLS]";
constexpr std::string_view kHarmonyBegin = "<|start|>", kHarmonyMessage = "<|message|>", kHarmonyEnd = "<|end|>";
constexpr std::string_view kHarmonyFunction = "to=functions.";

std::string without_blanks(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (kBlanks.find(c) == std::string_view::npos) result += c;
  }
  return result;
}

std::optional<ToolCall> call_of(const json::value& value, const char* arguments_name) {
  const json::object* object = value.if_object();
  if (object == nullptr) return std::nullopt;
  const json::value *name = object->if_contains("name"), *arguments = object->if_contains(arguments_name);
  if (name == nullptr || !name->is_string() || name->get_string().empty()) return std::nullopt;
  if (arguments == nullptr || !arguments->is_object()) return std::nullopt;
  return ToolCall{std::string(name->get_string()), json::serialize(*arguments)};
}

json::value parsed(std::string_view text) {
  json::error_code error;
  json::value value = json::parse(text, error);
  return error ? json::value() : value;
}

std::optional<ToolCall> hermes_call(std::string_view text) {
  return call_of(parsed(text), "arguments");
}

// Takes a header that names a function, <|message|> and the arguments.
std::optional<ToolCall> harmony_call(std::string_view text) {
  const size_t function = text.find(kHarmonyFunction), message = text.find(kHarmonyMessage);
  if (message == std::string_view::npos || function > message) return std::nullopt;
  const std::string_view named = text.substr(function + kHarmonyFunction.size());
  const std::string_view name = named.substr(0, named.find_first_of(" \t\r\n<"));
  const json::value arguments = parsed(text.substr(message + kHarmonyMessage.size()));
  if (name.empty() || !arguments.is_object()) return std::nullopt;
  return ToolCall{std::string(name), json::serialize(arguments)};
}

}  // namespace

CallFormat call_format_of(const ChatTemplate* chat, const Tokenizer& tokenizer) {
  if (chat == nullptr) return CallFormat::kNone;
  constexpr std::string_view kQuestion = "a question that a tool answers";
  const std::vector<ChatMessage> messages = {{"user", std::string(kQuestion), ""},
                                             {"assistant", "",
                                              R"({"tool_calls": [{"id": "abcdefghi", "type": "function",
                                            "function": {"name": "probe", "arguments": {"a": 1}}}]})"}};
  ChatOptions options;
  options.tools = R"([{"type": "function", "function": {"name": "probe", "description": "a tool",
      "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "a number"}}}}}])";
  options.generation_prompt = false;
  std::string text;
  try {
    text = chat->render(tokenizer, messages, options);
  } catch (const Error&) {  // It refuses such conversations.
    return CallFormat::kNone;
  }
  const size_t question = text.rfind(kQuestion);
  if (question == std::string::npos) return CallFormat::kNone;
  const std::string written = without_blanks(std::string_view(text).substr(question));
  const auto has = [&](const char* call) { return written.find(call) != std::string::npos; };
  if (has(R"(<tool_call>{"name":"probe","arguments":{"a":1}}</tool_call>)")) return CallFormat::kHermes;
  if (has(R"([TOOL_CALLS][{"name":"probe","arguments":{"a":1})")) return CallFormat::kMistral;
  if (has(R"({"name":"probe","parameters":{"a":1}})")) return CallFormat::kLlama;
  if (has("to=functions.probe<|channel|>commentary") && has(R"(<|message|>{"a":1}<|call|>)")) {
    return CallFormat::kHarmony;
  }
  return CallFormat::kNone;
}

std::vector<int32_t> call_tokens(CallFormat format, const Tokenizer& tokenizer) {
  if (format != CallFormat::kHermes && format != CallFormat::kMistral) return {};
  const std::optional<int32_t> id = tokenizer.find(format == CallFormat::kHermes ? kHermesBegin : kMistralBegin);
  return id && tokenizer.is_control(*id) ? std::vector{*id} : std::vector<int32_t>{};
}

std::string call_begin(CallFormat format) {
  if (format == CallFormat::kMistral) return std::string(kMistralBegin);
  return format == CallFormat::kHermes ? std::string(kHermesBegin) + "\n" : "";
}

CallReader::Piece CallReader::add(std::string_view text, bool last) {
  Piece piece;
  waiting_ += text;
  switch (format_) {
    case CallFormat::kNone:
      break;
    case CallFormat::kHermes:
      read_marked(piece, last, {kHermesBegin, kHermesEnd, hermes_call});
      break;
    case CallFormat::kHarmony:
      read_marked(piece, last, {kHarmonyBegin, kHarmonyEnd, harmony_call});
      break;
    case CallFormat::kMistral:
      read_mistral(piece, last);
      break;
    case CallFormat::kLlama:
      read_llama(piece, last);
      break;
  }
  if (last || format_ == CallFormat::kNone) end(piece);
  return piece;
}

void CallReader::end(Piece& piece) {
  const bool blank = waiting_.find_first_not_of(kBlanks) == std::string::npos;
  if (!blank || !called_) piece.text += waiting_;
  waiting_.clear();
}

bool CallReader::skip_to(std::string_view marker, Piece& piece) {
  const size_t at = waiting_.find(marker);
  size_t sure = std::min(at, waiting_.size());
  if (at == std::string::npos) {  // The end may be the beginning of a marker.
    size_t begun = std::min(waiting_.size(), marker.size() - 1);
    while (!marker.starts_with(std::string_view(waiting_).substr(waiting_.size() - begun))) --begun;
    sure -= begun;
  }
  const size_t text = waiting_.find_last_not_of(kBlanks, sure == 0 ? 0 : sure - 1);
  sure = sure == 0 || text == std::string::npos ? 0 : text + 1;
  piece.text.append(waiting_, 0, sure);
  waiting_.erase(0, at == std::string::npos ? sure : at);
  return at != std::string::npos;
}

void CallReader::read_marked(Piece& piece, bool last, const Marks& marks) {
  while (inside_ || skip_to(marks.begin, piece)) {
    inside_ = true;
    const size_t end = waiting_.find(marks.end, looked_at_);
    // Models may leave out the end of the last call.
    if (end == std::string::npos && !last) {
      looked_at_ = waiting_.size() - std::min(waiting_.size(), marks.end.size() - 1);
      return;
    }
    looked_at_ = 0;
    const size_t begin = marks.begin.size(), stop = std::min(end, waiting_.size());
    const auto call = marks.call(std::string_view(waiting_).substr(begin, stop - begin));
    const size_t used = std::min(stop + marks.end.size(), waiting_.size());
    if (call) {
      piece.calls.push_back(*call);
      called_ = true;
    } else {
      piece.text.append(waiting_, 0, used);
    }
    waiting_.erase(0, used);
    inside_ = false;
  }
}

void CallReader::read_mistral(Piece& piece, bool last) {
  inside_ = inside_ || skip_to(kMistralBegin, piece);
  if (!inside_ || !last) return;
  const json::value list = parsed(std::string_view(waiting_).substr(kMistralBegin.size()));
  if (!list.is_array()) return;
  std::vector<ToolCall> calls;
  for (const json::value& one : list.get_array()) {
    const auto call = call_of(one, "arguments");
    if (!call) return;
    calls.push_back(*call);
  }
  called_ = !calls.empty();
  piece.calls = std::move(calls);
  if (called_) waiting_.clear();
}

void CallReader::read_llama(Piece& piece, bool last) {
  const size_t first = waiting_.find_first_not_of(kBlanks);
  if (first == std::string::npos) return;
  if (!inside_ && waiting_[first] != '{') {  // The answer is text.
    format_ = CallFormat::kNone;
    return;
  }
  inside_ = true;
  if (!last) return;
  if (const auto call = call_of(parsed(waiting_), "parameters")) {
    piece.calls.push_back(*call);
    called_ = true;
    waiting_.clear();
  }
}

}  // namespace tenon::serve
