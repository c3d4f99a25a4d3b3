// These are the files beside the weights of a Hugging Face folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace tenon::weights {

// The tokenizer of a GGUF file goes into this file: its metadata, without tensors.
inline constexpr char kGgufTokenizerName[] = "tokenizer.gguf";

// Returns description and tokenizer by name, as the folder has them. Throws Error(kModel) without a config.json,
// Error(kIo).
std::map<std::string, std::string> folder_texts(const std::filesystem::path& folder);
// Returns config.json's text with `description`, a JSON object, as its entry "quantization_config". Throws
// Error(kModel) where it has one, and for a description that is no JSON.
std::string with_quantization(const std::string& config, const std::string& description);

}  // namespace tenon::weights
