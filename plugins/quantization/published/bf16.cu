#include "grouped_forms.cuh"

namespace tenon {
TENON_PUBLISHED_FORMS(, 4, ZeroPoints)
TENON_PUBLISHED_FORMS(, 8, ZeroPoints)
}  // namespace tenon
