// The forms with JSON are parsed as such. In the two forms with marks around each argument a value may hold whatever a
// mark looks like, so it ends at the first end mark after which the call goes on as it should.
#include "call_forms.h"

#include <algorithm>

namespace tenon::serve {
namespace {

namespace json = boost::json;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kHarmonyMessage = "<|message|>", kHarmonyFunction = "to=functions.";
constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr std::string_view kKey = "<arg_key>", kKeyEnd = "</arg_key>";
constexpr std::string_view kValue = "<arg_value>", kValueEnd = "</arg_value>";
constexpr std::string_view kJsonBegin = "```json", kJsonEnd = "```";

std::string_view without_ends(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Takes a mark off the beginning of a text, with blanks before it. Returns whether it was there.
bool take(std::string_view& text, std::string_view mark) {
  const size_t first = std::min(text.find_first_not_of(kBlanks), text.size());
  if (!text.substr(first).starts_with(mark)) return false;
  text.remove_prefix(first + mark.size());
  return true;
}

// Takes a text up to a mark, and the mark. Returns nullopt if the mark is not there.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

// Takes a value up to the first mark after which one of `next` stands; an empty one stands for the end of the text.
std::optional<std::string_view> take_value(std::string_view& text, std::string_view mark,
                                           std::initializer_list<std::string_view> next) {
  for (size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1)) {
    const std::string_view rest = text.substr(at + mark.size());
    const std::string_view word = rest.substr(std::min(rest.find_first_not_of(kBlanks), rest.size()));
    const bool goes_on = std::any_of(next.begin(), next.end(), [&](std::string_view one) {
      return one.empty() ? word.empty() : word.starts_with(one);
    });
    if (!goes_on) continue;
    const std::string_view value = text.substr(0, at);
    text = rest;
    return value;
  }
  return std::nullopt;
}

json::value parsed(std::string_view text) {
  json::error_code error;
  json::value value = json::parse(text, error);
  return error ? json::value() : value;
}

CallText made(std::string_view name, const json::value& arguments) {
  if (!is_plain_name(name) || !arguments.is_object()) return {};
  return {CallText::Is::kCall, {std::string(name), json::serialize(arguments)}};
}

// Takes a header that names a function, <|message|> and the arguments.
CallText harmony_call(std::string_view text) {
  const size_t function = text.find(kHarmonyFunction), message = text.find(kHarmonyMessage);
  if (message == std::string_view::npos || function > message) return {};
  const std::string_view named = text.substr(function + kHarmonyFunction.size());
  return made(named.substr(0, named.find_first_of(" \t\r\n<")), parsed(text.substr(message + kHarmonyMessage.size())));
}

// Takes the value of a parameter. A value that begins with a line end has one at its end as well, and is what stands
// between the two.
std::optional<std::string_view> take_parameter(std::string_view& text) {
  const bool lines = text.starts_with('\n');
  std::string_view rest = text.substr(lines ? 1 : 0);
  constexpr std::string_view kLineAndEnd = "\n</parameter>";
  if (lines && text.starts_with(kLineAndEnd)) rest = text;  // the value is empty, with one line end around it
  const auto value = take_value(rest, lines ? kLineAndEnd : kParameterEnd, {kParameter, kFunctionEnd});
  if (value) text = rest;
  return value;
}

CallText qwen_coder_call(std::string_view text, const ParameterTypes* types) {
  if (!take(text, kFunction)) return {};
  const auto name = take_until(text, ">");
  if (!name) return {};
  json::object arguments;
  while (take(text, kParameter)) {
    const auto key = take_until(text, ">");
    if (!key || key->empty() || key->find('\n') != std::string_view::npos) return {};
    const auto value = take_parameter(text);
    if (!value) return {CallText::Is::kOpen};
    arguments[*key] = value_of(*value, types != nullptr ? types->of(*name, *key) : kAnyType);
  }
  if (!take(text, kFunctionEnd) || !without_ends(text).empty()) return {};
  return made(*name, arguments);
}

CallText glm_call(std::string_view text, const ParameterTypes* types) {
  const size_t end = std::min(text.find(kKey), text.size());
  const std::string_view name = without_ends(text.substr(0, end));
  text.remove_prefix(end);
  json::object arguments;
  while (take(text, kKey)) {
    const auto key = take_until(text, kKeyEnd);
    if (!key || without_ends(*key).empty() || !take(text, kValue)) return {};
    const auto value = take_value(text, kValueEnd, {kKey, ""});
    if (!value) return {CallText::Is::kOpen};
    const std::string_view word = without_ends(*key);
    arguments[word] = value_of(*value, types != nullptr ? types->of(name, word) : kAnyType);
  }
  return without_ends(text).empty() ? made(name, arguments) : CallText{};
}

// Models of either version may write the form of the other one.
CallText deepseek_call(std::string_view text) {
  const auto before = take_until(text, kCallSeparator);
  if (!before) return {};
  const std::string_view arguments = without_ends(text);
  if (arguments.starts_with('{')) return made(without_ends(*before), parsed(arguments));
  const auto name = take_until(text, kJsonBegin);
  const size_t end = text.rfind(kJsonEnd);
  if (!name || end == std::string_view::npos || !without_ends(text.substr(end + kJsonEnd.size())).empty()) return {};
  return made(without_ends(*name), parsed(text.substr(0, end)));
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.find_first_of(" \t\r\n<>{") == std::string_view::npos;
}

std::optional<ToolCall> call_of(const json::value& value, const char* arguments_name) {
  const json::object* object = value.if_object();
  if (object == nullptr) return std::nullopt;
  const json::value *name = object->if_contains("name"), *arguments = object->if_contains(arguments_name);
  if (name == nullptr || !name->is_string() || name->get_string().empty()) return std::nullopt;
  if (arguments == nullptr || !arguments->is_object()) return std::nullopt;
  return ToolCall{std::string(name->get_string()), json::serialize(*arguments)};
}

CallText read_call(CallFormat format, std::string_view text, const ParameterTypes* types) {
  switch (format) {
    case CallFormat::kHarmony:
      return harmony_call(text);
    case CallFormat::kQwenCoder:
      return qwen_coder_call(text, types);
    case CallFormat::kGlm:
      return glm_call(text, types);
    case CallFormat::kDeepSeek3:
    case CallFormat::kDeepSeek31:
      return deepseek_call(text);
    default:
      break;
  }
  const auto call = call_of(parsed(text), "arguments");
  return call ? CallText{CallText::Is::kCall, *call} : CallText{};
}

std::vector<std::string_view> call_marks(CallFormat format) {
  switch (format) {
    case CallFormat::kHermes:
    case CallFormat::kQwenCoder:
      return {"<tool_call>", "</tool_call>"};
    case CallFormat::kMistral:
      return {"[TOOL_CALLS]"};
    case CallFormat::kHarmony:
      return {"<|constrain|>", kHarmonyMessage};
    case CallFormat::kGlm:
      return {"<tool_call>", "</tool_call>", kKey, kKeyEnd, kValue, kValueEnd};
    case CallFormat::kDeepSeek3:
    case CallFormat::kDeepSeek31:
      return {kCallsBegin, kCallBegin, kCallSeparator, kCallEnd, kCallsEnd};
    default:
      return {};
  }
}

}  // namespace tenon::serve
