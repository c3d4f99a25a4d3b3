// This translates a Llama between GGUF and Hugging Face.
#pragma once

#include "tenon/core/module.h"

namespace tenon::llama {

// See ModelKind::translate. GGUF stores the rows of Q and K of a head in pairs (2i, 2i + 1), Hugging Face in halves
// (i, i + head_dim / 2).
Translation translate(const Weights& weights, std::span<const std::string> ignored);

}  // namespace tenon::llama
