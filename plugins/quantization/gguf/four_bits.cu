#include "forms.cuh"

namespace tenon {
TENON_GGUF_KERNELS(, Q4_0Form)
TENON_GGUF_KERNELS(, Q4_1Form)
TENON_GGUF_KERNELS(, Q4_KForm)
}  // namespace tenon
