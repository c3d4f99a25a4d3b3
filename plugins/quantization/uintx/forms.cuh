// uintx's codings lie so on the GPU: groups of 128 and 256 as groups of 64 with equal scales, integers of 7 bits as
// bytes; in groups of 8 integers of up to 4 bits as such of 4, all others as bytes. The kernels are in a source of their
// own each few widths.
#pragma once

#include "../coded/cuda_scheme.cuh"
#include "schema.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::uintx {

template <uint32_t kBits, uint32_t kGroup>
using Form = cuda::GroupedFormat<cuda::UnsignedWeights<kBits>, cuda::ZeroPoints, kGroup, 4>;

}  // namespace tenon::uintx

#define TENON_UINTX_FORM(EXTERN, ...)                                                                             \
  EXTERN template void cuda::run_packed<uintx::Form<__VA_ARGS__>>(const cuda::PackedArgs&, const cuda::Launch&);  \
  EXTERN template void cuda::run_prepare<uintx::Form<__VA_ARGS__>>(const cuda::PackedArgs&, const cuda::Launch&); \
  EXTERN template void cuda::run_tiles<uintx::Form<__VA_ARGS__>>(const cuda::PackedArgs&, const cuda::Launch&);   \
  EXTERN template void cuda::run_lookup<uintx::Form<__VA_ARGS__>>(const cuda::UnpackArgs&, const cuda::Launch&);  \
  EXTERN template void cuda::run_unpack<uintx::Form<__VA_ARGS__>, __half>(const cuda::UnpackArgs&, const cuda::Launch&);
#define TENON_UINTX_FORMS(EXTERN, BITS) \
  TENON_UINTX_FORM(EXTERN, BITS, 32)    \
  TENON_UINTX_FORM(EXTERN, BITS, 64)

namespace tenon {
TENON_UINTX_FORMS(extern, 1)
TENON_UINTX_FORMS(extern, 2)
TENON_UINTX_FORMS(extern, 3)
TENON_UINTX_FORMS(extern, 4)
TENON_UINTX_FORMS(extern, 5)
TENON_UINTX_FORMS(extern, 6)
TENON_UINTX_FORMS(extern, 8)
TENON_UINTX_FORM(extern, 4, 8)
TENON_UINTX_FORM(extern, 8, 8)
}  // namespace tenon
