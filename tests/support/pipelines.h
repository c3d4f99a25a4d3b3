// Pipelines of a small model for tests. Plugins lie in lib/tenon/plugins beside the program's
// folder, tests/golden/data and models in the source tree or, if it is set, in the folder TENON_TEST_ROOT.
#pragma once

#include <cstdlib>
#include <filesystem>
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

// Returns the settings and then more, which hold where both say something.
inline Settings with(Settings settings, const Settings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

inline std::filesystem::path root() {
  const char* moved = std::getenv("TENON_TEST_ROOT");
  return moved != nullptr ? moved : TENON_SOURCE_DIR;
}
// Returns the folder of the program and of what was built with it.
inline std::filesystem::path build() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}
inline std::string plugins() {
  return build() / "lib/tenon/plugins";
}

// `model` is one of the tests' data, or a path. The configuration is put into the options.
inline std::unique_ptr<Engine> open_with(EngineOptions options, const std::string& model, const std::string& device,
                                         Settings settings) {
  settings.push_back("device.use=" + device);
  options.config = root() / "tests/golden/data" / model;
  options.set = settings;
  options.plugin_dirs = {plugins()};
  return Engine::open(options);
}

inline std::unique_ptr<Engine> open(const std::string& model, const std::string& device, Settings settings,
                                    uint32_t sequences = 0) {
  EngineOptions options;
  options.sequences = sequences;
  return open_with(std::move(options), model, device, std::move(settings));
}

inline Request request(uint32_t tokens = 32) {
  Request r;
  for (int32_t i = 0; i < 21; ++i) r.tokens.push_back((i * 37 + 5) % 200 + 3);
  r.max_new_tokens = tokens;
  r.ignore_end = true;
  return r;
}

// Returns "" where there is a GPU, else what is missing.
inline std::string no_gpu() {
  try {
    open(kTiny, "cuda", kExact);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace tenon::test
