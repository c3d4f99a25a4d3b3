#include "forms.cuh"

namespace tenon {
TENON_UINTX_FORMS(, 4)
TENON_UINTX_FORMS(, 5)
TENON_UINTX_FORMS(, 6)
TENON_UINTX_FORMS(, 8)
TENON_UINTX_FORM(, 8, 8)
}  // namespace tenon
