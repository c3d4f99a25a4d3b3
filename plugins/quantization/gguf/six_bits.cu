#include "forms.cuh"

namespace tenon {
TENON_GGUF_KERNELS(, Q6_KForm)
TENON_GGUF_KERNELS(, SixBitForm)
}  // namespace tenon
