// One request on its way: tokens, text, stop strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/engine.h"

namespace tenon {

class Sequence {
 public:
  Sequence(const Request& request, uint32_t index, std::vector<int32_t> prompt, std::vector<int32_t> end_tokens,
           const Tokenizer& tokenizer, uint32_t capacity);

  // Takes a chosen token and says whether the sequence goes on. logits: the row that it was chosen from.
  bool take(int32_t id, std::span<const float> logits);
  // Ends with what is there: the text that was held back comes out.
  void finish(FinishReason reason);

  const Request& request() const { return *request_; }
  bool done() const { return done_; }
  bool generating() const { return generated_ > 0; }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // prompt and text
  std::string_view text() const { return text_; }                 // of the generated tokens so far
  uint32_t new_tokens() const { return generated_; }
  uint32_t tokens_left() const { return limit_ - generated_; }
  Result take_result();

  uint32_t slot = 0;
  uint32_t kv_len = 0;          // tokens in the cache
  std::vector<int32_t> drafts;  // proposed behind the last token
  uint64_t request_id = 0;      // in the trace
  uint32_t pending() const { return static_cast<uint32_t>(tokens_.size() - kv_len + drafts.size()); }
  uint32_t prompt_size() const { return static_cast<uint32_t>(prompt_size_); }

 private:
  bool emit(const std::string& text, int32_t id, std::span<const float> logits);
  void report(int32_t id, std::string_view text, std::span<const float> logits);
  size_t held_back() const;

  const Request* request_;
  uint32_t index_, limit_, capacity_;
  std::vector<int32_t> tokens_, end_tokens_;
  size_t prompt_size_;
  StreamDetokenizer detokenizer_;
  std::string text_;
  size_t shown_ = 0;  // bytes of text_ that were handed out
  uint32_t generated_ = 0;
  bool done_ = false, wanted_ = true;
  FinishReason reason_ = FinishReason::kLength;
  std::vector<Logprob> logprobs_, top_;
};

}  // namespace tenon
