// What an engine holds, in the order of creation.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "loop.h"
#include "request_trace.h"
#include "scheduler.h"
#include "tenon/core/engine.h"
#include "tickets.h"

namespace tenon {

struct Engine::Impl {
  std::unique_ptr<Registry> registry;
  PipelineConfig config, defaults;
  std::unique_ptr<Weights> weights, draft_weights;  // draft_weights: nullptr if they are those of the model
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatFormat> chat;
  std::string chat_problem;  // why there is none although the model has a template
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Pipeline> pipeline;
  std::optional<RequestTrace> trace;
  Tickets tickets;
  std::optional<Loop> loop;
  bool loaded = false;
  std::atomic<std::thread::id> stepping;  // the thread that is in a function that only one may be in

  // For the length of such a function. Throws Error(kUsage) that says who is in one already.
  class Turn {
   public:
    Turn(Impl& impl, const char* function);
    ~Turn() { impl_.stepping.store({}); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Impl& impl_;
  };

  void load(const LoadProgress& progress);
  void check_prompt(const std::vector<int32_t>& tokens) const;
  std::vector<int32_t> prompt_tokens(const Request& request) const;
  // What is wrong with the request becomes the sequence's error.
  std::unique_ptr<Sequence> make_sequence(Request request, uint32_t index) const;
};

}  // namespace tenon
