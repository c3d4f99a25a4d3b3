// Tensors of a model are read, converted and handed on, a batch of chunks at a time, one chunk a thread.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gguf_encode.h"
#include "tenon/core/weights.h"

namespace tenon::weights {

// Converts weights of a tensor.
size_t element_count(const WeightTensor& tensor);
// Returns whether the tensor is a matrix whose weights can be read.
bool is_matrix(const WeightTensor& tensor);
bool is_blocks(tenon_format format);
// Throws Error(kModel) that names the place of a weight which cannot be stored.
[[noreturn]] void refuse_weight(const Weights& model, const WeightTensor& tensor, size_t index, const char* why);

class TensorConverter {
 public:
  explicit TensorConverter(const Weights& model);

  // `put` gets the tensor's bytes in `format`, in order. Throws Error(kModel) for a weight that cannot be stored, with
  // its place, and what `put` throws.
  using Put = std::function<void(std::span<const std::byte>)>;
  void convert(const WeightTensor& source, tenon_format format, const Put& put);

 private:
  struct Chunk {
    std::vector<float> weights;
    std::optional<BadWeight> bad;
  };
  struct Job {
    const WeightTensor& source;
    tenon_format format;
  };

  void convert_batch(const Job& job, size_t first, size_t count);
  void convert_chunk(const Job& job, size_t begin, size_t n, Chunk& chunk);

  const Weights& model_;
  std::vector<uint8_t> in_, encoded_;
  std::vector<Chunk> chunks_;
};

}  // namespace tenon::weights
