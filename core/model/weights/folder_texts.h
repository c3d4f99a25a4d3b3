// These are the files beside the weights of a Hugging Face folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tenon::weights {

// The tokenizer of a GGUF file goes into this file: its metadata, without tensors.
inline constexpr char kGgufTokenizerName[] = "tokenizer.gguf";

// Returns description and tokenizer by name, as the folder has them. Throws Error(kModel) without a config.json,
// Error(kIo).
std::map<std::string, std::string> folder_texts(const std::filesystem::path& folder);
// Returns config.json's text with `description`, a JSON object, as its entry "quantization_config". Throws
// Error(kModel) where it has one, and for a description that is no JSON.
std::string with_quantization(const std::string& config, const std::string& description);
// Returns the description, a JSON object that has a list `key` or nothing there, with those names in the list that are
// not in it yet.
std::string with_names(const std::string& description, const std::string& key, const std::vector<std::string>& names);

}  // namespace tenon::weights
