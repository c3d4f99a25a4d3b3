// What a quantization_config of quant_method "compressed-tensors" says of weights, where one group of settings holds for all
// matrices that are quantized; https://github.com/vllm-project/compressed-tensors defines the keys.
#pragma once

#include <string>

#include "description.h"

namespace tenon::published {

struct CompressedWeights {
  std::string format, type, strategy;
  int64_t bits = 0, group = 0;
  bool symmetric = true;
  bool by_activations = false;  // columns are grouped by the size of what they meet ("actorder")
  int64_t block_rows = 0, block_columns = 0;
};

// d: of quant_method "compressed-tensors". Throws sdk::Refused for keys that change what is computed and are not known.
inline CompressedWeights compressed_weights(const Description& d) {
  CompressedWeights w;
  const std::string group = "config_groups.group_0.", weights = group + "weights.";
  w.format = d.text(group + "format", d.text("format"));
  w.bits = d.integer(weights + "num_bits", 0);
  w.type = d.text(weights + "type");
  w.strategy = d.text(weights + "strategy");
  w.group = d.integer(weights + "group_size", -1);
  w.symmetric = d.boolean(weights + "symmetric", true);
  const std::string order = d.text(weights + "actorder");
  d.only(weights + "actorder", {"group", "weight", "static", "dynamic", "true", "false"});
  w.by_activations = order == "group" || order == "dynamic" || order == "true";
  if (d.text(weights + "block_structure") == "[]") {
    w.block_rows = d.integer(weights + "block_structure.0", 0);
    w.block_columns = d.integer(weights + "block_structure.1", 0);
  }
  d.only(weights + "dynamic", {"false"});
  d.only("config_groups", {"{}"});
  d.only(group + "output_activations", {});
  d.only("kv_cache_scheme", {});
  d.only("sparsity_config.format", {"dense"});
  // They say which matrices stay plain and how the others were made. Of x, which is multiplied as it is, the plan speaks.
  const std::string targets = group + "targets", x = group + "input_activations", observer = weights + "observer",
                    observed = weights + "observer_kwargs", scale = weights + "scale_dtype",
                    zero = weights + "zp_dtype";
  const std::string_view harmless[] = {"global_compression_ratio",
                                       "ignore",
                                       "quant_method",
                                       "quantization_status",
                                       "sparsity_config",
                                       "version",
                                       targets,
                                       x,
                                       observer,
                                       observed,
                                       scale,
                                       zero};
  d.need_all_read(harmless);
  return w;
}

}  // namespace tenon::published
