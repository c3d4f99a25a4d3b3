// A driver has the thread that steps the engine, and decides who gets to it:
// admission, backpressure, cancelling, draining.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "compile_threads.h"
#include "completion_request.h"
#include "generation.h"
#include "metrics.h"
#include "tenon/core/engine.h"

namespace tenon::serve {

class Driver {
 public:
  struct Options {
    uint32_t max_waiting = 256;  // so many answers may wait for a slot; nobody else is admitted
    // It runs a function on a thread that may take its time: connections are woken there.
    std::function<void(std::function<void()>)> post;
  };
  Driver(Engine& engine, Metrics& metrics, Options options);

  // [any thread] Admits a request. Throws ApiError: 429 when too many wait, 503 when the server ends. The generation's
  // events tell any other mistake of the request. For `wake` see Generation.
  std::shared_ptr<Generation> submit(const CompletionRequest& request, std::function<void()> wake);
  // [any thread] Ends the answers that have not ended, before the next step.
  void cancel(Generation& generation);

  // Steps until close() was called and nobody is left. beat is called after each step, and now and then without one.
  void run(const std::function<void()>& beat);
  // [any thread] Admits nobody any more.
  void close();
  // [any thread] Ends everybody before the next step.
  void cancel_all();

  bool closed() const;

 private:
  void admit(const std::shared_ptr<Generation>& generation, size_t choices);
  void submit_all(const std::shared_ptr<Generation>& generation, const CompletionRequest& request,
                  const std::shared_ptr<const Grammar>& grammar);
  void compile_and_submit(const std::shared_ptr<Generation>& generation, const CompletionRequest& request);
  void refuse(const std::shared_ptr<Generation>& generation, size_t first, const Failure& failure);
  static void check_wanted(Generation& generation);
  void submit_choice(const std::shared_ptr<Generation>& generation, Request request, uint32_t choice);
  void cancel_now(Generation& generation);
  // The thread that steps calls these.
  void start(Generation& generation, uint32_t choice);
  void take(const std::shared_ptr<Generation>& generation, uint32_t choice, const Token& token);
  void count_prompt(Generation& generation, uint32_t choice, uint32_t done);
  void end(const std::shared_ptr<Generation>& generation, uint32_t choice, const Result& result);
  void end_prompt(const Generation& generation, uint32_t choice);
  void mark(const std::shared_ptr<Generation>& generation);
  void wake_marked();
  double cache_share() const;
  unsigned retry_after() const;

  Engine& engine_;
  Metrics& metrics_;
  const Options options_;
  const double cache_tokens_;                        // all slots together hold so many
  const uint32_t pages_;                             // the cache has so many; 0 if sequences do not share any
  Generation::Clock::time_point step_began_;         // the engine's step, or the last one
  uint64_t cached_ = 0;                              // those that run have so many tokens
  std::vector<std::shared_ptr<Generation>> marked_;  // these are woken after the step

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t waiting_ = 0, running_ = 0;  // so many answers wait and run
  bool submitted_ = false, closed_ = false;
  double seconds_an_answer_ = 1;  // the answers that ended lately took so long on average
  std::set<std::shared_ptr<Generation>> live_;
  CompileThreads compiling_{2};  // it comes last: its threads use the members above
};

}  // namespace tenon::serve
