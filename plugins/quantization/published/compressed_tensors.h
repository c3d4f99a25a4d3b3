// This reads a quantization_config of quant_method "compressed-tensors", of which one group of settings has to hold for
// all matrices that are quantized; https://github.com/vllm-project/compressed-tensors defines the keys.
#pragma once

#include <string>

#include "description.h"

namespace tenon::published {

struct CompressedWeights {
  std::string format, strategy;
  int64_t group = 0;  // 0: the whole row
  bool symmetric = true;
  bool by_activations = false;  // columns are grouped by the size of what they meet ("actorder")
  int64_t block_rows = 0, block_columns = 0;
};

inline const std::string kCompressedGroup = "config_groups.group_0.",
                         kCompressedWeights = kCompressedGroup + "weights.",
                         kCompressedX = kCompressedGroup + "input_activations";

// Returns the format in which matrices are stored; "" if d is of another quant_method.
inline std::string compressed_format(const Description& d) {
  if (!d.has("quant_method") || d.text("quant_method") != "compressed-tensors") return "";
  return d.text(kCompressedGroup + "format", d.text("format"));
}

// d is of quant_method "compressed-tensors". Throws sdk::Refused for keys that change what is computed and are not
// known; any_x: what is said of x (input_activations) is let be, else the caller has read what is known of it.
// num_bits, type and strategy are the caller's to judge.
inline CompressedWeights compressed_weights(const Description& d, bool any_x) {
  const std::string group = kCompressedGroup, weights = kCompressedWeights;
  CompressedWeights w;
  w.format = compressed_format(d);
  w.strategy = d.text(weights + "strategy");
  if (d.has(weights + "group_size")) w.group = d.need_group(weights + "group_size");
  w.symmetric = d.boolean(weights + "symmetric", true);
  d.only(weights + "actorder", {"group", "weight", "static", "dynamic"});
  const std::string order = d.text(weights + "actorder");
  w.by_activations = order == "group" || order == "dynamic";
  if (d.list(weights + "block_structure")) {
    w.block_rows = d.integer(weights + "block_structure.0", 0);
    w.block_columns = d.integer(weights + "block_structure.1", 0);
  }
  d.only_boolean(weights + "dynamic", false);
  for (const std::string& object : {std::string("config_groups"), group.substr(0, group.size() - 1)}) {
    if (!d.object(object)) d.wrong(object, "an object");
  }
  for (const std::string& key : {group + "output_activations", std::string("kv_cache_scheme")}) d.only_missing(key);
  d.only("sparsity_config.format", {"dense"});
  // They say which matrices stay plain and how the others were made.
  const std::string& x = kCompressedX;
  const std::string let_be = any_x ? x : x + ".observer", observed_x = x + ".observer_kwargs", x_zero = x + ".zp_dtype";
  const std::string targets = group + "targets", observer = weights + "observer",
                    observed = weights + "observer_kwargs", scale = weights + "scale_dtype",
                    zero = weights + "zp_dtype";
  const std::string_view harmless[] = {"global_compression_ratio",
                                       "ignore",
                                       "quant_method",
                                       "quantization_status",
                                       "sparsity_config",
                                       "version",
                                       targets,
                                       let_be,
                                       observed_x,
                                       x_zero,
                                       observer,
                                       observed,
                                       scale,
                                       zero};
  d.need_all_read(harmless);
  return w;
}

}  // namespace tenon::published
