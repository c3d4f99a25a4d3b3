// Integers with a scale and an offset in f32 (paired_codings.h) lie so on the GPU. Four bits are in several
// schemes, so their kernels are compiled once.
#pragma once

#include "grouped_forms.cuh"

namespace tenon {
TENON_PUBLISHED_FORMS(extern, 4, FloatPairs)
}  // namespace tenon
