// A file of these models may hold these keys and tensors without their being read.
#pragma once

#include <string_view>

namespace tenon::llama {

inline constexpr std::string_view kHarmlessKeys[] = {
    // GGUF's say where the weights were converted from, and that a scaled rope was trained with.
    "*.tensor_data_layout",
    "*.rope.scaling.finetuned",
    // Those of config.json say how it was trained, and how its products were cut for training.
    "attention_dropout",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "max_sequence_length",
    "pretraining_tp",
};

inline constexpr std::string_view kHarmlessTensors[] = {
    "*.rotary_emb.inv_freq",  // frequencies are computed
};

}  // namespace tenon::llama
