// GGUF's types lie so on the GPU. Four of them have a layout of their own; the others, and matrices of several types
// in one site, lie in the layout that holds all of their integers and scales as they are: no value changes.
//
//   types of a site's matrices                                          form          bits a weight
//   all Q4_0, all Q4_1, all Q4_K                                        the type's    4.5, 5, 4.75
//   Q8_0, Q5_0, or blocks of 32 without minima mixed                    Q8_0          8.5
//   Q5_1, or other blocks of 32 mixed                                   EightBit      9
//   Q6_K, Q3_K, or both                                                 Q6_K          6.75
//   Q2_K, Q5_K, or other K types mixed                                  SixBit        7.5
//   all IQ4_NL, all IQ4_XS, all MXFP4                                   the type's    4.5, 4.375, 4.25
//   TQ1_0, TQ2_0, or both                                               Ternary       2.25
//   all of one float type                                               as it is      16, 32
//   any other mixture                                                   f32           32
#pragma once

#include "tenon/cuda/coded_weights.cuh"
#include "tenon/cuda/grouped_formats.cuh"
#include "tenon/cuda/packed_scheme.cuh"
#include "tenon/sdk/gguf_books.h"

namespace tenon::gguf {

using F32Form = cuda::F32Format;
using F16Form = cuda::HalfFormat<__half>;
using Bf16Form = cuda::HalfFormat<__nv_bfloat16>;
using Q4_0Form = cuda::GroupedFormat<cuda::Nibbles<8>, cuda::HalfScales, 32, 4>;
using Q4_1Form = cuda::GroupedFormat<cuda::Nibbles<0>, cuda::ScalePairs<__half>, 32, 4>;
using Q4_KForm = cuda::GroupedFormat<cuda::Nibbles<0>, cuda::TwoLevelScales<true>, 32, 4>;
using Q8_0Form = cuda::GroupedFormat<cuda::Bytes<128>, cuda::HalfScales, 32, 2>;
using EightBitForm = cuda::GroupedFormat<cuda::Bytes<128>, cuda::ScalePairs<__half>, 32, 2>;
using Q6_KForm = cuda::GroupedFormat<cuda::Sixes<32>, cuda::TwoLevelScales<false>, 16, 2>;
using SixBitForm = cuda::GroupedFormat<cuda::Sixes<32>, cuda::TwoLevelScales<true>, 16, 2>;
using Iq4NlForm = cuda::GroupedFormat<cuda::BookWeights<sdk::Iq4Numbers>, cuda::HalfScales, 32, 4>;
using Iq4XsForm = cuda::GroupedFormat<cuda::BookWeights<sdk::Iq4Numbers>, cuda::TwoLevelScales<false>, 32, 4>;
using Mxfp4Form = cuda::GroupedFormat<cuda::BookWeights<sdk::E2m1Numbers>, cuda::ExponentScales, 32, 4>;
using TernaryForm = cuda::GroupedFormat<cuda::HalfBytes<2, 1>, cuda::HalfScales, 64, 4>;

}  // namespace tenon::gguf

// This makes the kernels of a form, in a source of their own each few forms.
#define TENON_GGUF_KERNELS(EXTERN, FORM)                                                                   \
  EXTERN template void cuda::run_packed<gguf::FORM>(const cuda::PackedArgs&, const cuda::Launch&);         \
  EXTERN template void cuda::run_prepare<gguf::FORM>(const cuda::PackedArgs&, const cuda::Launch&);        \
  EXTERN template void cuda::run_routed<gguf::FORM>(const cuda::PackedArgs&, const cuda::Launch&);         \
  EXTERN template void cuda::run_routed_prepare<gguf::FORM>(const cuda::PackedArgs&, const cuda::Launch&); \
  EXTERN template void cuda::run_lookup<gguf::FORM>(const cuda::UnpackArgs&, const cuda::Launch&);         \
  EXTERN template void cuda::run_unpack<gguf::FORM, cuda::PlainOf<gguf::FORM>>(const cuda::UnpackArgs&,    \
                                                                               const cuda::Launch&);

namespace tenon {
TENON_GGUF_KERNELS(extern, F32Form)
TENON_GGUF_KERNELS(extern, F16Form)
TENON_GGUF_KERNELS(extern, Bf16Form)
TENON_GGUF_KERNELS(extern, Q4_0Form)
TENON_GGUF_KERNELS(extern, Q4_1Form)
TENON_GGUF_KERNELS(extern, Q4_KForm)
TENON_GGUF_KERNELS(extern, Q8_0Form)
TENON_GGUF_KERNELS(extern, EightBitForm)
TENON_GGUF_KERNELS(extern, Q6_KForm)
TENON_GGUF_KERNELS(extern, SixBitForm)
TENON_GGUF_KERNELS(extern, Iq4NlForm)
TENON_GGUF_KERNELS(extern, Iq4XsForm)
TENON_GGUF_KERNELS(extern, Mxfp4Form)
TENON_GGUF_KERNELS(extern, TernaryForm)
}  // namespace tenon
