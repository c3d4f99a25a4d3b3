// Pre-tokenizers, as tokenizer.json calls them, are steps that cut a text into
// the pieces that the model sees one by one.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pattern.h"

namespace tenon::text {

// This is a piece; it says whether the whole text begins there. Its text is the caller's or PieceScratch's.
struct Piece {
  std::string_view text;
  bool at_start;
};

struct PieceScratch {
  RegexScratch regex;
  std::deque<std::string> owned;
  std::vector<Stretch> stretches;
  std::vector<Piece> pieces;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  Regex pattern;
  SplitBehavior behavior;
  bool invert;  // true: what lies between the matches counts as the matches
};
struct PrefixSpace {};  // a piece that does not begin with a space gets one
struct ByteMap {};      // every byte becomes a character, see byte_alphabet.h
struct SpaceMap {       // ' ' becomes `replacement`, which is also put in front where it is missing
  enum class Prepend { kAlways, kFirst, kNever };
  std::string replacement;
  Prepend prepend;
};
using PreTokenizerStep = std::variant<SplitStep, PrefixSpace, ByteMap, SpaceMap>;

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps);

  // The last step was ByteMap and is left out: the model maps bytes itself.
  bool ends_in_bytes() const noexcept { return ends_in_bytes_; }
  // Returns the pieces of `text` in order, none empty; valid until the next call with this scratch.
  const std::vector<Piece>& run(Piece text, PieceScratch& scratch) const;

 private:
  std::vector<PreTokenizerStep> steps_;
  bool ends_in_bytes_ = false;
};

}  // namespace tenon::text
