// A model's numbers are read from its description as its family says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "family.h"
#include "rope.h"
#include "tenon/core/module.h"
#include "tenon/core/weights.h"

namespace tenon::family {

using Values = std::map<std::string, double>;

struct Config {
  ModelInfo info;
  Values numbers;              // [numbers]
  std::vector<Values> layers;  // [layers]: the numbers of [layer]
  std::vector<Rope> ropes;     // see Family::ropes

  // These define the names of the numbers with their values; and those of a layer, too.
  void define(Scope& scope) const;
  void define(Scope& scope, uint32_t layer) const;
};

// Throws Error(kModel) for what is missing, inconsistent or not supported, all at once.
Config read_config(const Family& family, const Weights& weights);

// Returns the key in the form of an architecture: "*.block_count" -> "llama.block_count".
std::string spelled_key(const std::string& key, const std::string& architecture);

// Returns the name of a tensor in a convention: "layers.3.attention.q" -> "blk.3.attn_q.weight" or
// "model.layers.3.self_attn.q_proj.weight"; "" if the convention has none. suffix is "weight" or "bias".
std::string tensor_name(const Family& family, std::string_view convention, const std::string& path,
                        const char* suffix = "weight");
// Returns the tensors of a model by their house's names, in order; with all in a layer, or in no layer.
std::vector<std::string> layer_tensors(const Family& family, uint32_t layer);
std::vector<std::string> tensor_paths(const Family& family, uint32_t layers);
// Returns the names of a path: of "layers.3.attention.q" those of "layers.*.attention.q". Throws Error(kInternal).
const TensorNames& names_of(const Family& family, const std::string& path);

}  // namespace tenon::family
