// These are random rows of weights under the tests' names: see conformance/weight_rows.h.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>

#include "conformance/weight_rows.h"

namespace tenon::test {

using conformance::kFileFormats;
using conformance::random_rows;

// Makes a row what int8wo is to hold of it: codes of 8 bits, one scale.
inline void hold_as_int8(float* w, size_t k) {
  float largest = 0;
  for (size_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(w[i]));
  const float scale = std::max(largest / 127.5F, FLT_EPSILON);
  for (size_t i = 0; i < k; ++i) w[i] = std::clamp(std::rint(w[i] / scale), -128.0F, 127.0F) * scale;
}

}  // namespace tenon::test
