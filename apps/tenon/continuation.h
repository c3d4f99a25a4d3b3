// This tells how likely a model takes a text to go on in a certain way.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "tenon/core/engine.h"

namespace tenon::app {

// These are tokens, of which the last `continued` go on from those before.
struct Continuation {
  std::vector<int32_t> tokens;
  uint32_t continued = 0;
};

// Returns the tokens of context + ending. Those that context alone has as well are the context's. Throws
// Error(kRequest) if nothing is left for the ending, or nothing stands before it.
Continuation continuation(const Tokenizer& tokenizer, const std::string& context, const std::string& ending);

struct ContinuationScore {
  double log_likelihood = 0;  // it is the sum over the continued tokens, each given all before it
  bool likeliest = true;      // each of them was the likeliest at its place
};
ContinuationScore score(Engine& engine, const Continuation& text, const std::stop_token& cancel);

}  // namespace tenon::app
