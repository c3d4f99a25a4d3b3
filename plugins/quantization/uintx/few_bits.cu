#include "forms.cuh"

namespace tenon {
TENON_UINTX_FORMS(, 1)
TENON_UINTX_FORMS(, 2)
TENON_UINTX_FORMS(, 3)
TENON_UINTX_FORM(, 4, 8)
}  // namespace tenon
