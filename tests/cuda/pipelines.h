// Pipelines of a small model for the tests of this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tenon/core/engine.h"
#include "tenon/core/error.h"

namespace tenon::test {

using Settings = std::vector<std::string>;

inline const std::string kTiny = "tiny-gqa-untied";
inline const Settings kExact = {"quantization.use=none", "quantization.dtype=fp32", "kv_cache.format=fp32",
                                "kv_cache.capacity=128", "sampler.chain=[]",        "sampler.select=greedy"};

inline std::unique_ptr<Engine> open(const std::string& model, const std::string& device, Settings settings,
                                    uint32_t sequences = 0) {
  settings.push_back("device.use=" + device);
  EngineOptions options;
  options.config = std::string(TENON_SOURCE_DIR "/tests/golden/data/") + model;
  options.set = settings;
  options.plugin_dirs = {TENON_BUILD_DIR "/lib/tenon/plugins"};
  options.sequences = sequences;
  return Engine::open(options);
}

inline Request request(uint32_t tokens = 32) {
  Request r;
  for (int32_t i = 0; i < 21; ++i) r.tokens.push_back((i * 37 + 5) % 200 + 3);
  r.max_new_tokens = tokens;
  r.ignore_end = true;
  return r;
}

// "" where there is a GPU, else what is missing.
inline std::string no_gpu() {
  try {
    open(kTiny, "cuda", kExact);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace tenon::test
