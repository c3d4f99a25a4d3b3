// Models that reason write what they think between <think> and </think> before they answer. Where the chat template
// begins the thought, the answer has only the end of it.
//
// gpt-oss writes an answer as messages in channels (OpenAI's format "harmony"): <|start|>assistant, then a header with
// <|channel|> and the channel's name, <|message|>, content and <|end|>. The prompt has the first <|start|>assistant.
// The channel `analysis` has thoughts, the others have text, and a message to a function (to=functions.NAME) is a call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

class Tokenizer;

enum class Thoughts : uint8_t {
  kNone,      // the model's template knows of none
  kMayBe,     // an answer may begin with one
  kBegun,     // the prompt has begun one
  kChannels,  // an answer is in channels
};

// Returns the control tokens that ThoughtReader looks for. The texts of answers have to show them (Request::shown).
std::vector<int32_t> thought_tokens(Thoughts thoughts, const Tokenizer& tokenizer);

// Takes an answer piece by piece, and tells its thought from its text. Blanks around a thought of <think> belong to
// neither. Of an answer in channels a call is text, from <|start|> to <|end|>; a line end stands between two messages
// that are thoughts, or text. An answer that has no channels is text.
class ThoughtReader {
 public:
  explicit ThoughtReader(Thoughts thoughts);

  struct Piece {
    // Text that may be the beginning of a mark, or is a blank around the thought, is held back.
    std::string thought, text;
  };
  // Takes the next piece of the answer. `last` is true for the final piece: nothing is held back then.
  Piece add(std::string_view text, bool last);

 private:
  // The reader waits for <think>; skips blanks after it; is in the thought; skips blanks after </think>; is in the
  // text; is in the header of a message; or in its content.
  enum class State : uint8_t { kBefore, kOpening, kInside, kAfter, kText, kHeader, kContent };
  enum class Content : uint8_t { kThought, kText, kCall };

  void look_for_begin(bool last);
  void look_for_end(bool last, Piece& piece);
  void skip_blanks(State next);
  // These return whether what they read has ended.
  bool read_header(bool last, Piece& piece);
  bool read_content(bool last, Piece& piece);

  State state_;
  std::string waiting_;
  Content content_ = Content::kText;     // the message has it
  bool fresh_ = true;                    // nothing of the message's content was there yet
  bool thought_ = false, text_ = false;  // messages with such a content were there
};

}  // namespace tenon
