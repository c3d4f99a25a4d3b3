// A mixture whose experts are in GGUF's blocks runs as it is stored: its logits and greedy tokens are those of the file
// that has the same weights as plain floats. Both files are written as `tenon quantize` writes them. All that is no
// expert is in F32 in both of them, so that rounding of x does not change which experts a row goes to.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "golden_files.h"
#include "support/pipelines.h"
#include "support/weights_writer.h"
#include "tenon/core/engine.h"
#include "tenon/core/quantize.h"
#include "tenon/core/weights.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kWidth = 256, kInner = 512, kKeys = 128, kVocab = 260, kExperts = 5;

struct Case {
  std::string name;
  tenon_format gate, down, up;  // the formats of the experts' matrices
  std::string device = "cpu";
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name << "_" << c.device;
}

// Writes a folder of a Mixtral whose rows are whole blocks, with random weights.
void write_mixture(const fs::path& folder) {
  fs::copy(golden::kData / "tiny-mixtral", folder);
  boost::json::object config = golden::read_json(folder / "config.json").as_object();
  config["hidden_size"] = kWidth;
  config["intermediate_size"] = kInner;
  config["head_dim"] = kWidth / 4;
  testing::write_file(folder / "config.json", boost::json::serialize(config));
  std::mt19937 random(7);
  testing::SafetensorsWriter file;
  const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t columns) {
    std::normal_distribution<float> weight(0, 1 / std::sqrt(static_cast<float>(columns)));
    std::vector<float> w(rows * columns);
    for (float& x : w) x = weight(random);
    file.tensor(name + ".weight", "F32", {rows, columns}, testing::bytes_of(w));
  };
  const auto norm = [&](const std::string& name) {
    file.tensor(name + ".weight", "F32", {kWidth}, testing::bytes_of(std::vector<float>(kWidth, 1)));
  };
  matrix("model.embed_tokens", kVocab, kWidth);
  matrix("lm_head", kVocab, kWidth);
  norm("model.norm");
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    norm(layer + "input_layernorm");
    norm(layer + "post_attention_layernorm");
    matrix(layer + "self_attn.q_proj", kWidth, kWidth);
    matrix(layer + "self_attn.k_proj", kKeys, kWidth);
    matrix(layer + "self_attn.v_proj", kKeys, kWidth);
    matrix(layer + "self_attn.o_proj", kWidth, kWidth);
    matrix(layer + "block_sparse_moe.gate", kExperts, kWidth);
    for (uint64_t e = 0; e < kExperts; ++e) {
      const std::string expert = layer + "block_sparse_moe.experts." + std::to_string(e);
      matrix(expert + ".w1", kInner, kWidth);
      matrix(expert + ".w3", kInner, kWidth);
      matrix(expert + ".w2", kWidth, kInner);
    }
  }
  testing::write_file(folder / "model.safetensors", file.bytes());
}

class QuantizedExperts : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    if (c.device != "cpu") {
      if (const std::string problem = test::no_gpu(); !problem.empty()) GTEST_SKIP() << problem;
    }
    const fs::path folder = scratch_.path() / "folder", blocks = scratch_.path() / "blocks.gguf",
                   floats = scratch_.path() / "floats.gguf";
    write_mixture(folder);
    QuantizeOptions options;
    options.target.format = TENON_F32;
    for (const auto& [name, format] : {std::pair("gate", c.gate), std::pair("down", c.down), std::pair("up", c.up)}) {
      options.overrides.push_back({"*ffn_" + std::string(name) + "_exps*", {.format = format}});
    }
    quantize_model(folder.string(), blocks, options);
    const auto written = open_weights(blocks);
    ASSERT_EQ(written->find("blk.1.ffn_gate_exps.weight")->format, c.gate);
    ASSERT_EQ(written->find("blk.1.ffn_up_exps.weight")->format, c.up);
    ASSERT_EQ(written->find("blk.1.ffn_down_exps.weight")->format, c.down);
    quantize_model(blocks.string(), floats, {.target = {.format = TENON_F32}});
    as_stored_ = open(blocks, {"quantization.activations=f32"});
    as_floats_ = open(floats, {"quantization.use=none", "quantization.dtype=fp32"});
  }
  static std::unique_ptr<Engine> open(const fs::path& model, std::vector<std::string> set) {
    set.insert(set.end(), {"device.use=" + GetParam().device, "kv_cache.capacity=512", "kv_cache.format=fp32",
                           "sampler.chain=[]", "sampler.select=greedy"});
    if (GetParam().device == "cpu") set.emplace_back("device.threads=2");
    return Engine::open({.config = model.string(), .set = set, .score_rows = 64});
  }
  static std::vector<int32_t> prompt(size_t tokens) {
    std::mt19937 random(3);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < tokens; ++i) ids.push_back(2 + static_cast<int32_t>(random() % (kVocab - 2)));
    return ids;
  }
  static std::vector<float> logits(Engine& engine, const std::vector<int32_t>& ids) {
    std::vector<float> all;
    engine.score(ids, 0, [&](uint32_t, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
    return all;
  }

  testing::ScratchFolder scratch_;
  std::unique_ptr<Engine> as_stored_, as_floats_;
};

TEST_P(QuantizedExperts, HaveTheLogitsOfTheirFloats) {
  const double tolerance = GetParam().device == "cpu" ? 1e-5 : 1e-3;
  for (const size_t tokens : {size_t{1}, size_t{7}, size_t{60}}) {
    const std::vector<float> found = logits(*as_stored_, prompt(tokens)), want = logits(*as_floats_, prompt(tokens));
    ASSERT_EQ(found.size(), want.size());
    double worst = 0, peak = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(found[i]) - static_cast<double>(want[i])));
      peak = std::max(peak, std::abs(static_cast<double>(want[i])));
    }
    EXPECT_LT(worst / peak, tolerance) << tokens << " tokens";
  }
}

TEST_P(QuantizedExperts, HaveTheTokensOfTheirFloats) {
  if (GetParam().device != "cpu") GTEST_SKIP() << "rounding on a GPU may change a close choice";
  const Request request{.tokens = prompt(20), .max_new_tokens = 64, .ignore_end = true};
  const std::vector<int32_t> found = as_stored_->generate(request).tokens;
  EXPECT_EQ(found.size(), 64U);
  EXPECT_EQ(found, as_floats_->generate(request).tokens);
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const char* device : {"cpu", "cuda"}) {
    list.push_back({"q4_k_m", TENON_Q4_K, TENON_Q6_K, TENON_Q4_K, device});
    list.push_back({"q5_k_beside_q4_k", TENON_Q4_K, TENON_Q3_K, TENON_Q5_K, device});
    list.push_back({"q4_0", TENON_Q4_0, TENON_Q4_1, TENON_Q4_0, device});
    list.push_back({"q8_0", TENON_Q8_0, TENON_Q5_1, TENON_Q5_0, device});
    list.push_back({"f16", TENON_F16, TENON_BF16, TENON_F16, device});
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Mixtures, QuantizedExperts, ::testing::ValuesIn(cases()),
                         [](const auto& p) { return p.param.name + "_" + p.param.device; });

}  // namespace
}  // namespace tenon
