// Models that reason write what they think between <think> and </think> before they answer. Where the chat template
// begins the thought, the answer has only the end of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

enum class Thoughts : uint8_t {
  kNone,   // the model's template knows of none
  kMayBe,  // an answer may begin with one
  kBegun,  // the prompt has begun one
};

// Takes an answer piece by piece, and tells its thought from its text. Blanks around the thought belong to neither.
class ThoughtReader {
 public:
  explicit ThoughtReader(Thoughts thoughts);

  struct Piece {
    // Text that may be the beginning of <think> or </think>, or is a blank around the thought, is held back.
    std::string thought, text;
  };
  // Takes the next piece of the answer. `last` is true for the final piece: nothing is held back then.
  Piece add(std::string_view text, bool last);

 private:
  // The reader waits for <think>; skips blanks after it; is in the thought; skips
  // blanks after </think>; or is in the text.
  enum class State : uint8_t { kBefore, kOpening, kInside, kAfter, kText };

  void look_for_begin(bool last);
  void look_for_end(bool last, Piece& piece);
  void skip_blanks(State next);

  State state_;
  std::string waiting_;
};

}  // namespace tenon
