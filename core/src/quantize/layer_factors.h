// These are the factors of one layer's foldings: for columns and rows of its matrices, and its vectors and routers after
// that.
#pragma once

#include <map>
#include <vector>

#include "calibration.h"
#include "matrix_encoding.h"
#include "matrix_plan.h"

namespace tenon {

class LayerFactors {
 public:
  // Asks the scheme for the factors of every folding of the layer, whose inputs were observed last. Throws
  // Error(kModel) for weights that are NaN or infinite, what SchemeEncoder::column_factors() throws.
  LayerFactors(const Weights& model, const QuantizePlan& plan, const Calibration& calibration, int32_t layer);

  // Returns nullptr if the matrix has none.
  const MatrixFactors* of(const PlannedTensor& matrix) const;
  // Returns the vectors and routers of the layer's foldings as they are to be stored.
  const std::map<const PlannedTensor*, std::vector<float>>& plain() const { return plain_; }

 private:
  void fold(const PlannedFolding& folding, const std::vector<float>& factors);
  void multiply_columns(const PlannedTensor& matrix, const std::vector<float>& factors);

  const Weights& model_;
  std::map<const PlannedTensor*, MatrixFactors> matrices_;
  std::map<const PlannedTensor*, std::vector<float>> plain_;
};

}  // namespace tenon
