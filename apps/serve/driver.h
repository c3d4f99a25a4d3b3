// The thread that steps the engine, and the door to it: admission, backpressure, cancelling, draining.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "completion_request.h"
#include "generation.h"
#include "metrics.h"
#include "tenon/core/engine.h"

namespace tenon::serve {

class Driver {
 public:
  struct Options {
    uint32_t max_waiting = 256;  // answers that wait for a slot, beyond which nobody is admitted
    // Runs a function on a thread that may take its time: connections are woken there.
    std::function<void(std::function<void()>)> post;
  };
  Driver(Engine& engine, Metrics& metrics, Options options);

  // [any thread] Throws ApiError: 429 when too many wait, 503 when the server ends. What else is wrong with the request
  // is told by its events. wake: see Generation.
  std::shared_ptr<Generation> submit(const CompletionRequest& request, std::function<void()> wake);
  // [any thread] The answers that have not ended do so before the next step.
  void cancel(Generation& generation);

  // Steps until close() was called and nobody is left. beat: called after each step, and now and then without one.
  void run(const std::function<void()>& beat);
  // [any thread] Nobody is admitted any more.
  void close();
  // [any thread] Everybody ends before the next step.
  void cancel_all();

  bool closed() const;

 private:
  void admit(const std::shared_ptr<Generation>& generation, size_t choices);
  void submit_choice(const std::shared_ptr<Generation>& generation, Request request, uint32_t choice);
  void cancel_now(Generation& generation);
  // By the thread that steps.
  void start(Generation& generation, uint32_t choice);
  void take(const std::shared_ptr<Generation>& generation, uint32_t choice, const Token& token);
  void count_prompt(Generation& generation, uint32_t choice, uint32_t done);
  void end(const std::shared_ptr<Generation>& generation, uint32_t choice, const Result& result);
  void mark(const std::shared_ptr<Generation>& generation);
  void wake_marked();
  double cache_share() const;
  unsigned retry_after() const;

  Engine& engine_;
  Metrics& metrics_;
  const Options options_;
  const double cache_tokens_;                        // that all slots hold together
  const uint32_t pages_;                             // of the cache; 0 if sequences do not share any
  uint64_t cached_ = 0;                              // tokens of those that run
  std::vector<std::shared_ptr<Generation>> marked_;  // to wake after the step

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t waiting_ = 0, running_ = 0;  // answers
  bool submitted_ = false, closed_ = false;
  double seconds_an_answer_ = 1;  // of those that ended lately
  std::set<std::shared_ptr<Generation>> live_;
};

}  // namespace tenon::serve
