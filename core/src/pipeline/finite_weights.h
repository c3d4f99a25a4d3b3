// This looks whether the weights of a module are finite, as the file has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model_instance.h"

namespace tenon {

// Returns the first weight of a module's matrices and vectors that is NaN or infinite, in words that name its tensor
// and its place; "" if there is none in a format that core reads. `path` is that of an op.
// If rows of a matrix are looked up, only the row of `token` counts.
// Throws Error(kIo).
std::string weight_not_finite(const ModelInstance& instance, const std::string& path, int32_t token);

// Returns "nan", "inf" or "-inf".
std::string name_of(float value);

}  // namespace tenon
