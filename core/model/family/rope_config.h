// This reads the description of rope in config.json and in GGUF metadata.
#pragma once

#include "config_reader.h"
#include "family.h"
#include "rope.h"
#include "tenon/core/module.h"

namespace tenon::family {

// These tensors of GGUF have a divisor for each angular frequency, in f32: one for all texts, and those of longrope for
// texts that fit into the original context and for longer ones.
inline constexpr char kRopeDivisors[] = "rope_freqs.weight";
inline constexpr char kShortRopeDivisors[] = "rope_factors_short.weight";
inline constexpr char kLongRopeDivisors[] = "rope_factors_long.weight";

// Problems go to the reader; what is returned then is of no use. model: heads and context are read already. scope: the
// names that the default of theta may use.
Rope read_huggingface_rope(ConfigReader& reader, const RopeSpec& spec, const ModelInfo& model, const Scope& scope);
Rope read_gguf_rope(ConfigReader& reader, const RopeSpec& spec, const ModelInfo& model, const std::string& architecture,
                    const Scope& scope);

}  // namespace tenon::family
