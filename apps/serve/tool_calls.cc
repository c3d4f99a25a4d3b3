// CallReader takes an answer piece by piece and holds back what may belong to a call. A call that stands between marks
// is handed on at its end mark, those of Mistral and Llama at the end of the answer, since only then is their JSON
// known to be whole. What turns out to be no call is text again.
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
constexpr std::string_view kToolCall = "<tool_call>", kToolCallEnd = "</tool_call>", kMistralBegin = "[TOOL_CALLS]";
constexpr std::string_view kHarmonyBegin = "<|start|>", kHarmonyEnd = "<|end|>";

std::string without_blanks(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (kBlanks.find(c) == std::string_view::npos) result += c;
  }
  return result;
}

json::value parsed(std::string_view text) {
  json::error_code error;
  json::value value = json::parse(text, error);
  return error ? json::value() : value;
}

// Says whether a text may be the beginning of a longer mark.
bool begins(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

// Returns what a template makes of a call with these arguments, from the question before it on and without blanks; ""
// if it refuses such a conversation.
std::string written_call(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& arguments) {
  constexpr std::string_view kQuestion = "a question that a tool answers";
  const std::vector<ChatMessage> messages = {
      {"user", std::string(kQuestion), ""},
      {"assistant", "",
       R"({"tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "probe", "arguments": )" +
           arguments + "}}]}"}};
  ChatOptions options;
  options.tools = R"([{"type": "function", "function": {"name": "probe", "description": "a tool",
      "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "a number"}}}}}])";
  options.generation_prompt = false;
  try {
    const std::string text = chat.render(tokenizer, messages, options);
    const size_t question = text.rfind(kQuestion);
    return question == std::string::npos ? "" : without_blanks(std::string_view(text).substr(question));
  } catch (const Error&) {
    return "";
  }
}

CallFormat format_of(const std::string& written) {
  struct Form {
    CallFormat format;
    std::vector<std::string_view> parts;  // all of them are in what is written
  };
  static const std::vector<Form> kForms = {
      {CallFormat::kHermes, {R"(<tool_call>{"name":"probe","arguments":{"a":1}}</tool_call>)"}},
      {CallFormat::kMistral, {R"([TOOL_CALLS][{"name":"probe","arguments":{"a":1})"}},
      {CallFormat::kLlama, {R"({"name":"probe","parameters":{"a":1}})"}},
      {CallFormat::kHarmony, {"to=functions.probe<|channel|>commentary", R"(<|message|>{"a":1}<|call|>)"}},
      {CallFormat::kQwenCoder, {"<tool_call><function=probe><parameter=a>1</parameter></function></tool_call>"}},
      {CallFormat::kGlm, {"<tool_call>probe<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"}},
      {CallFormat::kDeepSeek3,
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>probe```json{\"a\":1}```<"
        "｜tool▁call▁end｜>"}},
      {CallFormat::kDeepSeek31,
       {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>probe<｜tool▁sep｜>{\"a\":1}<｜tool▁call▁end｜>"}}};
  for (const Form& form : kForms) {
    const auto has = [&](std::string_view part) { return written.find(part) != std::string::npos; };
    if (std::all_of(form.parts.begin(), form.parts.end(), has)) return form.format;
  }
  return CallFormat::kNone;
}

}  // namespace

CallForm call_form_of(const ChatTemplate* chat, const Tokenizer& tokenizer) {
  CallForm form;
  if (chat == nullptr) return form;
  form.format = format_of(written_call(*chat, tokenizer, R"({"a": 1})"));
  if (form.format == CallFormat::kNone) {
    form.format = format_of(written_call(*chat, tokenizer, R"("{\"a\": 1}")"));
    form.text_arguments = form.format != CallFormat::kNone;
  }
  for (const std::string_view mark : call_marks(form.format)) {
    const std::optional<int32_t> id = tokenizer.find(mark);
    if (id && tokenizer.is_control(*id)) form.tokens.emplace(mark, *id);
  }
  return form;
}

CallReader::Piece CallReader::add(std::string_view text, bool last) {
  Piece piece;
  waiting_ += text;
  switch (format_) {
    case CallFormat::kNone:
      break;
    case CallFormat::kHermes:
    case CallFormat::kQwenCoder:
    case CallFormat::kGlm:
      read_marked(piece, last, {kToolCall, kToolCallEnd});
      break;
    case CallFormat::kHarmony:
      read_marked(piece, last, {kHarmonyBegin, kHarmonyEnd});
      break;
    case CallFormat::kDeepSeek3:
    case CallFormat::kDeepSeek31:
      read_deepseek(piece, last);
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

bool CallReader::read_one(Piece& piece, bool last, size_t begin, const Marks& marks) {
  const size_t first = begin + marks.begin.size();
  looked_at_ = std::max(looked_at_, first);
  while (true) {
    const size_t end = waiting_.find(marks.end, looked_at_);
    // Models may leave out the end of the last call.
    if (end == std::string::npos && !last) {
      looked_at_ = std::max(first, waiting_.size() - std::min(waiting_.size(), marks.end.size() - 1));
      return false;
    }
    const size_t stop = std::min(end, waiting_.size());
    CallText read = read_call(format_, std::string_view(waiting_).substr(first, stop - first), types_.get());
    // In this form only the end mark says that a call is whole.
    if (end == std::string::npos && format_ == CallFormat::kGlm) read = {};
    if (read.is == CallText::Is::kOpen && end != std::string::npos) {
      looked_at_ = end + marks.end.size();
      continue;
    }
    const size_t used = std::min(stop + marks.end.size(), waiting_.size());
    if (read.is == CallText::Is::kCall) {
      piece.calls.push_back(std::move(read.call));
      called_ = true;
    } else {
      piece.text.append(waiting_, 0, used);
    }
    waiting_.erase(0, used);
    looked_at_ = 0;
    return true;
  }
}

void CallReader::read_marked(Piece& piece, bool last, const Marks& marks) {
  while (inside_ || skip_to(marks.begin, piece)) {
    inside_ = true;
    if (!read_one(piece, last, 0, marks)) return;
    inside_ = false;
  }
}

// The marks of the list are left out with its first call and after a call. Blanks stand between calls.
void CallReader::read_deepseek(Piece& piece, bool last) {
  while (inside_ || skip_to(kCallsBegin, piece)) {
    if (!inside_) called_ = false;
    inside_ = true;
    const size_t begun = waiting_.starts_with(kCallsBegin) ? kCallsBegin.size() : 0;
    const size_t next = std::min(waiting_.find_first_not_of(kBlanks, begun), waiting_.size());
    const std::string_view rest = std::string_view(waiting_).substr(next);
    if (rest.starts_with(kCallBegin)) {
      if (!read_one(piece, last, next, {kCallBegin, kCallEnd})) return;
      continue;
    }
    if (!last && (begins(rest, kCallBegin) || begins(rest, kCallsEnd))) return;
    const size_t used = rest.starts_with(kCallsEnd) ? next + kCallsEnd.size() : begun;
    if (!called_) piece.text.append(waiting_, 0, used);
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
