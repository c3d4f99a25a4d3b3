#include "forms.cuh"

namespace tenon {
TENON_GGUF_KERNELS(, F32Form)
TENON_GGUF_KERNELS(, F16Form)
TENON_GGUF_KERNELS(, Bf16Form)
}  // namespace tenon
