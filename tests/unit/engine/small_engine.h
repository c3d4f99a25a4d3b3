// A small engine on the CPU, as tests of what an engine does open it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/core/engine.h"

namespace tenon {

inline const std::string kData = std::string(TENON_SOURCE_DIR) + "/tests/golden/data/";
inline const std::string kTiny = kData + "tiny-gqa-untied";

inline std::unique_ptr<Engine> open(const std::string& model, std::vector<std::string> set = {},
                                    EngineOptions options = {}) {
  options.config = model;
  set.insert(set.begin(), {"kv_cache.capacity=256", "device.threads=2"});
  options.set = std::move(set);
  return Engine::open(options);
}

inline std::vector<int32_t> prompt(size_t n, uint32_t seed = 1) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + seed * 104729) % 250 + 3));
  return ids;
}

inline Request request(std::vector<int32_t> tokens, uint32_t n) {
  return {.tokens = std::move(tokens), .max_new_tokens = n, .ignore_end = true};
}

inline std::string error_of(const std::function<void()>& f, ErrorCode code) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace tenon
