// A small Mixtral whose last expert is never chosen.
#pragma once

#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "boost/json.hpp"
#include "schemes.h"
#include "support/weights_writer.h"

namespace tenon::test {

constexpr uint64_t kMixtureWidth = 128, kMixtureInner = 160, kMixtureExperts = 4, kMixtureVocab = 260;

inline std::string expert_name(int layer, uint64_t expert, const std::string& matrix) {
  return "model.layers." + std::to_string(layer) + ".block_sparse_moe.experts." + std::to_string(expert) + "." + matrix;
}

inline boost::json::object config_of(const std::filesystem::path& folder) {
  std::ifstream in(folder / "config.json");
  return boost::json::parse(std::string(std::istreambuf_iterator<char>(in), {})).as_object();
}

// Writes a folder with random weights. Column 0 of every row of x is large and above 0 before the routers, and the last
// expert's score is as large and below 0.
inline std::string write_mixture(const std::filesystem::path& folder) {
  std::filesystem::copy(golden("tiny-mixtral"), folder);
  boost::json::object config = config_of(folder);
  config["hidden_size"] = kMixtureWidth;
  config["intermediate_size"] = kMixtureInner;
  config["head_dim"] = kMixtureWidth / 4;
  config["num_local_experts"] = kMixtureExperts;
  testing::write_file(folder / "config.json", boost::json::serialize(config));
  std::mt19937 random(7);
  testing::SafetensorsWriter file;
  const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t columns, const auto& change) {
    std::normal_distribution<float> weight(0, 1 / std::sqrt(static_cast<float>(columns)));
    std::vector<float> w(rows * columns);
    for (float& x : w) x = weight(random);
    change(w);
    file.tensor(name + ".weight", "F32", {rows, columns}, testing::bytes_of(w));
  };
  const auto plain = [](std::vector<float>&) {};
  const auto norm = [&](const std::string& name) {
    file.tensor(name + ".weight", "F32", {kMixtureWidth}, testing::bytes_of(std::vector<float>(kMixtureWidth, 1)));
  };
  // Columns follow a few causes, as they do in models.
  matrix("model.embed_tokens", kMixtureVocab, kMixtureWidth, [](std::vector<float>& w) {
    for (uint64_t r = 0; r < kMixtureVocab; ++r) {
      float* row = w.data() + r * kMixtureWidth;
      for (uint64_t i = 16; i < kMixtureWidth; ++i) row[i] = 0.5F * row[i] + row[i % 16] * (i % 3 == 0 ? -1.0F : 1.0F);
      for (uint64_t i = 0; i < kMixtureWidth; ++i) row[i] *= 10;
      row[0] = 6;
    }
  });
  matrix("lm_head", kMixtureVocab, kMixtureWidth, plain);
  norm("model.norm");
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    norm(layer + "input_layernorm");
    norm(layer + "post_attention_layernorm");
    matrix(layer + "self_attn.q_proj", kMixtureWidth, kMixtureWidth, plain);
    matrix(layer + "self_attn.k_proj", kMixtureWidth / 2, kMixtureWidth, plain);
    matrix(layer + "self_attn.v_proj", kMixtureWidth / 2, kMixtureWidth, plain);
    matrix(layer + "self_attn.o_proj", kMixtureWidth, kMixtureWidth, plain);
    matrix(layer + "block_sparse_moe.gate", kMixtureExperts, kMixtureWidth, [](std::vector<float>& w) {
      for (float& x : w) x *= 3;
      for (uint64_t e = 0; e < kMixtureExperts; ++e) w[e * kMixtureWidth] = e + 1 == kMixtureExperts ? -100 : 0;
    });
    for (uint64_t e = 0; e < kMixtureExperts; ++e) {
      const std::string expert = layer + "block_sparse_moe.experts." + std::to_string(e);
      matrix(expert + ".w1", kMixtureInner, kMixtureWidth, plain);
      matrix(expert + ".w3", kMixtureInner, kMixtureWidth, plain);
      matrix(expert + ".w2", kMixtureWidth, kMixtureInner, plain);
    }
  }
  testing::write_file(folder / "model.safetensors", file.bytes());
  return folder;
}

}  // namespace tenon::test
