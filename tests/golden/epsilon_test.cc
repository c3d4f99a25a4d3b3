// Checkpoints of all families whose norms have a large epsilon give the logits of transformers: no norm has an epsilon
// of its own. Those that the other tests run have one so small that a random model hardly feels it.
#include <gtest/gtest.h>

#include <cmath>

#include "golden_files.h"
#include "support/pipelines.h"
#include "support/weights_writer.h"
#include "tenon/core/engine.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using golden::ids_of;
using golden::kData;

constexpr double kEpsilon = 1;  // that of epsilon.py

std::vector<std::string> checkpoints() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kData)) {
    if (fs::exists(entry.path() / "epsilon.f32")) names.push_back(entry.path().filename().string());
  }
  return names;
}

class Epsilon : public ::testing::TestWithParam<std::string> {};

TEST_P(Epsilon, IsThatOfTheDescriptionInEveryNorm) {
  const testing::ScratchFolder scratch;
  const fs::path folder = scratch.path() / "folder";
  fs::copy(kData / GetParam(), folder, fs::copy_options::recursive);
  json::object config = golden::read_json(folder / "config.json").as_object();
  size_t keys = 0;
  for (const char* key : {"rms_norm_eps", "layer_norm_eps", "norm_epsilon"}) {
    if (!config.contains(key)) continue;
    config[key] = kEpsilon;
    ++keys;
  }
  ASSERT_EQ(keys, 1u);
  testing::write_file(folder / "config.json", json::serialize(config));

  const bool experts = config.contains("num_experts_per_tok");
  const auto engine = Engine::open(
      {.config = folder.string(),
       .set = {"device.threads=2", "kv_cache.capacity=512", "kv_cache.format=fp32", "sampler.chain=[]",
               "sampler.select=greedy", experts ? "quantization.use=none" : "quantization.activations=f32"},
       .score_rows = 64});
  const std::vector<float> expected = golden::floats_of(folder / "epsilon.f32");
  const std::vector<int32_t> ids = ids_of(golden::read_json(folder / "golden.json").at("prompts").at(0).at("ids"));
  double worst = 0, peak = 0;
  size_t at = 0;
  engine->score(ids, 0, [&](uint32_t, std::span<const float> row) {
    for (const float found : row) {
      const auto want = static_cast<double>(expected.at(at++));
      worst = std::max(worst, std::abs(static_cast<double>(found) - want));
      peak = std::max(peak, std::abs(want));
    }
  });
  EXPECT_EQ(at, expected.size());
  EXPECT_LT(worst / peak, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Epsilon, ::testing::ValuesIn(checkpoints()), golden::checkpoint_name);

}  // namespace
}  // namespace tenon
