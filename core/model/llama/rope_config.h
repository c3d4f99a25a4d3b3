// The description of rope in config.json and in GGUF metadata.
#pragma once

#include "config_reader.h"
#include "rope.h"
#include "tenon/core/module.h"

namespace tenon::llama {

// One divisor for each angular frequency, in f32; optional.
inline constexpr char kRopeDivisors[] = "rope_freqs.weight";

// Problems go to the reader; what is returned then is of no use. model: heads and context are read already.
Rope read_huggingface_rope(ConfigReader& reader, const ModelInfo& model);
Rope read_gguf_rope(ConfigReader& reader, const ModelInfo& model, const std::string& architecture);

}  // namespace tenon::llama
