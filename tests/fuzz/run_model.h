// This does all that happens to a model after its file was found: weights, tokenizer, plan, load, two steps. Whatever
// the file says, this ends with an Error or with tokens of the vocabulary.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "../support/one_sequence.h"
#include "guarded_weights.h"
#include "tenon/core/config.h"
#include "tenon/core/engine.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/tokenizer.h"

namespace tenon::fuzz {

// A plugin's wrong reads and writes are seen only if it is built with the sanitizer, as the harness is: ends the
// process where another one was found, on a search path that the environment names.
inline void expect_sanitized(const Registry& plugins) {
#ifdef __SANITIZE_ADDRESS__
  for (const ComponentInfo& c : plugins.components()) {
    if (c.library.empty()) continue;
    std::ostringstream bytes;
    bytes << std::ifstream(c.library, std::ios::binary).rdbuf();
    if (bytes.view().find("__asan_init") != std::string_view::npos) continue;
    std::fprintf(stderr, "%s is built without the address sanitizer; expected one of this build\n", c.library.c_str());
    std::_Exit(1);
  }
#else
  static_cast<void>(plugins);
#endif
}

inline Registry& registry() {
  static const std::unique_ptr<Registry> all = [] {
    std::unique_ptr<Registry> made = make_registry({});
    expect_sanitized(*made);
    return made;
  }();
  return *all;
}

// Returns pipelines of different parts, all of which have to be there. A file's number says which of them runs it.
inline const std::vector<PipelineConfig>& pipelines() {
  static const std::vector<PipelineConfig> all = []() noexcept {
    const std::vector<std::vector<std::string>> settings = {
        {"quantization.use=gguf"},
        {"quantization.use=none", "attention.use=reference", "kv_cache.format=fp32", "sampler.select=greedy"},
        {"quantization.use=int8wo", "kv_cache.use=int8"},
        {"quantization.use=int4wo", "quantization.group_size=32", "kv_cache.use=sink_window", "kv_cache.window=8"},
        {"quantization.use=auto"}};
    RegistrySchemas schemas(registry());
    std::vector<PipelineConfig> made;
    for (std::vector<std::string> set : settings) {
      set.insert(set.end(), {"device.threads=1", "kv_cache.capacity=16"});
      made.push_back(resolve(load_config("", set), schemas, ModelPath::kOptional));
    }
    return made;
  }();
  return all;
}

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline void check(const Status& status) {
  if (!status.ok()) throw Error(status.code(), status.message());
}

// Runs rows [first, first + tokens) of the only sequence, of which the last gives a token.
inline int32_t step(Pipeline& pipeline, const std::vector<int32_t>& tokens, uint32_t first) {
  const auto rows = static_cast<uint32_t>(tokens.size());
  check(pipeline.reserve(0, first + rows));
  StepBatch batch = test::step_of_one(tokens, first, rows - 1);
  batch.prompts = first == 0 ? 1 : 0;
  batch.prompt_rows = first == 0 ? rows : 0;
  StepResult result;
  check(pipeline.step(batch, result));
  require(result.next.size() == 1);
  return result.next[0];
}

// Throws Error for a model that is refused, whatever is wrong with it.
inline void run_model(const std::string& path, size_t which) {
  constexpr uint64_t kMost = uint64_t{64} << 20;  // more would take too long
  const GuardedWeights weights(open_weights(path));
  try {
    const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(weights);
    const std::vector<int32_t> ids = tokenizer->encode("Hello, it's 12\n", {.parse_special = true});
    decode(*tokenizer, ids, {.show_control = true});
  } catch (const Error&) {
    // The model may be whole all the same.
  }
  const PipelineConfig& config = pipelines()[which % pipelines().size()];
  PipelineOptions options;
  options.prefill_rows = 4;
  options.guarded = true;
  const std::unique_ptr<Pipeline> pipeline = Pipeline::build(config, registry(), weights, options);
  if (pipeline->plan().peak() > kMost) return;
  pipeline->load();
  pipeline->start_sequence(0, 1, {});
  const auto vocab = static_cast<int32_t>(pipeline->model().vocab);
  require(vocab > 0);
  const int32_t first = step(*pipeline, {0, vocab / 2, vocab - 1}, 0);
  require(first >= 0 && first < vocab);
  const int32_t second = step(*pipeline, {first}, 3);
  require(second >= 0 && second < vocab);
}

// Returns bytes that are modest numbers as F32, F16 and BF16 alike, and as the scales of GGUF's blocks.
inline std::string made_up_data(size_t bytes) {
  std::string data(bytes, '\x3c');
  uint32_t state = 1;
  for (size_t i = 0; i < bytes; i += 2) {
    state = state * 1664525 + 1013904223;
    data[i] = static_cast<char>(state >> 24);
  }
  return data;
}

// This is a file in memory, whose name every reader can open.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", 0)) { require(descriptor_ >= 0); }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void assign(const std::string& bytes) const {
    require(::ftruncate(descriptor_, 0) == 0);
    require(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  int descriptor_;
};

}  // namespace tenon::fuzz
