// This is one request on its way: tokens, text, stop strings, and where it stands.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "clients.h"
#include "grammars.h"
#include "rests.h"
#include "tenon/abi/scheduler.h"
#include "tenon/core/engine.h"

namespace tenon {

struct SequenceStart {
  Request request;
  uint32_t index = 0;               // Token::sequence
  std::vector<int32_t> prompt;      // tokens
  std::vector<int32_t> end_tokens;  // each of them ends the text
  uint32_t capacity = 0;            // the most tokens, prompt and text, that the cache holds of one sequence
};

class Sequence {
 public:
  Sequence(SequenceStart start, const Tokenizer& tokenizer);

  // Takes a chosen token and says whether the sequence goes on. logits: the row that it was chosen from. Throws what
  // the request's callback throws.
  bool take(int32_t token, std::span<const float> logits);
  // Sets the bits of tokens that may come by the grammar after the text and then a draft and those that it follows; -1:
  // after the text. All may after drafts that cannot come, and if that cannot be told: mask_problems say why, and have
  // room for one of each draft and one more.
  void mask(int32_t draft, std::span<uint32_t> bits);
  // Ends with what is there: the text that was held back comes out. Throws what the request's callback throws.
  void finish(FinishReason reason);
  // Ends with the embedding that was asked for.
  void finish_with(std::vector<float> embedding);
  // Ends with an error, unless it has ended. Calls nothing.
  void fail(std::exception_ptr error);

  const Request& request() const { return request_; }
  bool done() const { return done_; }
  FinishReason reason() const { return reason_; }  // once it is done
  bool chooses() const { return limit_ > 0; }      // false: it ends after its prompt
  bool embeds() const { return request_.embed != Pooling::kNone; }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // prompt and text
  std::string_view text() const { return text_; }                 // the generated tokens' text so far
  uint32_t generated() const { return generated_; }
  uint32_t tokens_left() const { return limit_ - generated_; }
  uint32_t prompt_size() const { return static_cast<uint32_t>(prompt_size_); }
  std::span<const int32_t> cached() const { return {tokens_.data(), std::min<size_t>(kv_len, tokens_.size())}; }
  // Another sequence may have computed these tokens for it: not the newest, whose
  // result is wanted. A mean takes all rows.
  std::span<const int32_t> adoptable() const {
    return {tokens_.data(), request_.embed == Pooling::kMean ? 0 : tokens_.size() - 1};
  }
  // So many of the first tokens a saved sequence has, which the request begins from.
  uint32_t saved_tokens() const;
  uint32_t uncached() const { return static_cast<uint32_t>(tokens_.size()) - kv_len; }
  // These are as of the end of the step that is under way, where the one after it is planned meanwhile.
  uint32_t cached_then() const { return kv_len + under_way; }
  uint32_t tokens_then() const { return static_cast<uint32_t>(tokens_.size()) + (expects_token() ? 1 : 0); }
  uint32_t phase_then() const { return expects_token() ? uint32_t{TENON_SEQUENCE_GENERATES} : phase; }
  uint32_t pending() const { return tokens_then() - cached_then() + static_cast<uint32_t>(drafts.size()); }
  bool expects_token() const { return next_out_row >= 0; }
  Result take_result();

  uint64_t id = 0;  // the ticket's, and the trace's
  uint64_t seed = 0;
  uint64_t joined_at = 0;                             // step
  std::chrono::steady_clock::time_point submitted{};  // for the trace, if there is one
  bool kept_for_call = false;                         // a generate() waits for the result

  // These are valid while it is in the loop.
  Client* client = nullptr;
  uint32_t phase = TENON_SEQUENCE_WAITS;
  uint32_t slot = 0;             // unless it waits
  uint32_t kv_len = 0;           // tokens in the cache
  uint32_t under_way = 0;        // the step that is under way brings so many more
  int32_t next_out_row = -1;     // and a token, which is chosen for this one of its out rows; -1: it brings none
  bool certain_to_end = false;   // with that step
  uint32_t most_cached = 0;      // the largest kv_len so far: what is below it and not in the cache is computed again
  std::vector<int32_t> drafts;   // proposed after the last token
  std::vector<int32_t> parents;  // by draft: which draft it follows, or -1: the last token
  bool started = false;          // its slot has its sampler's parameters
  bool ran = false;              // it was started once
  bool loads = false;            // the first kv_len tokens are not in the cache yet: the saved sequence has them
  bool doubtful = false;         // its cells in the cache may be wrong
  uint32_t reused = 0;           // see Result
  bool sits_out = false;         // is not asked for again in the step that is being planned
  Rest rest;
  struct RestBegin {
    std::chrono::steady_clock::time_point at;
    uint64_t step;  // the first one that it rests in
  };
  std::optional<RestBegin> rest_began;      // while it rests, for the trace, if there is one
  std::unique_ptr<GrammarMatcher> matcher;  // nullptr: the text may be any
  struct MaskProblem {
    std::exception_ptr what;
    int32_t draft;  // no token can follow this draft, which matters if it comes; -1: it matters in any case
  };
  std::vector<MaskProblem> mask_problems;  // the step that is under way found these

 private:
  uint32_t accept_path();
  void report(int32_t chosen, std::string_view text, std::span<const float> logits);
  size_t held_back() const;

  Request request_;
  uint32_t index_, limit_, capacity_;
  std::vector<int32_t> tokens_, end_tokens_;
  size_t prompt_size_;
  StreamDetokenizer detokenizer_;
  std::string text_;
  std::vector<int32_t> path_;  // a draft, and those that it follows, back to the text
  size_t shown_ = 0;           // bytes of text_ that were handed out
  uint32_t generated_ = 0;
  bool done_ = false, wanted_ = true;
  FinishReason reason_ = FinishReason::kLength;
  std::exception_ptr error_;
  std::vector<Logprob> logprobs_, top_;
  std::vector<float> embedding_;
};

}  // namespace tenon
