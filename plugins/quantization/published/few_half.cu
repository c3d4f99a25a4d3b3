#include "grouped_forms.cuh"

namespace tenon {
TENON_PUBLISHED_FORMS(, 2, HalfZeroPoints)
TENON_PUBLISHED_FORMS(, 3, HalfZeroPoints)
}  // namespace tenon
