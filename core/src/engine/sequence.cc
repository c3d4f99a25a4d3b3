// take() is where a sequence grows: it appends one token and the token's text, holds back what may be the beginning of
// a stop string, calls the request's callback, and ends the sequence where the text, a limit or the callback says so.
#include "sequence.h"

#include <algorithm>
#include <cmath>

namespace tenon {
namespace {

double log_sum_exp(std::span<const float> logits) {
  const float peak = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - static_cast<double>(peak));
  return static_cast<double>(peak) + std::log(sum);
}

void likeliest(std::span<const float> logits, double norm, uint32_t n, std::vector<Logprob>& out) {
  out.clear();
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  n = std::min(n, static_cast<uint32_t>(ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + n, ids.end(), [&](int32_t a, int32_t b) {
    const auto x = static_cast<size_t>(a), y = static_cast<size_t>(b);
    return logits[x] > logits[y] || (logits[x] == logits[y] && a < b);
  });
  for (uint32_t i = 0; i < n; ++i) {
    out.push_back({ids[i], static_cast<float>(static_cast<double>(logits[static_cast<size_t>(ids[i])]) - norm)});
  }
}

}  // namespace

void normalize(std::span<float> vector) {
  double square = 0;
  for (const float x : vector) square += static_cast<double>(x) * static_cast<double>(x);
  if (square == 0) return;
  const double scale = 1 / std::sqrt(square);
  for (float& x : vector) x = static_cast<float>(static_cast<double>(x) * scale);
}

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kEndOfText:
      return "end_of_text";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kCallback:
      return "callback";
    case FinishReason::kCapacity:
      return "capacity";
    case FinishReason::kError:
      return "error";
  }
  return "unknown";
}

Sequence::Sequence(SequenceStart start, const Tokenizer& tokenizer)
    : request_(std::move(start.request)),
      index_(start.index),
      limit_(request_.embed == Pooling::kNone ? request_.max_new_tokens : 0),
      capacity_(start.capacity),
      tokens_(std::move(start.prompt)),
      end_tokens_(std::move(start.end_tokens)),
      prompt_size_(tokens_.size()),
      detokenizer_(tokenizer, {.show_control = false, .continues = true, .shown = request_.shown}) {
  // This reserves all the room that it may need, so that steps do not allocate.
  const size_t room = std::max(prompt_size_, std::min<size_t>(prompt_size_ + limit_, capacity_)) + 1;
  tokens_.reserve(room);
  text_.reserve((room - prompt_size_) * 8);
  if (request_.logprobs) logprobs_.reserve(room - prompt_size_);
  done_ = limit_ == 0 && !embeds() && !request_.save;
}

uint32_t Sequence::saved_tokens() const {
  if (!request_.begin_from) return 0;
  const std::span<const int32_t> saved = request_.begin_from->tokens(), own = adoptable();
  const auto differs = std::mismatch(saved.begin(), saved.end(), own.begin(), own.end());
  return static_cast<uint32_t>(differs.first - saved.begin());
}

// Returns how many bytes at the end of the text may be the beginning of a stop string.
size_t Sequence::held_back() const {
  size_t held = 0;
  for (const std::string& stop : request_.stop) {
    const size_t longest = stop.empty() ? 0 : std::min(stop.size() - 1, text_.size());
    for (size_t n = longest; n > held; --n) {
      if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) held = n;
    }
  }
  return held;
}

void Sequence::report(int32_t chosen, std::string_view text, std::span<const float> logits) {
  Token token{.id = chosen, .text = text, .logprob = {}, .top = {}, .sequence = index_};
  if (request_.logprobs && !logits.empty()) {
    const double norm = log_sum_exp(logits);
    token.logprob =
        Logprob{chosen, static_cast<float>(static_cast<double>(logits[static_cast<size_t>(chosen)]) - norm)};
    logprobs_.push_back(*token.logprob);
    likeliest(logits, norm, request_.top_logprobs, top_);
    token.top = top_;
  }
  if (request_.on_token && !request_.on_token(token)) wanted_ = false;
}

bool Sequence::take(int32_t token, std::span<const float> logits) {
  if (!request_.ignore_end && std::binary_search(end_tokens_.begin(), end_tokens_.end(), token)) {
    finish(FinishReason::kEndOfText);
    return false;
  }
  if (matcher) matcher->accept(token);
  tokens_.push_back(token);
  ++generated_;
  text_ += detokenizer_.push(token);
  for (const std::string& stop : request_.stop) {
    const size_t from = shown_ > stop.size() ? shown_ - stop.size() : 0;
    const size_t at = stop.empty() ? std::string::npos : text_.find(stop, from);
    if (at == std::string::npos) continue;
    text_.resize(std::max(at, shown_));
    report(token, std::string_view(text_).substr(shown_), logits);
    shown_ = text_.size();
    done_ = true;
    reason_ = FinishReason::kStopString;
    return false;
  }
  const size_t visible = text_.size() - std::min(held_back(), text_.size() - shown_);
  report(token, std::string_view(text_).substr(shown_, visible - shown_), logits);
  shown_ = visible;
  if (!wanted_) {
    finish(FinishReason::kCallback);
  } else if (generated_ >= limit_) {
    finish(FinishReason::kLength);
  } else if (tokens_.size() >= capacity_) {
    finish(FinishReason::kCapacity);
  }
  return !done_;
}

// A mask is asked for while a step is under way: what goes wrong ends the sequence when that is over. The matcher is as
// before but where something went wrong that is not the text's doing.
void Sequence::mask(int32_t draft, std::span<uint32_t> bits) {
  path_.clear();
  for (int32_t d = draft; d >= 0; d = parents[static_cast<size_t>(d)]) path_.push_back(drafts[static_cast<size_t>(d)]);
  try {
    const uint32_t accepted = accept_path();
    const bool comes = accepted == path_.size();
    std::exception_ptr nothing_follows;
    try {
      if (comes) matcher->mask(bits);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kRequest) throw;
      nothing_follows = std::current_exception();
    }
    matcher->rewind(accepted);
    if (nothing_follows) mask_problems.push_back({nothing_follows, draft});
    if (comes && !nothing_follows) return;
  } catch (...) {
    mask_problems.push_back({std::current_exception(), -1});
  }
  std::fill(bits.begin(), bits.end(), UINT32_MAX);
}

// The text goes on with the drafts of the path, from its end on. Returns how many of them can come: the mask of the one
// before keeps the next one from being chosen.
uint32_t Sequence::accept_path() {
  uint32_t accepted = 0;
  for (auto token = path_.rbegin(); token != path_.rend(); ++token) {
    if (matcher->ends(*token) || !matcher->accept_draft(*token)) break;
    ++accepted;
  }
  return accepted;
}

void Sequence::finish(FinishReason reason) {
  if (done_) return;
  done_ = true;
  reason_ = reason;
  text_ += detokenizer_.finish();
  if (shown_ == text_.size() || !wanted_ || !request_.on_token) return;
  request_.on_token(
      Token{.id = -1, .text = std::string_view(text_).substr(shown_), .logprob = {}, .top = {}, .sequence = index_});
  shown_ = text_.size();
}

void Sequence::finish_with(std::vector<float> embedding) {
  embedding_ = std::move(embedding);
  finish(FinishReason::kLength);
}

void Sequence::fail(std::exception_ptr error) {
  if (done_) return;
  done_ = true;
  reason_ = FinishReason::kError;
  error_ = std::move(error);
}

Result Sequence::take_result() {
  Result r;
  r.prompt_tokens.assign(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(prompt_size_));
  r.tokens.assign(tokens_.begin() + static_cast<std::ptrdiff_t>(prompt_size_), tokens_.end());
  r.reused = reused;
  r.text = std::move(text_);
  r.finish = reason_;
  r.error = error_;
  r.logprobs = std::move(logprobs_);
  r.embedding = std::move(embedding_);
  return r;
}

}  // namespace tenon
