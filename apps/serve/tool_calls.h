// Models call tools in forms of their own. Which one a model writes is seen in what its chat template makes of a call;
// an answer's calls are read by it, while the answer comes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "call_forms.h"
#include "tenon/core/chat_template.h"

namespace tenon::serve {

struct CallForm {
  CallFormat format = CallFormat::kNone;
  // The template takes the arguments of a call as the text of a JSON object; others take an object.
  bool text_arguments = false;
  // These marks of the format are control tokens. The texts of answers have to show them (Request::shown).
  std::map<std::string, int32_t, std::less<>> tokens = {};
};

// Renders a conversation with a call, and returns the form in which the call stands there; kNone for any other form,
// for a template that writes no calls, and for a model without a template.
CallForm call_form_of(const ChatTemplate* chat, const Tokenizer& tokenizer);

// Takes the text of an answer piece by piece. What is no call stays text, and so does a call that does not end, that
// is not of the form or that has no name.
class CallReader {
 public:
  // `types` has those of the request's tools, for forms that need them; without them any value may be of any type.
  explicit CallReader(CallFormat format, std::shared_ptr<const ParameterTypes> types = nullptr)
      : format_(format), types_(std::move(types)) {}

  struct Piece {
    std::string text;  // it certainly belongs to no call
    std::vector<ToolCall> calls;
  };
  // `last` means that nothing follows.
  Piece add(std::string_view text, bool last);

 private:
  // Each call stands between two such marks.
  struct Marks {
    std::string_view begin, end;
  };
  void read_marked(Piece& piece, bool last, const Marks& marks);
  void read_deepseek(Piece& piece, bool last);
  void read_mistral(Piece& piece, bool last);
  void read_llama(Piece& piece, bool last);
  // Reads one call that begins at `begin` of what waits, where its first mark stands. Returns whether it is known what
  // it is; then it is no longer there, nor is what stood before it.
  bool read_one(Piece& piece, bool last, size_t begin, const Marks& marks);
  // Moves the text before the marker into the piece, and returns whether the marker is there. White space before
  // the marker and after a call is left out.
  bool skip_to(std::string_view marker, Piece& piece);
  void end(Piece& piece);

  CallFormat format_;
  std::shared_ptr<const ParameterTypes> types_;
  std::string waiting_;
  size_t looked_at_ = 0;  // A call's end does not begin in so much of what waits.
  bool inside_ = false;   // The marker that begins a call, or a list of calls, was seen.
  bool called_ = false;   // There was a call; in a list of calls, one in this list.
};

}  // namespace tenon::serve
