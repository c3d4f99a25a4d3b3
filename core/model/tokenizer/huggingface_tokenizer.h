// The tokenizer files of a Hugging Face folder: tokenizer.json or tokenizer.model, and beside them
// tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json, config.json and
// chat_template.jinja.
#pragma once

#include <filesystem>
#include <memory>

#include "tenon/core/tokenizer.h"

namespace tenon::text {

bool has_tokenizer_json(const std::filesystem::path& folder);
bool has_tokenizer_model(const std::filesystem::path& folder);

std::unique_ptr<Tokenizer> open_huggingface_bpe(const std::filesystem::path& folder);
std::unique_ptr<Tokenizer> open_huggingface_sentencepiece(const std::filesystem::path& folder);

}  // namespace tenon::text
