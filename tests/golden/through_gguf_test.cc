// Checkpoints of all families go to GGUF in F32 and are read back: logits and greedy tokens stay those of
// transformers. A checkpoint that says what GGUF has no key for is changed first (converted.py has the changes);
// then they stay those of the changed folder.
#include <gtest/gtest.h>

#include <cmath>

#include "golden_files.h"
#include "support/pipelines.h"
#include "support/weights_writer.h"
#include "tenon/core/engine.h"
#include "tenon/core/quantize.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using golden::ids_of;
using golden::kData;

const json::object& converted() {
  static const json::value kAll = golden::read_json(kData / "converted.json");
  return kAll.as_object();
}

std::vector<std::string> checkpoints() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : converted()) names.emplace_back(name);
  return names;
}

using Rows = std::vector<std::vector<float>>;  // logits by position

class ThroughGguf : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const fs::path folder = scratch_.path() / "folder", file = scratch_.path() / "model.gguf";
    fs::copy(kData / GetParam(), folder, fs::copy_options::recursive);
    json::object config = golden::read_json(folder / "config.json").as_object();
    edits_ = converted().at(GetParam()).at("edits").as_object();
    for (const auto& [key, value] : edits_) config[key] = value;
    testing::write_file(folder / "config.json", json::serialize(config));
    quantize_model(folder.string(), file, {.target = {.format = TENON_F32}});
    const bool experts = converted().at(GetParam()).at("tensors").as_object().contains("blk.0.ffn_up_exps.weight");
    folder_ = open(folder, experts);
    gguf_ = open(file, experts);
    golden_ = golden::read_json(kData / GetParam() / "golden.json");
  }
  static std::unique_ptr<Engine> open(const fs::path& model, bool experts) {
    return Engine::open(
        {.config = model.string(),
         .set = {"device.threads=2", "kv_cache.capacity=512", "kv_cache.format=fp32", "sampler.chain=[]",
                 "sampler.select=greedy", experts ? "quantization.use=none" : "quantization.activations=f32"},
         .score_rows = 64});
  }
  static Rows logits(Engine& engine, const std::vector<int32_t>& sequence) {
    Rows rows;
    engine.score(sequence, 0, [&](uint32_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); });
    return rows;
  }
  // Returns the greatest difference as a share of the greatest magnitude.
  static double difference(const Rows& found, const Rows& expected) {
    double worst = 0, peak = 0;
    for (size_t row = 0; row < expected.size(); ++row) {
      for (size_t i = 0; i < expected[row].size(); ++i) {
        const auto want = static_cast<double>(expected[row][i]);
        worst = std::max(worst, std::abs(static_cast<double>(found.at(row).at(i)) - want));
        peak = std::max(peak, std::abs(want));
      }
    }
    return worst / peak;
  }
  std::vector<int32_t> generate(Engine& engine, const std::vector<int32_t>& ids) const {
    return engine.generate({.tokens = ids, .max_new_tokens = 64, .ignore_end = true}).tokens;
  }

  testing::ScratchFolder scratch_;
  json::object edits_;
  json::value golden_;
  std::unique_ptr<Engine> folder_, gguf_;
};

TEST_P(ThroughGguf, LogitsStay) {
  for (const auto& prompt : golden_.at("prompts").as_array()) {
    std::vector<int32_t> sequence = ids_of(prompt.at("ids"));
    const std::vector<int32_t> greedy = ids_of(prompt.at("greedy"));
    sequence.insert(sequence.end(), greedy.begin(), greedy.end() - 1);
    const Rows found = logits(*gguf_, sequence);
    EXPECT_LT(difference(found, logits(*folder_, sequence)), 1e-5) << prompt.at("name");
    if (!edits_.empty()) continue;
    const std::vector<float> values =
        golden::floats_of(kData / GetParam() / prompt.at("logits_file").as_string().c_str());
    const std::vector<int32_t> positions = ids_of(prompt.at("logits_positions"));
    const size_t vocab = found.front().size();
    ASSERT_EQ(values.size(), positions.size() * vocab);
    Rows at_positions, expected;
    for (size_t i = 0; i < positions.size(); ++i) {
      at_positions.push_back(found.at(static_cast<size_t>(positions[i])));
      const auto begin = values.begin() + static_cast<ptrdiff_t>(i * vocab);
      expected.emplace_back(begin, begin + static_cast<ptrdiff_t>(vocab));
    }
    EXPECT_LT(difference(at_positions, expected), 1e-4) << prompt.at("name");
  }
}

TEST_P(ThroughGguf, GreedyTokensStay) {
  for (const auto& prompt : golden_.at("prompts").as_array()) {
    const std::vector<int32_t> ids = ids_of(prompt.at("ids")), found = generate(*gguf_, ids);
    EXPECT_EQ(found.size(), 64U);
    EXPECT_EQ(found, edits_.empty() ? ids_of(prompt.at("greedy")) : generate(*folder_, ids)) << prompt.at("name");
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ThroughGguf, ::testing::ValuesIn(checkpoints()), golden::checkpoint_name);

}  // namespace
}  // namespace tenon
