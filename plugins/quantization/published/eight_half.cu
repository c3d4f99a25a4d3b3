#include "grouped_forms.cuh"

namespace tenon {
TENON_PUBLISHED_FORMS(, 8, HalfZeroPoints)
}  // namespace tenon
