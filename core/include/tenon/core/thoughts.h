// Models that reason write what they think between <think> and </think> before they answer. Where the chat template begins the
// thought, the answer has its end alone.
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
    std::string thought, text;  // what is certainly of either
  };
  // last: nothing follows.
  Piece add(std::string_view text, bool last);

 private:
  enum class Place : uint8_t { kBefore, kOpening, kInside, kAfter, kText };

  void look_for_begin(bool last);
  void look_for_end(bool last, Piece& piece);
  void skip_blanks(Place next);

  Place place_;
  std::string waiting_;
};

}  // namespace tenon
