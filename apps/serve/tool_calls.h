// Models call tools in forms of their own. Which one a model writes is seen in what its chat template makes of a call;
// an answer's calls are read by it, while the answer comes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/chat_template.h"

namespace tenon::serve {

enum class CallFormat : uint8_t {
  kNone,
  kHermes,   // <tool_call>{"name": "f", "arguments": {}}</tool_call>, as often as there are calls
  kMistral,  // [TOOL_CALLS][{"name": "f", "arguments": {}}, ...]
  kLlama,    // {"name": "f", "parameters": {}}, which is all of the answer
  kHarmony,  // <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|end|>, as
             // ThoughtReader leaves it; in the answer <|call|> ends it, or the answer does
};

// Renders a conversation with a call, and returns the form in which the call stands there; kNone for any other form,
// for a template that writes no calls, and for a model without a template.
CallFormat call_format_of(const ChatTemplate* chat, const Tokenizer& tokenizer);

// Returns the control tokens that begin the calls of a format. The texts of answers have to show them (Request::shown).
std::vector<int32_t> call_tokens(CallFormat format, const Tokenizer& tokenizer);

// Returns the text that begins the calls of an answer; "" for forms that have none.
std::string call_begin(CallFormat format);

struct ToolCall {
  std::string name, arguments;  // arguments: JSON
};

// Takes the text of an answer piece by piece. What is no call stays text, and so does a call that does not
// end, that is no JSON or that has no name.
class CallReader {
 public:
  explicit CallReader(CallFormat format) : format_(format) {}

  struct Piece {
    std::string text;  // it certainly belongs to no call
    std::vector<ToolCall> calls;
  };
  // `last` means that nothing follows.
  Piece add(std::string_view text, bool last);

 private:
  // Reads calls between two marks, where `call` makes one of what stands between them.
  struct Marks {
    std::string_view begin, end;
    std::optional<ToolCall> (*call)(std::string_view);
  };
  void read_marked(Piece& piece, bool last, const Marks& marks);
  void read_mistral(Piece& piece, bool last);
  void read_llama(Piece& piece, bool last);
  // Moves the text before the marker into the piece, and returns whether the marker is there. White space before
  // the marker and after a call is left out.
  bool skip_to(std::string_view marker, Piece& piece);
  void end(Piece& piece);

  CallFormat format_;
  std::string waiting_;
  size_t looked_at_ = 0;  // A call's end does not begin in so much of what waits.
  bool inside_ = false;   // The marker that begins a call was seen.
  bool called_ = false;   // There was a call.
};

}  // namespace tenon::serve
