// Each form has a function that makes the tensors of a matrix from random codes and scales, together with the weights
// that they stand for, and the description that config.json has for it. Forms lists them, with the options that
// published checkpoints use.
#include "conformance/published_forms.h"

#include <cmath>

#include "conformance/published_matrices.h"

namespace tenon::conformance {
namespace {

std::string gptq_description(const GptqOptions& o) {
  return R"({"quant_method": "gptq", "bits": )" + std::to_string(o.bits) + R"(, "group_size": )" +
         std::to_string(o.group == 0 ? -1 : o.group) + R"(, "desc_act": )" + (o.act_order ? "true" : "false") +
         R"(, "sym": false, "true_sequential": true, "damp_percent": 0.01, "checkpoint_format": ")" +
         (o.v2 ? "gptq_v2" : "gptq") + R"("})";
}
std::string compressed_description(const std::string& format, const std::string& weights,
                                   const std::string& x = "null") {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "quantization_status": "compressed", "kv_cache_scheme": null, "global_compression_ratio": 1.5,
             "ignore": ["lm_head"], "config_groups": {"group_0": {"output_activations": null,
             "targets": ["Linear"], "weights": {"dynamic": false, "observer": "minmax", "observer_kwargs": {}, )" +
         weights + R"(}, "input_activations": )" + x + "}}}";
}

class Forms {
 public:
  std::vector<PublishedForm> all;

  void add_gptq() {
    for (const GptqOptions& o :
         {GptqOptions{}, GptqOptions{.bits = 2, .group = 32}, GptqOptions{.bits = 3, .group = 64},
          GptqOptions{.bits = 8, .group = 0}, GptqOptions{.group = 64, .v2 = true, .with_g_idx = false},
          GptqOptions{.group = 32, .act_order = true}, GptqOptions{.bits = 3, .act_order = true, .v2 = true}}) {
      const std::string label = "gptq_" + std::to_string(o.bits) + "_" + std::to_string(o.group) +
                                (o.act_order ? "_act" : "") + (o.v2 ? "_v2" : "");
      all.push_back({label, "gptq", gptq_description(o),
                     [o](const FileShape& s, Random& random) { return gptq(o, s, random); }, o.act_order});
    }
  }
  void add_awq() {
    for (const int64_t group : {128, 32, 0}) {
      const std::string size = std::to_string(group == 0 ? -1 : group);
      all.push_back(
          {"awq_" + std::to_string(group), "awq",
           R"({"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": true, "group_size": )" + size + "}",
           [group](const FileShape& s, Random& random) { return awq(group, s.n, s.k, random); }});
    }
  }
  void add_compressed() {
    for (const CompressedOptions& o :
         {CompressedOptions{}, CompressedOptions{.bits = 8, .group = 0, .scale = TENON_F16},
          CompressedOptions{.group = 32, .symmetric = false}, CompressedOptions{.act_order = true},
          CompressedOptions{.bits = 8, .group = 0, .packed = false},
          CompressedOptions{.bits = 8, .group = 0, .packed = false, .x_in_int8 = true},
          CompressedOptions{
              .bits = 8, .group = 0, .packed = false, .scale = TENON_F32, .one_scale = true, .x_in_int8 = true}}) {
      const std::string weights = R"("num_bits": )" + std::to_string(o.bits) + R"(, "type": "int", "symmetric": )" +
                                  (o.symmetric ? "true" : "false") + R"(, "strategy": ")" +
                                  (o.group != 0  ? "group"
                                   : o.one_scale ? "tensor"
                                                 : "channel") +
                                  R"(", "group_size": )" + (o.group == 0 ? "null" : std::to_string(o.group)) +
                                  R"(, "actorder": )" + (o.act_order ? "\"group\"" : "null");
      const std::string x = o.x_in_int8 ? R"({"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token",
             "dynamic": true, "observer": null, "observer_kwargs": {}, "actorder": null})"
                                        : "null";
      const std::string label = "compressed_" + std::to_string(o.bits) + "_" + std::to_string(o.group) +
                                (o.packed ? "" : "_plain") + (o.symmetric ? "" : "_zeros") +
                                (o.act_order ? "_act" : "") + (o.one_scale ? "_one" : "") +
                                (o.x_in_int8 ? "_int8_x" : "");
      all.push_back({label, "compressed_tensors",
                     compressed_description(o.packed ? "pack-quantized" : "int-quantized", weights, x),
                     [o](const FileShape& s, Random& random) { return compressed(o, s, random); }, o.act_order,
                     o.x_in_int8});
    }
  }
  void add_fp8() {
    const auto add = [&](const std::string& label, const std::string& description,
                         const std::function<Fp8Options(int64_t, int64_t)>& options) {
      all.push_back({label, "fp8", description, [options](const FileShape& s, Random& random) {
                       return fp8(options(s.n, s.k), s.n, s.k, random);
                     }});
    };
    add("fp8_blocks",
        R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})",
        [](int64_t n, int64_t k) {
          return Fp8Options{.scale_name = "weight_scale_inv",
                            .shape = {(n + 127) / 128, (k + 127) / 128},
                            .block_rows = 128,
                            .block_columns = 128,
                            .x_group = 128};
        });
    add("fp8_blocks_of_powers", R"({"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]})",
        [](int64_t n, int64_t k) {
          return Fp8Options{.scale_name = "weight_scale_inv",
                            .shape = {(n + 127) / 128, (k + 127) / 128},
                            .block_rows = 128,
                            .block_columns = 128,
                            .x_group = 128,
                            .x_powers = true};
        });
    add("fp8_low_blocks", R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 256]})",
        [](int64_t n, int64_t k) {
          return Fp8Options{.scale_name = "weight_scale_inv",
                            .format = TENON_BF16,
                            .shape = {(n + 15) / 16, (k + 255) / 256},
                            .block_rows = 16,
                            .block_columns = 256,
                            .x_group = 256};
        });
    add("fp8_matrix", R"({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]})",
        [](int64_t n, int64_t k) { return Fp8Options{"weight_scale", TENON_F32, {}, n, k, "input_scale", TENON_F32}; });
    add("fp8_of_transformers", R"({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": null})",
        [](int64_t n, int64_t k) {
          return Fp8Options{"weight_scale_inv", TENON_F32, {}, n, k, "activation_scale", TENON_F32};
        });
    add("fp8_one", R"({"quant_method": "fp8", "activation_scheme": "dynamic"})", [](int64_t n, int64_t k) {
      return Fp8Options{.format = TENON_BF16, .shape = {1}, .block_rows = n, .block_columns = k, .x_group = k};
    });
    const std::string weights =
        R"("num_bits": 8, "type": "float", "symmetric": true, "group_size": null, "strategy": )";
    add("fp8_compressed_rows", compressed_description("float-quantized", weights + R"("channel")"),
        [](int64_t n, int64_t k) {
          return Fp8Options{"weight_scale", TENON_BF16, {n, 1}, 1, k};
        });
    const std::string x = R"("num_bits": 8, "type": "float", "symmetric": true, "dynamic": true, "strategy": )";
    add("fp8_compressed_token",
        compressed_description("float-quantized", weights + R"("channel")", "{" + x + R"("token"})"),
        [](int64_t n, int64_t k) {
          return Fp8Options{.shape = {n, 1}, .block_rows = 1, .block_columns = k, .x_group = k};
        });
    add("fp8_compressed_groups",
        compressed_description("float-quantized", weights + R"("channel")", "{" + x + R"("group", "group_size": 96})"),
        [](int64_t n, int64_t k) {
          return Fp8Options{.shape = {n, 1}, .block_rows = 1, .block_columns = k, .x_group = 96};
        });
    add("fp8_compressed_static",
        compressed_description("float-quantized", weights + R"("tensor")",
                               "{" + weights + R"("tensor", "dynamic": false})"),
        [](int64_t n, int64_t k) {
          return Fp8Options{"weight_scale", TENON_BF16, {1}, n, k, "input_scale", TENON_BF16};
        });
    add("fp8_compressed_blocks",
        compressed_description("float-quantized", weights + R"("block", "block_structure": [128, 128])"),
        [](int64_t n, int64_t k) {
          return Fp8Options{"weight_scale", TENON_F32, {(n + 127) / 128, (k + 127) / 128}, 128, 128};
        });
  }
  void add_bitsandbytes() {
    for (const bool normal : {true, false}) {
      for (const bool nested : {false, true}) {
        all.push_back({std::string("bitsandbytes_") + (normal ? "nf4" : "fp4") + (nested ? "_double" : ""),
                       "bitsandbytes",
                       R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_storage": "uint8"})",
                       [=](const FileShape& s, Random& random) { return float4(normal, nested, s.n, s.k, random); }});
      }
    }
    const auto add = [&](const std::string& label, const std::string& threshold, double outlier) {
      all.push_back({label, "bitsandbytes",
                     R"({"quant_method": "bitsandbytes", "load_in_8bit": true)" + threshold + "}",
                     [outlier](const FileShape& s, Random& random) { return int8(outlier, s.n, s.k, random); }, false,
                     true, std::isfinite(outlier)});
    };
    // Numbers of a random x are below 6, and some are beyond 1.5.
    add("bitsandbytes_int8", "", 6);
    add("bitsandbytes_int8_outliers", R"(, "llm_int8_threshold": 1.5)", 1.5);
    add("bitsandbytes_int8_whole", R"(, "llm_int8_threshold": 0.0)", INFINITY);
  }
  void add_e2m1() {
    const auto add = [&](const std::string& label, const std::string& description, const E2m1Options& o) {
      all.push_back(
          {label, "mxfp4", description, [o](const FileShape& s, Random& random) { return e2m1(o, s.n, s.k, random); }});
    };
    const std::string weights = R"("num_bits": 4, "type": "float", "symmetric": true, "strategy": )";
    add("mxfp4_packed", compressed_description("mxfp4-pack-quantized", weights + R"("group", "group_size": 32)"), {});
    add("mxfp4_in_blocks", R"({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})",
        {.blocks = true, .codes = "blocks", .scales = "scales"});
    add("nvfp4_packed", compressed_description("nvfp4-pack-quantized", weights + R"("tensor_group", "group_size": 16)"),
        {.nv = true});
  }
  void add_hqq() {
    for (const auto& [bits, group] : {std::pair<uint32_t, int64_t>{4, 64}, {8, 128}, {3, 64}, {2, 32}, {1, 32}}) {
      all.push_back({"hqq_" + std::to_string(bits) + "_" + std::to_string(group), "hqq",
                     R"({"quant_method": "hqq", "skip_modules": ["lm_head"], "quant_config": {"offload_meta": false,
                         "scale_quant_params": null, "zero_quant_params": null, "weight_quant_params": {"axis": 1,
                         "channel_wise": true, "optimize": true, "round_zero": false, "view_as_float": false, "nbits": )" +
                         std::to_string(bits) + R"(, "group_size": )" + std::to_string(group) + "}}}",
                     [bits = bits, group = group](const FileShape& s, Random& random) {
                       return hqq(bits, group, s.n, s.k, random);
                     }});
    }
  }
  void add_torchao() {
    for (const TorchAoOptions& o : {TorchAoOptions{}, TorchAoOptions{.bits = 8, .group = 128},
                                    TorchAoOptions{.bits = 3, .group = 64, .scale = TENON_F16},
                                    TorchAoOptions{.bits = 8, .group = 0, .scale = TENON_F32, .symmetric = true}}) {
      const bool rows = o.scale == TENON_F32;
      const std::string data =
          rows ? R"("granularity": {"_data": {"dim": -1}, "_type": "PerRow", "_version": 1}, "group_size": null)"
               : R"("granularity": {"_data": {"group_size": )" + std::to_string(o.group) +
                     R"(}, "_type": "PerGroup", "_version": 1}, "weight_dtype": {"_data": "int)" +
                     std::to_string(o.bits) + R"(", "_type": "torch.dtype"})";
      all.push_back(
          {"torchao_" + std::to_string(o.bits) + "_" + std::to_string(o.group), "torchao",
           R"({"quant_method": "torchao", "modules_to_not_convert": null, "quant_type": {"default": {"_type": ")" +
               std::string(rows ? "Int8WeightOnlyConfig" : "IntxWeightOnlyConfig") + R"(", "_version": 2, "_data": {)" +
               data + "}}}}",
           [o](const FileShape& s, Random& random) { return torchao(o, s.n, s.k, random); }});
    }
    for (const int64_t group : {int64_t{32}, int64_t{128}}) {
      all.push_back(
          {"torchao_packed_" + std::to_string(group), "torchao",
           R"({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": {
               "group_size": )" +
               std::to_string(group) +
               R"(, "int4_packing_format": {"_type": "Int4PackingFormat", "_data": "PLAIN"}, "int4_tile_packed_ntile": 8,
               "int4_choose_qparams_algorithm": {"_type": "Int4ChooseQParamsAlgorithm", "_data": "TINYGEMM"}}}}})",
           [group](const FileShape& s, Random& random) { return torchao_packed(group, s.n, s.k, random); }});
    }
  }
};

}  // namespace

const std::vector<PublishedForm>& published_forms() {
  static const std::vector<PublishedForm> kAll = [] {
    Forms forms;
    forms.add_gptq();
    forms.add_awq();
    forms.add_compressed();
    forms.add_fp8();
    forms.add_bitsandbytes();
    forms.add_e2m1();
    forms.add_torchao();
    forms.add_hqq();
    return forms.all;
  }();
  return kAll;
}

SiteCase published_site(const PublishedForm& form, std::vector<int64_t> rows, int64_t k, uint32_t experts) {
  SiteCase c;
  c.source.assign(rows.size(), TENON_FORMAT_NONE);
  c.rows = std::move(rows);
  c.k = k;
  c.experts = experts;
  c.stored = form.make;
  c.description = form.description;
  c.lookup = !form.permuted;
  return c;
}

}  // namespace tenon::conformance
