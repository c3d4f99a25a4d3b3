// A Hugging Face folder's tokenizer becomes the metadata of a GGUF file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "../weights/table_weights.h"

namespace tenon::text {

// Returns the keys tokenizer.*; the vocabulary is filled up with unused tokens to `rows`, the rows of the embedding.
// GGUF only names how a text is cut: the name is taken under which a sample with much in it is cut, and becomes tokens,
// as by the folder. Throws Error(kModel) where there is none, saying what differs; Error(kIo).
weights::MetadataMap gguf_vocabulary(const std::filesystem::path& folder, size_t rows);

// Returns the pieces into which a pre-tokenizer that GGUF names cuts the sample.
std::vector<std::string> sample_pieces(const std::string& name);

}  // namespace tenon::text
