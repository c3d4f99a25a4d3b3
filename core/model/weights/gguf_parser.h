// GGUF, versions 2 and 3, as ggml's documentation describes it: header, metadata, tensor directory, aligned tensor
// data; all little-endian.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gguf_metadata.h"
#include "table_weights.h"

namespace tenon::weights {

struct GgufFile {
  MetadataMap metadata;
  std::vector<MetadataPair> pairs;    // the same as the file has them
  uint64_t alignment = 0;             // bytes, of tensors
  std::vector<WeightTensor> tensors;  // checked to lie inside the file, aligned and apart
};

// Parses the bytes of a whole file. Copies what it keeps. `file` names it in messages, `index` goes into
// WeightTensor::file. Throws Error(kModel).
GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& file, uint32_t index = 0);

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
// Returns ggml's number of a format; nullopt for those that GGUF does not have.
std::optional<uint32_t> gguf_type_number(tenon_format format);

}  // namespace tenon::weights
