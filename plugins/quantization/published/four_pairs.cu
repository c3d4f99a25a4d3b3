#include "pair_forms.cuh"

namespace tenon {
TENON_PUBLISHED_FORMS(, 4, FloatPairs)
}  // namespace tenon
