// This is a model seen with other names, another order of rows and another description.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "table_weights.h"

namespace tenon::weights {

// A tensor of the view comes from here.
struct TensorOrigin {
  const WeightTensor* source = nullptr;         // or
  std::vector<std::byte> bytes = {};            // these are computed, or
  std::vector<const WeightTensor*> parts = {};  // these, all of one size, one after the other
  std::vector<uint32_t> row = {};               // row i is the source's row[i]; empty: as they are
};

// The source must outlive it, unless it is owned.
class TranslatedWeights final : public TableWeights {
 public:
  // Each tensor of the contents, then each unlisted one, has one origin; throws Error(kModel) where two have one name.
  TranslatedWeights(const Weights& source, Contents contents, std::vector<TensorOrigin> origins);

  // The source lives as long as this object then.
  void own(std::unique_ptr<Weights> source) { owned_ = std::move(source); }

  const std::byte* mapped(const WeightTensor&) const override { return nullptr; }
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override;
  void prefetch(const WeightTensor& tensor) const override;

 private:
  const TensorOrigin& origin_of(const WeightTensor& tensor) const;
  void read_parts(const std::vector<const WeightTensor*>& parts, uint64_t offset, std::span<std::byte> out) const;

  const Weights& source_;
  std::unique_ptr<Weights> owned_;
  std::vector<TensorOrigin> origins_;  // there is one for each tensor, by its number
};

}  // namespace tenon::weights
