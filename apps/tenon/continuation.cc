#include "continuation.h"

#include <algorithm>

#include "divergence.h"

namespace tenon::app {

Continuation continuation(const Tokenizer& tokenizer, const std::string& context, const std::string& ending) {
  const std::vector<int32_t> before = tokenizer.encode(context);
  Continuation made{.tokens = tokenizer.encode(context + ending)};
  const auto differs = std::mismatch(before.begin(), before.end(), made.tokens.begin(), made.tokens.end());
  made.continued = static_cast<uint32_t>(made.tokens.end() - differs.second);
  if (made.continued == 0) throw Error(ErrorCode::kRequest, "an ending of no tokens goes on from nothing to nothing");
  if (made.continued == made.tokens.size()) throw Error(ErrorCode::kRequest, "nothing stands before the ending");
  return made;
}

ContinuationScore score(Engine& engine, const Continuation& text, const std::stop_token& cancel) {
  const std::span<const int32_t> tokens(text.tokens);
  const auto first = static_cast<uint32_t>(tokens.size() - text.continued - 1);
  ContinuationScore out;
  engine.score(
      tokens.first(tokens.size() - 1), first,
      [&](uint32_t row, std::span<const float> of_vocab) {
        const Logits logits(of_vocab);
        out.log_likelihood -= logits.negative_log_likelihood(tokens[row + 1]);
        out.likeliest = out.likeliest && logits.top == tokens[row + 1];
      },
      cancel);
  return out;
}

}  // namespace tenon::app
