// These are formats (formats.cuh) of few bits whose weights share a scale, and perhaps an offset, in groups along k:
//
//   w = s * (q - bias) + z,  q unsigned integers, or the numbers that codes stand for
//
// A segment is [bundle of 64 k of weights (group_weights.cuh)], then its scales (group_scales.cuh). A group is
// multiplied as the integers that it has, and its sum of 16 weights by 8 columns is scaled once: with c = sum of q x
// and X = sum of x over the group's k, the group adds s * c + (z - bias * s) * X; without bias and offset s * c.
//
// One row of x as digits (formats.cuh) is multiplied by quartets in integers: a column has the sums of one digit, which
// are finite floats and are scaled as others are; the digits meet in partial(). Each step of 32 k unpacks half as much
// as one of halves.
//
// One row of x leaves six of the eight columns of B empty. Where groups are short enough, but of 8, two of them lie
// side by side in columns of their own (kSpread), so that one scaling serves both.
#pragma once

#include "tenon/cuda/group_scales.cuh"
#include "tenon/cuda/group_weights.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda {

// A group has `Group` k, a power of two from 8 on. A segment has `Blocks` blocks of 32 k.
template <GroupWeights Weights, GroupScales ScalesOf, uint32_t Group, uint32_t Blocks>
struct GroupedFormat {
  using Half = __half;
  using Scales = ScalesOf;
  static constexpr int kBias = Weights::kBias;
  static constexpr uint32_t kBlocks = Blocks, kSegmentK = 32 * Blocks, kGroup = Group, kGroups = kSegmentK / Group;
  static constexpr uint32_t kSpread = Group > 8 && Group <= kSegmentK / 2 ? 2 : 1, kAcc = 2 * kSpread;
  static constexpr uint32_t kBundles = Blocks / 2;                 // in a segment; a bundle is 64 k
  static constexpr uint32_t kScales = Weights::kBytes * kBundles;  // where the scales begin
  static constexpr uint32_t kSegmentBytes = kScales + Scales::kHeader + Scales::kGroupBytes * kGroups;
  static constexpr bool kScaled = true, kTotal = false, kRowScales = Scales::kRowScales;
  static constexpr bool kStaggered = Weights::kStaggered, kNeedsSums = kBias != 0 || Scales::kOffsets;
  static constexpr uint32_t kTableBytes = cuda::kTableBytes<Weights>;
  static constexpr bool kQuartetsOfPairs = BookQuartets<Weights>;
  static constexpr bool kTakesOrder = std::is_same_v<Scales, HalfZeroPoints>;  // those of GPTQ's act-order
  // Sums of a group in one digit are less than 2^22, so that they can be bits of a float.
  static constexpr bool kTakesDigits =
      (QuartetWeights<Weights> || kQuartetsOfPairs) && Group >= 32 && Group <= 128 && Blocks <= 4;
  static_assert(Blocks % 2 == 0 && kSegmentK % (kSpread * Group) == 0 && Group >= 8 && kSegmentBytes % 16 == 0);

  static __device__ void make_table() { cuda::make_table<Weights>(); }
  template <int kPresent, int kTiles, int kRowBlocks, uint32_t kSums, PreparedX X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][kRowBlocks][kSums],
                                                  const uint32_t (&segment)[kTiles], X& x) {
    constexpr bool kInParts = Group < 32 && !X::kSpreads;
    GroupSums<X, kPresent, kRowBlocks> sums;
    const auto multiply_bundle = [&](uint32_t bundle) {
      if constexpr (kInParts) {
        multiply_parts<kPresent>(acc, segment, x, bundle);
      } else {
        multiply_steps(acc, segment, x, bundle, sums);
      }
    };
    if constexpr (kRowBlocks == 1 && Blocks <= 4) {
#pragma unroll
      for (uint32_t bundle = 0; bundle < kBundles; ++bundle) multiply_bundle(bundle);
    } else {
#pragma unroll 1  // registers
      for (uint32_t bundle = 0; bundle < kBundles; ++bundle) multiply_bundle(bundle);
    }
  }
  template <int kPresent, int kTiles, DigitRow X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][1][4], const uint32_t (&segment)[kTiles], X& x) {
    constexpr uint32_t kScaledK = kSpread * Group;
    const uint32_t own = kSpread == 1 ? 0 : lane_id() % 4 / 2;
    DigitSums<Weights> sums[kPresent];  // by tile
#pragma unroll
    for (uint32_t bundle = 0; bundle < kBundles; ++bundle) {
      const uint32_t k = 64 * bundle, group = k / kScaledK * kSpread + own;
      const uint4 digits = x.digits(bundle);
      Weights weights[kPresent];
#pragma unroll
      for (int t = 0; t < kPresent; ++t) weights[t].load(segment[t] + Weights::kBytes * bundle);
#pragma unroll
      for (int t = 0; t < kPresent; ++t) {
        if (k % kScaledK == 0) sums[t].clear();
        if constexpr (!kQuartetsOfPairs) sums[t].add(weights[t], digits);
      }
      if constexpr (kQuartetsOfPairs) DigitSums<Weights>::add(sums, weights, digits);
      if ((k + 64) % kScaledK != 0) continue;
      // The column of the group's lowest digit stands for its sum of x.
      constexpr uint32_t kLanes = 4 / kSpread;
      const float sum = kNeedsSums && lane_id() % kLanes == 0 ? x.sum(group) / DigitSums<Weights>::kUnit : 0;
#pragma unroll
      for (int t = 0; t < kPresent; ++t) {
        const auto scales = Scales::load(SharedBytes{segment[t] + kScales}, group, lane_id() / 4);
        scale_digits(acc[t][0], sums[t], sum, scales);
      }
    }
  }
  // Returns the lane's parts of the sums: lanes with an even number have the digits 0 and 1 of a group in their two columns,
  // the next ones digit 2.
  template <DigitRow X>
  static __device__ __forceinline__ RowPair partial(const float (&acc)[4]) {
    const bool lower = lane_id() % 2 == 0;
    return {lower ? fmaf(acc[1], 256, acc[0]) : acc[0] * 65536, lower ? fmaf(acc[3], 256, acc[2]) : acc[2] * 65536};
  }
  // Does what finish() does, for a sum of such parts.
  static __device__ __forceinline__ float finish_digits(float sum, const RowInfo& row) {
    constexpr float kDigitUnit = DigitSums<Weights>::kUnit / Weights::kUnit;
    return finish(sum * kDigitUnit, row);
  }
  template <PreparedX X>
  static __device__ __forceinline__ RowPair partial(const float (&acc)[kAcc]) {
    RowPair sum{acc[0], acc[1]};
    if constexpr (kSpread == 2) {
      sum.low += X::kSpreads ? __shfl_down_sync(~0U, sum.low, 1) : acc[2];
      sum.high += X::kSpreads ? __shfl_down_sync(~0U, sum.high, 1) : acc[3];
    }
    return sum;
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo& row) {
    return sum * Weights::kUnit * row.unscale;
  }

  // Stores 8 q of a row, integers with the bias; k is divisible by 8.
  static __device__ void put(uint8_t* segment, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    Weights::put(segment + k % kSegmentK / 64 * Weights::kBytes, row, k % 64, q);
  }
  // Returns the offset in a segment of a row's scale for the group that k is in.
  static __host__ __device__ uint32_t scale_offset(uint32_t row, uint32_t k) {
    return kScales + Scales::byte_offset(row, k % kSegmentK / Group);
  }
  static __device__ void expand(const uint8_t* segment, uint32_t block, uint32_t lane, float (&weights)[2][8]) {
    const auto scales = Scales::load(PlainBytes{segment + kScales}, (32 * block + 8 * (lane % 4)) / Group, lane / 4);
    uint32_t q[2][8];  // [row g, row g + 8][k]
    Weights::unpack(segment + block / 2 * Weights::kBytes, block % 2, lane, q);
    for (uint32_t i = 0; i < 16; ++i) {
      const float w = Weights::value(q[i / 8][i % 8]);
      weights[i / 8][i % 8] = fmaf(w, Scales::scale(scales, i / 8), Scales::offset(scales, i / 8));
    }
  }

 private:
  static constexpr int kFloatZero = 0x4b400000;  // the bits of 1.5 * 2^23
  // Returns an integer less than 2^22 whose sum began at kFloatZero.
  static __device__ __forceinline__ float float_of_sum(int sum) {
    return __int_as_float(sum) - __int_as_float(kFloatZero);
  }
  // A group's products of quartets and digits; sum i is operator[](i) * kUnit.
  template <class W>
  struct DigitSums {
    static constexpr float kUnit = 1.F / W::kLastQuartet;
    int first[4], last[4];

    __device__ __forceinline__ void clear() {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        first[i] = 0;
        last[i] = kFloatZero;
      }
    }
    __device__ __forceinline__ void add(const W& weights, const uint4& digits) {
      uint32_t a[4];
      weights.quartets(Quartet::kFirst, a);
      mma_bytes<false>(first, a, digits.x, digits.y);
      weights.quartets(Quartet::kLast, a);
      mma_bytes<false>(last, a, digits.z, digits.w);
    }
    __device__ __forceinline__ float operator[](uint32_t i) const {
      return float_of_sum(W::kLastQuartet * first[i] + last[i]);
    }
  };
  template <BookQuartets W>
  struct DigitSums<W> {
    static constexpr float kUnit = W::kUpperUnit;
    static constexpr uint32_t kUnits = W::kLowerUnit == W::kUpperUnit ? 1 : 2;
    int of_unit[kUnits][4];  // the upper one, and the lower one if it is another

    __device__ __forceinline__ void clear() {
#pragma unroll
      for (auto& sums : of_unit) {
#pragma unroll
        for (int& sum : sums) sum = kFloatZero;
      }
    }
    // Products of one unit and tile wait for each other, so all take turns.
    template <int kPresent>
    static __device__ __forceinline__ void add(DigitSums (&of)[kPresent], const W (&weights)[kPresent],
                                               const uint4& digits) {
      add<false>(of, weights, Quartet::kFirst, digits.x, digits.y);
      add<true>(of, weights, Quartet::kFirst, digits.x, digits.y);
      add<false>(of, weights, Quartet::kLast, digits.z, digits.w);
      add<true>(of, weights, Quartet::kLast, digits.z, digits.w);
    }
    template <bool kUpper, int kPresent>
    static __device__ __forceinline__ void add(DigitSums (&of)[kPresent], const W (&weights)[kPresent], Quartet which,
                                               uint32_t b0, uint32_t b1) {
#pragma unroll
      for (int t = 0; t < kPresent; ++t) {
        uint32_t a[4];
        weights[t].template quartets<kUpper>(which, a);
        mma_bytes<true>(of[t].of_unit[kUpper ? 0 : kUnits - 1], a, b0, b1);
      }
    }
    __device__ __forceinline__ float operator[](uint32_t i) const {
      const float sum = float_of_sum(of_unit[0][i]);
      return kUnits == 2 ? fmaf(float_of_sum(of_unit[kUnits - 1][i]), W::kLowerUnit / W::kUpperUnit, sum) : sum;
    }
  };
  static __device__ __forceinline__ void scale_digits(float (&acc)[4], const DigitSums<Weights>& c, float sum,
                                                      const typename Scales::Words& scales) {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const float s = Scales::scale(scales, row);
      acc[2 * row] = fmaf(s, c[2 * row], acc[2 * row]);
      acc[2 * row + 1] = fmaf(s, c[2 * row + 1], acc[2 * row + 1]);
      if constexpr (!kNeedsSums) continue;
      acc[2 * row] = fmaf(fmaf(-Weights::kBias, s, Scales::offset(scales, row)), sum, acc[2 * row]);
    }
  }

  // These are the sums of a group that is not finished: it may go on from one 64 k to the next.
  template <PreparedX X, int kPresent, int kRowBlocks>
  struct GroupSums {
    float c[kPresent][kRowBlocks][4];                             // [tile][row block]: an mma's sums of q x
    std::conditional_t<X::kPaired, float, float2> x[kRowBlocks];  // sums of x
  };

  // Multiplies 64 k in groups of at least 32 k, or in any groups that lie side by side: in a column of
  // B a k-step of 16 k belongs to one group.
  template <int kPresent, int kTiles, int kRowBlocks, uint32_t kSums, PreparedX X>
  static __device__ __forceinline__ void multiply_steps(float (&acc)[kTiles][kRowBlocks][kSums],
                                                        const uint32_t (&segment)[kTiles], X& x, uint32_t bundle,
                                                        GroupSums<X, kPresent, kRowBlocks>& sums) {
    // This many k are summed before they are scaled; with several groups side by side, lane % 4 is the lane's group.
    constexpr uint32_t kScaledK = X::kSpreads ? kSpread * Group : Group;
    const uint32_t own = X::kSpreads ? lane_id() % kSpread : 0;
    Weights weights[kPresent];  // by tile
#pragma unroll
    for (int t = 0; t < kPresent; ++t) weights[t].load(segment[t] + Weights::kBytes * bundle);
#pragma unroll
    for (uint32_t step = 0; step < 4; ++step) {
      const uint32_t k = 64 * bundle + 16 * step, group = k / kScaledK * (kScaledK / Group);
      if (k % kScaledK == 0) begin_group(sums, x, group + own);
      uint4 fragment[kRowBlocks];
#pragma unroll
      for (int n = 0; n < kRowBlocks; ++n) fragment[n] = x.fragment(2 * bundle + step / 2, n);
#pragma unroll
      for (int t = 0; t < kPresent; ++t) {
        uint32_t a[4];
        weights[t].fragments(step, a);
#pragma unroll
        for (int n = 0; n < kRowBlocks; ++n) mma_step<Half>(sums.c[t][n], a, fragment[n], step % 2);
        if ((k + 16) % kScaledK != 0) continue;
        const auto scales = Scales::load(SharedBytes{segment[t] + kScales}, group + own, lane_id() / 4);
#pragma unroll
        for (int n = 0; n < kRowBlocks; ++n) {
          scale(acc[t][n], X::kSpreads ? 0 : group % kSpread * 2, sums.c[t][n], sums.x[n], scales);
        }
      }
    }
  }
  template <int kPresent, int kRowBlocks, PreparedX X>
  static __device__ __forceinline__ void begin_group(GroupSums<X, kPresent, kRowBlocks>& sums, X& x, uint32_t group) {
#pragma unroll
    for (int n = 0; n < kRowBlocks; ++n) {
      sums.x[n] = x.sum(group, n);
#pragma unroll
      for (int t = 0; t < kPresent; ++t) {
#pragma unroll
        for (float& c : sums.c[t][n]) c = 0;
      }
    }
  }

  // Multiplies 64 k in groups of 8 or 16 that do not lie side by side. A lane has 8 k of each row of a block of 32 k,
  // over both k-steps, so a quarter or half of the lanes hold a group. The other lanes multiply zeros instead of x.
  template <int kPresent, int kTiles, int kRowBlocks, uint32_t kSums, PreparedX X>
  static __device__ __forceinline__ void multiply_parts(float (&acc)[kTiles][kRowBlocks][kSums],
                                                        const uint32_t (&segment)[kTiles], X& x, uint32_t bundle) {
    constexpr uint32_t kParts = 32 / Group;  // a block has so many groups
    Weights weights[kPresent];               // by tile
#pragma unroll
    for (int t = 0; t < kPresent; ++t) weights[t].load(segment[t] + Weights::kBytes * bundle);
#pragma unroll
    for (uint32_t block = 0; block < 2; ++block) {
      uint32_t a[kPresent][2][4];  // [tile][k-step]: an A fragment
#pragma unroll
      for (uint32_t step = 0; step < 2; ++step) {
#pragma unroll
        for (int t = 0; t < kPresent; ++t) weights[t].fragments(2 * block + step, a[t][step]);
      }
#pragma unroll
      for (uint32_t part = 0; part < kParts; ++part) {
        const uint32_t group = kParts * (2 * bundle + block) + part;
        const bool own = lane_id() % 4 / (Group / 8) == part;
        typename Scales::Words scales[kPresent];
#pragma unroll
        for (int t = 0; t < kPresent; ++t) {
          scales[t] = Scales::load(SharedBytes{segment[t] + kScales}, group, lane_id() / 4);
        }
#pragma unroll
        for (int n = 0; n < kRowBlocks; ++n) {
          const auto sum = x.sum(group, n);
          uint4 fragment = x.fragment(2 * bundle + block, n);
          if (!own) fragment = {0, 0, 0, 0};
#pragma unroll
          for (int t = 0; t < kPresent; ++t) {
            float c[4] = {};
            mma_step<Half>(c, a[t][0], fragment, 0);
            mma_step<Half>(c, a[t][1], fragment, 1);
            scale(acc[t][n], part % kSpread * 2, c, sum, scales[t]);
          }
        }
      }
    }
  }

  // Adds s * c + (z - bias * s) * sum to acc[at] for row g, and to acc[at + 1] for row g + 8; the factor kUnit comes in finish().
  static __device__ __forceinline__ void scale(float (&acc)[kAcc], uint32_t at, const float (&c)[4], float sum,
                                               const typename Scales::Words& scales) {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const float s = Scales::scale(scales, row);
      acc[at + row] = fmaf(s, c[2 * row] + c[2 * row + 1], acc[at + row]);
      if constexpr (Weights::kBias == 0 && !Scales::kOffsets) continue;
      const float least = fmaf(-Weights::kBias, s, Scales::offset(scales, row));
      acc[at + row] = fmaf(least, sum, acc[at + row]);
    }
  }
  // Does the same for unpaired x, where `sum` has the sums of two rows of x.
  static __device__ __forceinline__ void scale(float (&acc)[4], uint32_t, const float (&c)[4], const float2& sum,
                                               const typename Scales::Words& scales) {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const float s = Scales::scale(scales, row);
      acc[2 * row] = fmaf(s, c[2 * row], acc[2 * row]);
      acc[2 * row + 1] = fmaf(s, c[2 * row + 1], acc[2 * row + 1]);
      if constexpr (Weights::kBias == 0 && !Scales::kOffsets) continue;
      const float least = fmaf(-Weights::kBias, s, Scales::offset(scales, row));
      acc[2 * row] = fmaf(least, sum.x, acc[2 * row]);
      acc[2 * row + 1] = fmaf(least, sum.y, acc[2 * row + 1]);
    }
  }
};

// Here w = (q - 8) * s + z, and a group has (s, z) in bf16.
template <uint32_t Group, uint32_t Blocks = 4>
using Int4Format = GroupedFormat<Nibbles<8>, ScalePairs<__nv_bfloat16>, Group, Blocks>;
static_assert(PackedFormat<Int4Format<64>>);

}  // namespace tenon::cuda
