// In this model, matrices that were encoded are seen as they will be stored.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "../../model/weights/table_weights.h"

namespace tenon {

// These tensors were encoded so far and stand in the place of a matrix's "weight", found by the matrix's name, or in
// that of a vector, found by the name of its tensor.
struct EncodedTensor {
  WeightTensor tensor;
  std::span<const std::byte> bytes;
};
using EncodedTensors = std::map<std::string, std::vector<EncodedTensor>>;

class EncodedWeights final : public weights::TableWeights {
 public:
  // The description is JSON and seen as the model's quantization_config, unless nothing was encoded. The source
  // and what was encoded outlive it unchanged.
  EncodedWeights(const Weights& source, const EncodedTensors& encoded, const std::string& description);

  const std::byte* mapped(const WeightTensor& tensor) const override;
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override;
  void prefetch(const WeightTensor& tensor) const override;
  void release(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const override;

 private:
  const Weights& source_;
  std::map<std::string, std::span<const std::byte>> bytes_;  // it has the tensors that are not the source's, by name
};

}  // namespace tenon
