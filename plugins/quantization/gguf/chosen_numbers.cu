#include "forms.cuh"

namespace tenon {
TENON_GGUF_KERNELS(, Iq4NlForm)
TENON_GGUF_KERNELS(, Iq4XsForm)
TENON_GGUF_KERNELS(, Mxfp4Form)
TENON_GGUF_KERNELS(, TernaryForm)
}  // namespace tenon
