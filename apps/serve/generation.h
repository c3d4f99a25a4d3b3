// The answers to one HTTP request are here on their way from the thread that steps the engine to a connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "failure.h"
#include "tenon/core/engine.h"

namespace tenon::serve {

// This is something that one of the answers got.
struct Event {
  uint32_t choice = 0;  // the answer's number
  std::string text;
  int32_t token = -1;  // it completes the text; -1: there is none
  std::optional<Logprob> logprob;
  std::vector<Logprob> top;
  // This is the last event of an answer; text is then all of its text if the request did not ask for tokens.
  bool last = false;
  FinishReason finish = FinishReason::kLength;
  std::optional<Failure> failure;  // it is there with kError
  uint32_t prompt_tokens = 0, tokens = 0;
  uint32_t reused = 0;  // so many of the prompt's tokens were in the cache
  std::vector<float> embedding = {};
};

// Thread: take() by one, put() by another. What waits here is bounded by the tokens that the request may have at most,
// so the engine never waits for a slow reader.
class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  // `with_tokens` makes every token an event; else only ends of answers are. An unknown thread calls `wake_up` when
  // there is something that the connection should look at.
  Generation(size_t choices, bool with_tokens, bool as_they_come, std::function<void()> wake_up)
      : tokens(with_tokens), stream(as_they_come), wake(std::move(wake_up)), left_(choices) {}

  // Returns all that came since the last call.
  std::vector<Event> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }
  // Returns true if it was the last event of the last answer.
  bool put(Event event) {
    const std::lock_guard lock(mutex_);
    if (event.last) --left_;
    events_.push_back(std::move(event));
    return left_ == 0;
  }

  const bool tokens, stream;
  const std::function<void()> wake;
  const Clock::time_point arrived = Clock::now();

 private:
  friend class Driver;

  // The thread that steps uses it, and others before its first step.
  struct Choice {
    bool started = false, ended = false;
    uint64_t cached = 0;  // the cache has so many of its tokens, as far as the driver counted them
    uint64_t tokens = 0;
    Clock::time_point began, first, last;  // its first step began; its first and last token came
  };
  std::vector<Choice> choices_;
  uint32_t answers_ = 1;  // so many choices, side by side, are answers to one prompt
  bool marked_ = false;   // it is among those that are woken after the step

  std::mutex mutex_;
  std::vector<Event> events_;
  size_t left_;
  std::vector<Ticket> tickets_;
  bool cancelled_ = false;
};

}  // namespace tenon::serve
