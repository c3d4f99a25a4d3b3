// These are requests of all sorts for a small model, and what each gets alone.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

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

// Returns the same for the same seed. Some requests repeat themselves, so that drafts are found; some end at a stop
// string.
inline std::vector<Request> some_requests(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Request> requests(n);
  for (Request& r : requests) {
    const uint64_t length = 1 + random() % 60, period = 1 + random() % 8;
    std::vector<int32_t> part;
    for (uint64_t i = 0; i < period; ++i) part.push_back(static_cast<int32_t>(3 + random() % 250));
    const bool repeats = random() % 2 == 0;
    for (uint64_t i = 0; i < length; ++i) {
      r.tokens.push_back(repeats ? part[i % period] : static_cast<int32_t>(3 + random() % 250));
    }
    r.max_new_tokens = 1 + static_cast<uint32_t>(random() % 40);
    r.ignore_end = random() % 2 == 0;
    r.seed = random();
    r.priority = static_cast<int32_t>(random() % 3);
    if (random() % 3 == 0) r.sampler = {{"temperature.value", "0.3"}, {"top_k.k", "20"}};
    if (random() % 4 == 0) r.sampler.emplace_back("repetition_penalty.penalty", "1.5");
    if (random() % 3 == 0) r.stop = {std::string(1, static_cast<char>('a' + random() % 26)), "never to be seen"};
    r.logprobs = random() % 5 == 0;
  }
  return requests;
}

// Returns the same, but two in three begin with one of three texts, as far as it goes or less far.
inline std::vector<Request> requests_that_begin_alike(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int32_t>> beginnings(3);
  for (auto& beginning : beginnings) {
    for (int i = 0; i < 48; ++i) beginning.push_back(static_cast<int32_t>(3 + random() % 250));
  }
  std::vector<Request> requests = some_requests(n, seed);
  for (Request& r : requests) {
    if (random() % 3 == 0) continue;
    const auto& beginning = beginnings[random() % 3];
    const uint64_t length = random() % 2 == 0 ? beginning.size() : random() % beginning.size();
    r.tokens.insert(r.tokens.begin(), beginning.begin(), beginning.begin() + static_cast<std::ptrdiff_t>(length));
  }
  return requests;
}

inline std::vector<Result> alone(const std::vector<Request>& requests) {
  const auto engine = open_tiny({});
  std::vector<Result> results;
  for (const Request& r : requests) results.push_back(engine->generate(r));
  return results;
}

inline std::string error_of(const Result& result) {
  if (!result.error) return "";
  try {
    std::rethrow_exception(result.error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace tenon::test
