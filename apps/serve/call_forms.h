// This makes a name and arguments of what stands between the marks of a call.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "call_values.h"

namespace tenon::serve {

enum class CallFormat : uint8_t {
  kNone,
  kHermes,   // <tool_call>{"name": "f", "arguments": {}}</tool_call>, as often as there are calls
  kMistral,  // [TOOL_CALLS][{"name": "f", "arguments": {}}, ...]
  kLlama,    // {"name": "f", "parameters": {}}, which is all of the answer
  kHarmony,  // <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|end|>, as
             // ThoughtReader leaves it; in the answer <|call|> ends it, or the answer does
  // The values in these two are texts without quotation marks (call_values.h). A line end stands around the value of
  // the first; the second may have line ends between its parts.
  kQwenCoder,   // <tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>
  kGlm,         // <tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>
  kDeepSeek3,   // CALLS_BEGIN CALL_BEGIN function SEP f\n```json\n{}\n``` CALL_END \n CALL_BEGIN ... CALLS_END
  kDeepSeek31,  // CALLS_BEGIN CALL_BEGIN f SEP {} CALL_END CALL_BEGIN ... CALLS_END
};

// These are DeepSeek's marks, in the order of the names above.
constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>", kCallBegin = "<｜tool▁call▁begin｜>",
                           kCallSeparator = "<｜tool▁sep｜>", kCallEnd = "<｜tool▁call▁end｜>",
                           kCallsEnd = "<｜tool▁calls▁end｜>";

struct ToolCall {
  std::string name, arguments;  // arguments: JSON
};

// Says whether forms without quotation marks can have such a name.
bool is_plain_name(std::string_view name);

struct CallText {
  // kOpen: the text ends within a value, which may go on after the mark that seemed to end the call.
  enum class Is : uint8_t { kCall, kNoCall, kOpen };
  Is is = Is::kNoCall;
  ToolCall call = {};  // it is there with kCall
};

// Reads what stands between the marks of one call of a format: any but kNone, kMistral and kLlama. `types` may be
// nullptr: then values may be of any type.
CallText read_call(CallFormat format, std::string_view text, const ParameterTypes* types);

// Returns the call that a JSON object is; nullopt if it is none. Its arguments are called `arguments_name`.
std::optional<ToolCall> call_of(const boost::json::value& value, const char* arguments_name);

// Returns the marks of a format whose tokens may be control tokens.
std::vector<std::string_view> call_marks(CallFormat format);

}  // namespace tenon::serve
