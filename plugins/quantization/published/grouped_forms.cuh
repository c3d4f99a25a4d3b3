// Integers of published checkpoints lie so on the GPU: a coding's groups of 128 as groups of 64 with equal scales.
// Several schemes have the same forms, so their kernels are compiled once, in sources of their own each few widths.
#pragma once

#include <type_traits>

#include "../coded/coding.h"
#include "tenon/cuda/coded_weights.cuh"
#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/packed_ops.cuh"
#include "tenon/cuda/unpack.cuh"

namespace tenon::published {

template <uint32_t kBits, class Scales, uint32_t kGroup>
using GroupedForm = cuda::GroupedFormat<cuda::UnsignedWeights<kBits>, Scales, kGroup, 4>;

// A coding of grouped_codings.h has this form.
template <const auto& kCodings, uint32_t kIndex>
using FormOf = GroupedForm<kCodings[kIndex].bits,
                           std::conditional_t<kCodings[kIndex].scaling == coded::Scaling::kHalfZeroPoint,
                                              cuda::HalfZeroPoints, cuda::ZeroPoints>,
                           (kCodings[kIndex].group < 64 ? 32 : 64)>;

}  // namespace tenon::published

#define TENON_PUBLISHED_FORM(EXTERN, ...)                                                                     \
  EXTERN template void cuda::run_packed<published::GroupedForm<__VA_ARGS__>>(const cuda::PackedArgs&,         \
                                                                             const cuda::Launch&);            \
  EXTERN template void cuda::run_prepare<published::GroupedForm<__VA_ARGS__>>(const cuda::PackedArgs&,        \
                                                                              const cuda::Launch&);           \
  EXTERN template void cuda::run_tiles<published::GroupedForm<__VA_ARGS__>>(const cuda::PackedArgs&,          \
                                                                            const cuda::Launch&);             \
  EXTERN template void cuda::run_routed<published::GroupedForm<__VA_ARGS__>>(const cuda::PackedArgs&,         \
                                                                             const cuda::Launch&);            \
  EXTERN template void cuda::run_routed_prepare<published::GroupedForm<__VA_ARGS__>>(const cuda::PackedArgs&, \
                                                                                     const cuda::Launch&);    \
  EXTERN template void cuda::run_lookup<published::GroupedForm<__VA_ARGS__>>(const cuda::UnpackArgs&,         \
                                                                             const cuda::Launch&);            \
  EXTERN template void cuda::run_unpack<published::GroupedForm<__VA_ARGS__>, __half>(const cuda::UnpackArgs&, \
                                                                                     const cuda::Launch&);
#define TENON_PUBLISHED_FORMS(EXTERN, BITS, SCALES)    \
  TENON_PUBLISHED_FORM(EXTERN, BITS, cuda::SCALES, 32) \
  TENON_PUBLISHED_FORM(EXTERN, BITS, cuda::SCALES, 64)

namespace tenon {
TENON_PUBLISHED_FORMS(extern, 2, HalfZeroPoints)
TENON_PUBLISHED_FORMS(extern, 3, HalfZeroPoints)
TENON_PUBLISHED_FORMS(extern, 4, HalfZeroPoints)
TENON_PUBLISHED_FORMS(extern, 8, HalfZeroPoints)
TENON_PUBLISHED_FORMS(extern, 4, ZeroPoints)
TENON_PUBLISHED_FORMS(extern, 8, ZeroPoints)
}  // namespace tenon
