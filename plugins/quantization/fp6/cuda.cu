#include "../coded/cuda_scheme.cuh"
#include "schema.h"
#include "tenon/cuda/coded_weights.cuh"

namespace tenon::fp6 {

// Floats of 5 bits are packed as those of 6 with one more bit of mantissa, which is 0.
template <class Wider>
struct FiveBitFloats : cuda::SixBitFloats<Wider> {
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    uint32_t wider[8];
    for (uint32_t i = 0; i < 8; ++i) wider[i] = q[i] << 1;
    cuda::SixBitFloats<Wider>::put(to, row, k, wider);
  }
};

struct CudaSchema : Schema {
  template <uint32_t kIndex>
  using Weights =
      std::tuple_element_t<kIndex,
                           std::tuple<cuda::SixBitFloats<Float<0>>, cuda::SixBitFloats<Float<1>>,
                                      FiveBitFloats<sdk::SmallFloat<2, 3>>, FiveBitFloats<sdk::SmallFloat<3, 2>>>>;
  template <uint32_t kIndex>
  using Format = cuda::GroupedFormat<Weights<kIndex>, cuda::NoScales, 128, 4>;
};

}  // namespace tenon::fp6

TENON_PLUGIN(tenon::coded::CudaScheme<tenon::fp6::CudaSchema>);
