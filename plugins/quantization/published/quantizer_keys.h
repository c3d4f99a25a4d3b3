// AutoGPTQ, GPTQModel, AutoAWQ and transformers write these keys of quantization_config beside those that say how
// matrices are stored: how the codes were found, which matrices have some, and which kernels another program takes.
#pragma once

#include <string_view>

namespace tenon::published {

inline constexpr std::string_view kQuantizerKeys[] = {"act_group_aware",
                                                      "backend",
                                                      "batch_size",
                                                      "block_name_to_quantize",
                                                      "cache_block_outputs",
                                                      "damp_auto_increment",
                                                      "damp_percent",
                                                      "dataset",
                                                      "disable_exllama",
                                                      "do_fuse",
                                                      "exllama_config",
                                                      "fuse_max_seq_len",
                                                      "max_input_length",
                                                      "meta",
                                                      "model_file_base_name",
                                                      "model_name_or_path",
                                                      "model_seqlen",
                                                      "module_name_preceding_first_block",
                                                      "modules_in_block_to_quantize",
                                                      "modules_to_fuse",
                                                      "modules_to_not_convert",
                                                      "pad_token_id",
                                                      "quantizer",
                                                      "tokenizer",
                                                      "use_cuda_fp16",
                                                      "use_exllama"};

}  // namespace tenon::published
