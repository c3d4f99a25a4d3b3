// The plan says how every tensor of a model will be written.
#pragma once

#include <vector>

#include "scheme_encoder.h"
#include "tenon/core/quantize.h"
#include "tenon/core/weights.h"

namespace tenon {

struct PlannedTensor {
  const WeightTensor* source = nullptr;
  tenon_format format = TENON_FORMAT_NONE;  // it counts if there is no scheme
  const SchemeEncoder* scheme = nullptr;    // the options that name it outlive it
  ModelMatrix matrix;                       // it counts if there is a scheme
  MatrixDescription described;              // it counts if there is a scheme
  size_t first = 0;                         // number of its first tensor among those that are written
  // If true, this is a vector that factors are folded into, or a router whose columns are multiplied by them, written as
  // f32 with the matrices of its layer. Then `matrix` has its place in the model, and `described` its one tensor.
  bool folded = false;

  // A layer at a time is written of these.
  bool by_layer() const { return scheme != nullptr || folded; }
};

// This is a folding whose matrices are all written by the whole model's scheme, in terms of the plan.
struct PlannedFolding {
  struct Elements {
    const PlannedTensor* vector;
    int64_t first;
    float added;
  };
  // See Folding.
  int32_t layer = -1;
  std::vector<const PlannedTensor*> consumers;
  uint32_t experts = 0;
  const PlannedTensor* router = nullptr;
  std::vector<uint32_t> source;
  uint32_t sources = 0;
  std::vector<Elements> vectors;
  const PlannedTensor* producer = nullptr;
  int64_t first_row = 0;
};

struct QuantizePlan {
  std::vector<PlannedTensor> tensors;
  std::vector<WeightTensor> written;     // the file will hold these; a scheme makes several of a matrix
  std::vector<PlannedFolding> foldings;  // there are none without a calibration
  std::string description;               // the config's quantization_config; "" if no scheme writes anything
};

// Throws Error(kUsage) for an override that matches no matrix or does not fit the kind of file.
void check_overrides(const Weights& model, const QuantizeOptions& options);
// Fills in what the report says before anything is written.
QuantizePlan plan_tensors(const Weights& model, const QuantizeOptions& options, QuantizeReport& report);

}  // namespace tenon
