// The kernels of routed products have a source of their own, so that it and cuda.cu are compiled at the same time.
#pragma once

#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/packed_ops.cuh"

#define TENON_INT4_ROUTED(EXTERN, GROUP)                                                                        \
  EXTERN template void cuda::run_routed<cuda::Int4Format<GROUP>>(const cuda::PackedArgs&, const cuda::Launch&); \
  EXTERN template void cuda::run_routed_prepare<cuda::Int4Format<GROUP>>(const cuda::PackedArgs&, const cuda::Launch&);

namespace tenon {
TENON_INT4_ROUTED(extern, 32)
TENON_INT4_ROUTED(extern, 64)
TENON_INT4_ROUTED(extern, 128)
}  // namespace tenon
