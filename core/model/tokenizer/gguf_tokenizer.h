// These tokenizers come from the metadata of GGUF files (keys tokenizer.*).
#pragma once

#include <memory>

#include "tenon/core/tokenizer.h"
#include "tenon/core/weights.h"

namespace tenon::text {

// Returns tokenizer.ggml.model, or "" if there is none.
std::string gguf_tokenizer_model(const Weights& weights);

std::unique_ptr<Tokenizer> open_gguf_bpe(const Weights& weights);
std::unique_ptr<Tokenizer> open_gguf_sentencepiece(const Weights& weights);

}  // namespace tenon::text
