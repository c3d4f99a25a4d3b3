// This finds out what the matrices of a model are for.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "scheme_encoder.h"
#include "tenon/core/weights.h"

namespace tenon {

// Returns the matrices by their names in the file; none if no architecture claims the weights or they are no whole model.
std::map<std::string, ModelMatrix> matrices_of(const Weights& weights,
                                               const std::vector<std::filesystem::path>& model_dirs);

}  // namespace tenon
