// A calibration observes what goes into the matrices of a model while texts run through it, layer by layer.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "encoded_weights.h"
#include "matrix_plan.h"
#include "tenon/core/tokenizer.h"

namespace tenon {

class Calibration {
 public:
  // The model, the registry of the options and what the plan names outlive it. Throws Error(kUsage) where no scheme of
  // the plan observes and for a text without tokens; what resolve() throws.
  Calibration(const Weights& model, const Tokenizer& tokenizer, const QuantizeCalibration& options,
              const QuantizePlan& plan, const SchemeEncoder& scheme);

  // Matrices that are encoded together, and the vectors that are folded with them, in order: those that are only looked up or in
  // no model, each layer, those after all layers.
  std::vector<std::vector<const PlannedTensor*>> batches() const;
  // Runs the texts through the layers up to that of the batch, which is next: matrices that were kept as they are
  // stored, the others as the model has them. read: called after each window. Throws what Pipeline::build() and load()
  // throw.
  using Read = std::function<void(uint32_t window, uint32_t windows)>;
  void observe(std::span<const PlannedTensor* const> batch, const Read& read);
  // Returns the state of a matrix of the batch that was observed last; empty if its scheme does not want to see it.
  std::span<const std::byte> observed(const PlannedTensor& p) const;
  // Tensor `index` of those that a matrix is written as, which outlives this.
  void keep(const PlannedTensor& p, size_t index, std::span<const std::byte> bytes);
  // Names what the layers depend on beside the model and the schemes: the tokens and the pipeline.
  std::vector<std::string> asked() const;

 private:
  PipelineConfig config_for(std::span<const PlannedTensor* const> batch) const;

  const Weights& model_;
  const QuantizeCalibration& options_;
  const QuantizePlan& plan_;
  const SchemeEncoder& scheme_;
  std::map<std::string, ModelMatrix> matrices_;  // keyed by the matrices' names
  PipelineConfig base_;
  std::vector<std::vector<int32_t>> windows_;
  EncodedTensors encoded_;
  std::map<const PlannedTensor*, std::vector<std::byte>> states_;
};

}  // namespace tenon
