// A Llama's hyper-parameters, read from GGUF metadata or from config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rope.h"
#include "tenon/core/module.h"
#include "tenon/core/weights.h"

namespace tenon::llama {

struct Config {
  ModelInfo info;
  float norm_epsilon = 1e-5f;
  Rope rope;
  std::vector<uint32_t> windows;  // [layers]: a row sees so many positions, its own included; 0: all before it
  // The products of attention, and of the MLP, have biases; unset: the file tells it by its tensors.
  std::optional<bool> attention_bias, mlp_bias;
};

// Throws Error(kModel) for what is missing, inconsistent or not supported, all at once.
Config read_config(const Weights& weights);

// The name of a tensor in a convention: part "layers.3.attention.q" -> "blk.3.attn_q.weight" or
// "model.layers.3.self_attn.q_proj.weight". suffix is "weight" or "bias".
std::string tensor_name(std::string_view convention, const std::string& part, const char* suffix = "weight");
// These are the modules of a layer: "attention.q", ...
std::vector<std::string> layer_parts();
// Returns all modules of a model, in order.
std::vector<std::string> part_names(uint32_t layers);

}  // namespace tenon::llama
