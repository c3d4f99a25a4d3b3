// "synthetic:NAME" stands for one of these models; the shapes are as their publishers' config.json states them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "table_weights.h"

namespace tenon::weights {

// The models of one series share these.
struct SyntheticSeries {
  std::string_view type = "llama", architecture = "LlamaForCausalLM";
  double theta = 1e4;  // RoPE's
  int64_t context = 2048;
  double norm_epsilon = 1e-5;
  bool tied = false;  // the head is the embedding
  double rope_factor =
      0;                // llama3 scaling over 8192 positions with frequency factors 1 and 4 has it; 0 = there is none
  int64_t experts = 0;  // two of which are used; 0 = dense
  int64_t bos = 1, eos = 2;
};

struct SyntheticShape {
  std::string_view name;
  int64_t layers, heads, kv_heads, width, ffn, vocabulary;
  SyntheticSeries series;
};

std::span<const SyntheticShape> synthetic_shapes();

// Returns the metadata that the model's config.json would give.
MetadataMap synthetic_config(const SyntheticShape& shape, tenon_format format);

// Lists the tensors by their Hugging Face names, in `format`; they follow one another.
std::vector<WeightTensor> synthetic_tensors(const SyntheticShape& shape, tenon_format format);

}  // namespace tenon::weights
