// This is a small model, and what each request gets from it alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/random_requests.h"
#include "tenon/core/engine.h"
#include "tenon/core/error.h"

namespace tenon::test {

// Engines of a checkpoint with a vocabulary of 260, a sampler with a state, and the plugins of these tests.
inline std::unique_ptr<Engine> open_tiny(const std::vector<std::string>& set, EngineOptions options = {}) {
  if (options.config.empty()) options.config = std::string(TENON_SOURCE_DIR) + "/tests/golden/data/tiny-gqa-untied";
  options.set = {"kv_cache.capacity=128", "device.threads=2",
                 "sampler.chain=[{use=\"repetition_penalty\"}, {use=\"temperature\"}, {use=\"top_k\"}]"};
  options.set.insert(options.set.end(), set.begin(), set.end());
  options.plugin_dirs = {TENON_ENGINE_TEST_PLUGINS};
  return Engine::open(options);
}

inline std::vector<Result> alone(const std::vector<Request>& requests) {
  const auto engine = open_tiny({});
  std::vector<Result> results;
  for (const Request& r : requests) results.push_back(engine->generate(r));
  return results;
}

}  // namespace tenon::test
