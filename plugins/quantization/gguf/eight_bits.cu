#include "forms.cuh"

namespace tenon {
TENON_GGUF_KERNELS(, Q8_0Form)
TENON_GGUF_KERNELS(, EightBitForm)
}  // namespace tenon
