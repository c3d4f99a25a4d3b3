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
  const SchemeEncoder* scheme = nullptr;    // outlived by the options that name it
  ModelMatrix matrix;                       // it counts if there is a scheme
  MatrixDescription described;              // it counts if there is a scheme
  size_t first = 0;                         // number of its first tensor among those that are written
};

struct QuantizePlan {
  std::vector<PlannedTensor> tensors;
  std::vector<WeightTensor> written;  // the file will hold these; a scheme makes several of a matrix
  std::string description;            // the config's quantization_config; "" if no scheme writes anything
};

// Throws Error(kUsage) for an override that matches no matrix or does not fit the kind of file.
void check_overrides(const Weights& model, const QuantizeOptions& options);
// Fills in what the report says before anything is written.
QuantizePlan plan_tensors(const Weights& model, const QuantizeOptions& options, QuantizeReport& report);

}  // namespace tenon
