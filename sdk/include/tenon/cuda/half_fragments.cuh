// This makes A fragments (mma.cuh) of packed weights (packed.cuh): halves that have the weights' values, 64 k at a
// time. It is for products of so many rows that x is one half a value. The factor by which a format scales a whole
// row (kRowScales) is left to the product.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "tenon/cuda/formats.cuh"
#include "tenon/cuda/grouped_formats.cuh"

namespace tenon::cuda {

// A stage has so many k, which are read at once: whole segments.
template <PackedFormat F>
inline constexpr uint32_t kStageK = F::kSegmentK < 128 ? 128 : F::kSegmentK;

// Products by tiles have memory for larger tables than others. Weights may have a form for them, OfTiles, which lies in
// segments as they do; the format is that of OfTiles there.
template <class F>
struct TilesForm {
  using Type = F;
};
template <GroupWeights Weights, GroupScales ScalesOf, uint32_t Group, uint32_t Blocks>
  requires requires { typename Weights::OfTiles; }
struct TilesForm<GroupedFormat<Weights, ScalesOf, Group, Blocks>> {
  using Type = GroupedFormat<typename Weights::OfTiles, ScalesOf, Group, Blocks>;
};
template <PackedFormat F>
using FormOfTiles = typename TilesForm<F>::Type;

// HalfFragments<F>::load(segment, bundle, a) fills a[k-step] with an A fragment, from bundle number `bundle` (64 k) of
// a stage that begins at the address `segment` in shared memory. A format that is kStaggered has weights k % 4 in {2,
// 3} 16 times too large, and x there 16 times too small.
template <PackedFormat F>
struct HalfFragments;

template <HalfType H, uint32_t Blocks>
struct HalfFragments<HalfFormat<H, Blocks>> {
  static __device__ __forceinline__ void load(uint32_t segment, uint32_t bundle, uint32_t (&a)[4][4]) {
#pragma unroll
    for (uint32_t step = 0; step < 4; ++step) {
      const uint4 w = load_shared(segment + 512 * (4 * bundle + step) + 16 * lane_id());
      a[step][0] = w.x;
      a[step][1] = w.y;
      a[step][2] = w.z;
      a[step][3] = w.w;
    }
  }
};

template <uint32_t Blocks>
struct HalfFragments<Int8Format<Blocks>> {
  static __device__ __forceinline__ void load(uint32_t segment, uint32_t bundle, uint32_t (&a)[4][4]) {
    const __half2 offset = __float2half2_rn(1024 + Int8Format<Blocks>::kOffset);
#pragma unroll
    for (uint32_t b = 0; b < 2; ++b) {
      const uint4 w = load_shared(segment + 512 * (2 * bundle + b) + 16 * lane_id());
      const uint32_t words[4] = {w.x, w.y, w.z, w.w};  // they are rows g and g + 8 of one k-step, then of the next
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t word = words[i / 4 * 2 + i % 2];
        const uint32_t bits = i % 4 < 2 ? first_bytes<detail::kThousand>(word) : last_bytes<detail::kThousand>(word);
        a[2 * b + i / 4][i % 4] = detail::as_bits(__hsub2(detail::as_halves(bits), offset));
      }
    }
  }
};

template <GroupWeights Weights, GroupScales ScalesOf, uint32_t Group, uint32_t Blocks>
struct HalfFragments<GroupedFormat<Weights, ScalesOf, Group, Blocks>> {
  using F = GroupedFormat<Weights, ScalesOf, Group, Blocks>;

  static __device__ __forceinline__ void load(uint32_t segment, uint32_t bundle, uint32_t (&a)[4][4]) {
    segment += bundle / F::kBundles * F::kSegmentBytes;
    bundle %= F::kBundles;
    Weights weights;
    weights.load(segment + Weights::kBytes * bundle);
    __half2 scale[2], offset[2], late_offset[2];  // by rows g and g + 8; see scaled_integers()
#pragma unroll
    for (uint32_t step = 0; step < 4; ++step) {
      if (step == 0 || (step == 2 && Group < 64)) {
        const uint32_t k = 64 * bundle + 16 * step + (Group < 32 ? 8 * (lane_id() % 4) : 0);
        const auto words = ScalesOf::load(SharedBytes{segment + F::kScales}, k / Group, lane_id() / 4);
        const HalfScalePairs of_rows = halves_of(words);
        scale[0] = __low2half2(of_rows.scale);
        scale[1] = __high2half2(of_rows.scale);
        const __half2 own = kZeroPoints ? __hadd2(of_rows.offset, __float2half2_rn(thousand(1))) : of_rows.offset;
        offset[0] = __low2half2(own);
        offset[1] = __high2half2(own);
        const __half2 late = kZeroPoints
                                 ? __hfma2(of_rows.offset, __float2half2_rn(kUp), __float2half2_rn(thousand(kUp)))
                                 : __hmul2(of_rows.offset, __float2half2_rn(kUp));
        late_offset[0] = __low2half2(late);
        late_offset[1] = __high2half2(late);
      }
      if constexpr (Weights::kIntegers) {
        weights.template fragments<detail::kThousand>(step, a[step]);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const bool late = i >= 2;
          a[step][i] = scaled_integers(a[step][i], late, scale[i % 2], (late ? late_offset : offset)[i % 2]);
        }
      } else {
        weights.template fragments<0>(step, a[step]);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          a[step][i] = detail::as_bits(__hmul2(detail::as_halves(a[step][i]), scale[i % 2]));
        }
      }
    }
  }

 private:
  static constexpr float kUnit = Weights::kIntegers ? 1 : Weights::kUnit, kUp = Weights::kStaggered ? 16 : 1;
  static constexpr bool kZeroPoints = requires(const typename ScalesOf::Words& words) { ScalesOf::zero(words, 0U); };

  // A half with an integer times `up` in its lower bits is this much more than `up` times the integer less its bias.
  static constexpr float thousand(float up) { return 1024 + up * Weights::kBias; }
  static __device__ __forceinline__ HalfScalePairs halves_of(const typename ScalesOf::Words& words) {
    if constexpr (MakesHalves<ScalesOf> && kUnit == 1) {
      return ScalesOf::halves(words);
    } else {
      return {__floats2half2_rn(ScalesOf::scale(words, 0) * kUnit, ScalesOf::scale(words, 1) * kUnit),
              __floats2half2_rn(offset_of(words, 0), offset_of(words, 1))};
    }
  }
  static __device__ __forceinline__ float offset_of(const typename ScalesOf::Words& words, uint32_t row) {
    if constexpr (kZeroPoints) return ScalesOf::zero(words, row);
    return ScalesOf::offset(words, row);
  }
  // `bits` are two halves of 1024 and an integer; `late` ones are kUp times too large. The offset is kUp times too large
  // as well then; of a zero point it is what is taken off the bits, so that the difference of integers is exact.
  static __device__ __forceinline__ uint32_t scaled_integers(uint32_t bits, bool late, __half2 scale, __half2 offset) {
    if constexpr (kZeroPoints) return detail::as_bits(__hmul2(__hsub2(detail::as_halves(bits), offset), scale));
    const __half2 q = __hsub2(detail::as_halves(bits), __float2half2_rn(thousand(late ? kUp : 1)));
    if constexpr (ScalesOf::kOffsets) return detail::as_bits(__hfma2(q, scale, offset));
    return detail::as_bits(__hmul2(q, scale));
  }
};

}  // namespace tenon::cuda
