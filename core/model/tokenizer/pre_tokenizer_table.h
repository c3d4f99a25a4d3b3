// This has the pre-tokenizers that GGUF files name (tokenizer.ggml.pre), each as its model's tokenizer.json states it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "normalizer.h"
#include "pre_tokenizer.h"

namespace tenon::text {

struct PublishedPreTokenizer {
  std::vector<NormalizerStep> normalizer;
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;
  bool adds_bos = false;  // it counts if the file does not say
};

// Throws Error(kModel) at `file` that lists the names.
PublishedPreTokenizer published_pre_tokenizer(const std::string& name, const std::string& file);

// Returns their names, each way to cut a text once.
std::vector<std::string_view> published_pre_tokenizers();

// This is GPT-2's word pattern, the default of byte-level pre-tokenizers.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace tenon::text
