// What an engine holds, in the order of creation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "request_trace.h"
#include "tenon/core/engine.h"
#include "tenon/core/scheduler.h"

namespace tenon {

struct Engine::Impl {
  std::unique_ptr<Registry> registry;
  PipelineConfig config, defaults;
  std::unique_ptr<Weights> weights;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatFormat> chat;
  std::string chat_problem;  // why there is none although the model has a template
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Pipeline> pipeline;
  std::optional<RequestTrace> trace;
  uint64_t requests = 0;
  bool loaded = false;

  void check_prompt(const std::vector<int32_t>& tokens) const;
};

}  // namespace tenon
