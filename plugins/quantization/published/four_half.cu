#include "grouped_forms.cuh"

namespace tenon {
TENON_PUBLISHED_FORMS(, 4, HalfZeroPoints)
}  // namespace tenon
