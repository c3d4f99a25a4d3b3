// This finds out what the matrices of a model are for.
#pragma once

#include <map>
#include <string>

#include "scheme_encoder.h"

namespace tenon {

class ModelListing;

// Returns the matrices by their names in the file.
std::map<std::string, ModelMatrix> matrices_of(const ModelListing& model);

}  // namespace tenon
