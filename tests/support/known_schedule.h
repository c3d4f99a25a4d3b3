// The schedule of these requests is known to the step: five of them share two slots and a pool of eight pages of 16
// tokens. One is pre-empted as the pool is full, one is cancelled while it generates, and two begin as another one did.
// tests/data/trace/known_schedule.txt has what the trace says of them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "tenon/core/engine.h"
#include "tenon/core/error.h"
#include "tenon/profiler/perfetto_writer.h"

namespace tenon::test {

// Tokens [0, alike) are those of all such requests, the others of those with the same seed.
inline Request scheduled_request(size_t alike, size_t own, int32_t seed, uint32_t new_tokens) {
  Request r{.max_new_tokens = new_tokens, .ignore_end = true, .seed = 5};
  for (size_t i = 0; i < alike; ++i) r.tokens.push_back(static_cast<int32_t>((i * 37) % 200 + 3));
  for (size_t i = 0; i < own; ++i) r.tokens.push_back(static_cast<int32_t>((i * 53 + 11) % 200 + 3 + seed));
  return r;
}

// Writes the trace of what `run` does with an engine of two slots.
inline void record_requests(const std::string& path, const std::function<void(Engine&)>& run) {
  trace::Recorder recorder({.drain_interval = std::chrono::milliseconds(0)},
                           profiler::make_perfetto_writer({.path = path, .metadata = {{"slots", uint64_t{2}}}}));
  {
    EngineOptions options{.config = std::string(TENON_SOURCE_DIR) + "/tests/golden/data/tiny-gqa-untied"};
    options.set = {"kv_cache.capacity=128",   "kv_cache.use=paged",       "kv_cache.pool=128",
                   "device.threads=1",        "scheduler.use=continuous", "scheduler.sequences=2",
                   "scheduler.budget_rows=9", "scheduler.prefill_rows=32"};
    options.recorder = [&](const PipelineConfig&) { return &recorder; };
    run(*Engine::open(options));
  }
  const Status status = recorder.stop();
  if (!status.ok()) throw Error(status.code(), status.message());
}

inline void run_known_schedule(Engine& engine) {
  engine.submit(scheduled_request(40, 0, 1, 36));  // 1 runs from the first step to its end
  engine.submit(scheduled_request(0, 40, 2, 36));  // 2 loses its pages to 1
  engine.submit(scheduled_request(40, 4, 3, 4));   // 3 finds two pages of its prompt in the cache
  for (int i = 0; i < 10; ++i) engine.step();
  uint32_t tokens = 0;
  Request cancelled = scheduled_request(0, 20, 4, 30);  // 4 is cancelled when it has three tokens
  std::stop_source stop;
  cancelled.cancel = stop.get_token();
  cancelled.on_token = [&](const Token&) {
    if (++tokens == 3) stop.request_stop();
    return true;
  };
  engine.submit(std::move(cancelled));
  engine.submit(scheduled_request(0, 40, 2, 4));  // 5 begins as 2
  while (engine.step()) {
  }
}

inline void record_known_schedule(const std::string& path) {
  record_requests(path, run_known_schedule);
}

}  // namespace tenon::test
