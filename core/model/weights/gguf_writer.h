// This writes what stands in a GGUF file, version 3, before the tensors' data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/weights.h"

namespace tenon::weights {

// This holds entries of metadata as they stand in the file.
class GgufPairs {
 public:
  void add_raw(std::string_view pair);  // key, type and value
  void add_u32(std::string_view key, uint32_t value);
  // Whole numbers are written as u32 where they fit, else i64 or u64, in arrays i32; fractions are written as f32.
  void add(std::string_view key, const MetadataValue& value);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type);

  std::string bytes_;
  uint64_t count_ = 0;
};

constexpr uint64_t aligned(uint64_t at, uint64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

struct GgufLayout {
  std::string header;       // it ends where the first tensor's data begins
  uint64_t file_bytes = 0;  // the last tensor's end is not padded
};

// Gives each tensor its bytes and its offset in the file, one after another, and returns what stands before them.
// `alignment` is a power of two; where it is not 32 the metadata must have general.alignment. Throws Error(kModel) for
// a format that GGUF has not and for a size beyond 63 bits.
GgufLayout lay_out_gguf(const GgufPairs& metadata, uint64_t alignment, std::vector<WeightTensor>& tensors);

}  // namespace tenon::weights
