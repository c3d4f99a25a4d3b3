// This makes long texts in which a number is hidden.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "continuation.h"

namespace tenon::app {

// Returns the number of a try, five digits. It depends on nothing else, so every run hides the same ones.
std::string hidden_number(uint64_t index);

struct Hiding {
  uint32_t length = 0;  // it has so many tokens, all in all
  double depth = 0;     // the number stands there: 0 before the text, 1 after it
  std::string number;
};

// Returns the first tokens of `text`, a sentence with the number among them, and a question that goes on with the
// number. It begins with BOS where the model's texts do. Throws Error(kRequest) for a length that leaves no room for
// text, or takes more than there is.
Continuation haystack(const Tokenizer& tokenizer, std::span<const int32_t> text, const Hiding& hiding);

}  // namespace tenon::app
