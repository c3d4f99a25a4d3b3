// An engine holds these, in the order of creation.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "grammars.h"
#include "loop.h"
#include "request_trace.h"
#include "scheduler.h"
#include "tenon/core/engine.h"
#include "tickets.h"

namespace tenon {

struct Engine::Impl {
  std::shared_ptr<Registry> registry;  // compiled grammars share it
  PipelineConfig config, defaults;
  std::unique_ptr<Weights> weights, draft_weights;  // draft_weights are nullptr if they are the model's
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  std::string chat_problem;  // why there is none
  std::optional<Grammars> grammars;
  std::string grammar_problem = "the engine was opened without grammars";  // "" if there are some
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Pipeline> pipeline;
  std::optional<RequestTrace> trace;
  Tickets tickets;
  std::optional<Loop> loop;
  bool load_sessions = false, save_sessions = false;
  bool loaded = false;
  std::atomic<std::thread::id> stepping;  // this thread is in a function that only one may be in
  std::atomic<bool> closed = false;       // the engine is gone, and nobody wants what the call under way makes

  // This lasts as long as such a function, in which the engine itself may be destroyed. Making it throws Error(kUsage)
  // that says who is in one already.
  class SteppingCall {
   public:
    SteppingCall(std::shared_ptr<Impl> impl, const char* function);
    ~SteppingCall();
    SteppingCall(const SteppingCall&) = delete;
    SteppingCall& operator=(const SteppingCall&) = delete;

    Impl& operator*() const { return *impl_; }
    Impl* operator->() const { return impl_.get(); }
    // Throws Error(kUsage) if the engine was destroyed.
    void check_open() const;

   private:
    std::shared_ptr<Impl> impl_;
    const char* function_;
  };

  void open_grammars(const EngineOptions& options);
  void load(const SteppingCall& call, const LoadProgress& progress);
  // The engine's destructor calls it.
  void close();
  void check_prompt(const std::vector<int32_t>& tokens) const;
  void check_sessions(const Request& request, const std::vector<int32_t>& prompt) const;
  std::vector<int32_t> prompt_tokens(const Request& request) const;
  // A mistake in the request becomes the sequence's error.
  std::unique_ptr<Sequence> make_sequence(Request request, uint32_t index) const;
};

}  // namespace tenon
