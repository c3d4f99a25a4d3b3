// This times the ops of decode steps, after the runs that count.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "op_report.h"
#include "tenon/core/engine.h"
#include "tenon/profiler/kernel_recorder.h"

namespace tenon::app {

class OpBench {
 public:
  explicit OpBench(std::stop_token cancel) : cancel_(std::move(cancel)) {}

  // A point asks for so many sequences, with these lengths of the prompt and of what follows it.
  struct Size {
    uint32_t batch = 0, prompt_tokens = 0, new_tokens = 0;
  };
  using Prompts = std::function<std::vector<std::vector<int32_t>>(uint32_t prompt_tokens)>;

  // Runs some steps around the middle of what such a run decodes. On a CUDA device CUPTI is loaded by the first call
  // and records only these steps. The report says what went wrong. Throws Interrupted, and Error if the steps
  // themselves fail.
  OpReport measure(Engine& engine, const Size& size, const Prompts& prompts);

 private:
  struct Steps;
  // Decodes `steps` steps after prompts that have been read when `begin` is called.
  void decode(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, uint32_t steps,
              const std::function<void()>& begin);
  Steps by_kernels(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, uint32_t steps);
  Steps by_watch(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, uint32_t steps);

  std::stop_token cancel_;
  std::unique_ptr<profiler::KernelRecorder> recorder_;
};

}  // namespace tenon::app
