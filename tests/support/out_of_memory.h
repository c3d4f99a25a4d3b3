// A small pipeline runs on a device that refuses its first, second, ... allocation, until none is left to refuse.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/one_sequence.h"
#include "support/refusing_device.h"
#include "tenon/core/engine.h"

namespace tenon::test {

// Builds, loads and steps: a prompt, then two tokens, with logits for the host. Returns "" or the error.
inline std::string run_pipeline(const PipelineConfig& config, Registry& registry, const Weights& weights) {
  try {
    const auto pipeline = Pipeline::build(config, registry, weights, {});
    pipeline->load();
    pipeline->start_sequence(0, 1, {});
    std::vector<int32_t> text = {5, 6, 7, 8};
    for (size_t cached = 0; cached < 6;) {
      const auto rows = std::span<const int32_t>(text).subspan(cached);
      const StepBatch batch = step_of_one(rows, cached, rows.size() - 1);
      cached = text.size();
      StepResult result;
      Status status = pipeline->reserve(0, static_cast<uint32_t>(cached));
      if (status.ok()) status = pipeline->step(batch, result);
      if (!status.ok()) throw Error(status.code(), status.message());
      text.push_back(result.next.front());
    }
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMemory) << e.what();
    return e.what();
  }
}

inline void expect_errors_where_memory_ends(const std::string& device, std::vector<std::string> settings) {
  settings.insert(settings.end(), {"kv_cache.capacity=64", "device.use=" + device});
  const auto registry = make_registry(
      {std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/tenon/plugins"});
  RegistrySchemas schemas(*registry);
  PipelineConfig config = resolve(load_config("synthetic:stories15m", settings), schemas);
  const auto weights = open_weights(config.model.path);
  RefusingDevice refusing(*registry, device);
  config.device.name = RefusingDevice::kName;

  refusing.refuse(0);
  ASSERT_EQ(run_pipeline(config, *registry, *weights), "");
  const uint64_t all = refusing.allocations();
  ASSERT_GE(all, 7u);
  for (uint64_t n = 1; n <= all; ++n) {
    refusing.refuse(n);
    const std::string error = run_pipeline(config, *registry, *weights);
    EXPECT_THAT(error, testing::AllOf(testing::HasSubstr("device." + device + " has no "), testing::HasSubstr(" for "),
                                      testing::HasSubstr("refused by the test")))
        << "allocation " << n << " of " << all;
    if (error.find("logits for the host") == std::string::npos) {
      EXPECT_THAT(error, testing::HasSubstr("; the plan needs "));
    }
    EXPECT_EQ(refusing.allocations(), n) << "goes on after a refusal";
    EXPECT_EQ(refusing.live_bytes(), 0u) << "after allocation " << n << " was refused";
    refusing.refuse(0);
    EXPECT_EQ(run_pipeline(config, *registry, *weights), "") << "after allocation " << n << " was refused";
    EXPECT_EQ(refusing.allocations(), all);
  }
  EXPECT_EQ(refusing.live_bytes(), 0u);
  EXPECT_EQ(refusing.strays(), 0u);
}

}  // namespace tenon::test
