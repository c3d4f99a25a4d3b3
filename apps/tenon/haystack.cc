#include "haystack.h"

namespace tenon::app {

std::string hidden_number(uint64_t index) {
  constexpr uint64_t kLeast = 10000, kNumbers = 90000, kStep = 0x9e3779b97f4a7c15U;
  constexpr uint32_t kUpper = 33;
  return std::to_string(kLeast + (((index + 1) * kStep) >> kUpper) % kNumbers);
}

Continuation haystack(const Tokenizer& tokenizer, std::span<const int32_t> text, const Hiding& hiding) {
  const std::string sentence = "\nThe secret number is " + hiding.number + ". Remember it.\n";
  const std::vector<int32_t> needle = tokenizer.encode(sentence, {.add_special = false});
  const Continuation asked = continuation(tokenizer, "\nThe secret number is", " " + hiding.number);
  const size_t bos = tokenizer.info().adds_bos && tokenizer.info().bos ? 1 : 0;  // so many of the question's come first
  const size_t around = needle.size() + asked.tokens.size();
  if (around >= hiding.length) {
    throw Error(ErrorCode::kRequest, "a length of " + std::to_string(hiding.length) +
                                         " tokens leaves no room for text; number and question take " +
                                         std::to_string(around));
  }
  const size_t kept = hiding.length - around;
  if (kept > text.size()) {
    throw Error(ErrorCode::kRequest, "a length of " + std::to_string(hiding.length) + " tokens takes " +
                                         std::to_string(kept) + " of the text, which has " +
                                         std::to_string(text.size()));
  }
  const std::span<const int32_t> question(asked.tokens);
  const auto before = static_cast<size_t>(static_cast<double>(kept) * hiding.depth);
  Continuation made;
  made.continued = asked.continued;
  for (const std::span<const int32_t> part : {question.first(bos), text.first(before), std::span<const int32_t>(needle),
                                              text.subspan(before, kept - before), question.subspan(bos)}) {
    made.tokens.insert(made.tokens.end(), part.begin(), part.end());
  }
  return made;
}

}  // namespace tenon::app
