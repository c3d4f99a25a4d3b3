// The files beside the weights of a Hugging Face folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "tenon/abi/types.h"

namespace tenon::weights {

// What the tokenizer of a GGUF file goes into: its metadata, without tensors.
inline constexpr char kGgufTokenizerName[] = "tokenizer.gguf";

// Description and tokenizer as the folder has them, by name. Throws Error(kModel) without a config.json, Error(kIo).
std::map<std::string, std::string> folder_texts(const std::filesystem::path& folder);
// config.json's text with an entry "quantization_config" that says how the weights are stored. Throws Error(kModel)
// where it has one.
std::string with_quantization(const std::string& config, tenon_format format);

}  // namespace tenon::weights
