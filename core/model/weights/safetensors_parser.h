// A safetensors file has eight bytes of length, a JSON header, and tensor data without gaps.
// https://github.com/huggingface/safetensors
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "table_weights.h"

namespace tenon::weights {

struct SafetensorsFile {
  MetadataMap metadata;               // what the file says under "__metadata__", keys "__metadata__.<key>"
  std::vector<WeightTensor> tensors;  // they are in the header's order, lie inside the file and cover it
};

// Parses the bytes of a whole file. Copies what it keeps. `file` names it in messages, `index` goes into
// WeightTensor::file. Tensors need not be aligned. Throws Error(kModel).
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& file, uint32_t index = 0);

// Returns "BF16" and the like; empty for a format that safetensors do not have.
std::string_view safetensors_dtype(tenon_format format);

}  // namespace tenon::weights
