// These functions read the tokenizer files of a Hugging Face folder: tokenizer.json or tokenizer.model, and beside them
// tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json, config.json and
// chat_template.jinja.
#pragma once

#include <filesystem>
#include <memory>

#include "sentencepiece_tokenizer.h"
#include "tenon/core/tokenizer.h"
#include "tokenizer_json.h"

namespace tenon::text {

bool has_tokenizer_json(const std::filesystem::path& folder);
bool has_tokenizer_model(const std::filesystem::path& folder);

// These return the vocabulary and what the files beside it add to it; what they say of BOS, EOS and templates is for
// the functions below.
TokenizerJson read_tokenizer_json(const std::filesystem::path& folder);
SentencePieceParts read_sentencepiece(const std::filesystem::path& folder);

std::unique_ptr<Tokenizer> open_huggingface_bpe(const std::filesystem::path& folder);
std::unique_ptr<Tokenizer> open_huggingface_sentencepiece(const std::filesystem::path& folder);

}  // namespace tenon::text
