// This makes the metadata of a file that is made of a GGUF file.
#pragma once

#include <filesystem>

#include "gguf_writer.h"

namespace tenon::weights {

inline constexpr uint64_t kGgufAlignment = 32;  // it holds if the metadata says nothing else

// Copies all of it byte for byte, but without the keys of a split, and with what add_file_type() says.
GgufPairs copy_gguf_metadata(const std::filesystem::path& path, uint32_t file_type, bool blocks, uint64_t& alignment);
// Adds general.file_type, and for a file with blocks general.quantization_version.
void add_file_type(GgufPairs& pairs, uint32_t file_type, bool blocks);

}  // namespace tenon::weights
