// This packed format (tenon/cuda/formats.cuh) has two of every four weights, as codes of 4 bits,
// q + 8, and columns, for 16 rows and 64 k:
//
//   [lane][32 k] u32, of which bits 0-3 and 4-7 are the first codes of row g in the lane's two quads of the 32 k, 8-15
//   the same of row g + 8, and the upper half has the second codes: a shift and two masks make an A fragment of a word
//   [lane] u32, the columns as sparse tensor cores take them (mma_sparse): lanes with t = 0 and 1 have those of the
//   first 32 k, t = 2 and 3 those of the others, t = 0 and 2 of the first quads of the four lanes, t = 1 and 3 of the
//   second ones
//
// Up to 16 rows go to sparse tensor cores, which read columns as they lie here and leave the zeros out. Products of more rows multiply them: a byte permutation makes two registers of an A fragment out
// of a word that has both codes and an 8, by a selector out of a table of all columns in shared memory. The table's
// sixteen words lie in banks of their own, so lanes do not wait for each other.
//
// Example: the quad (0, -3, 0, 5) has the codes 5 and 13 and the columns 1 and 3, that is 1 | 3 << 2 = 13. The word is
// bytes 5, 0, 13, 0, the selector for columns 0 and 1 takes bytes 8, 0, 5, 0: halves with the bits 8 and 5.
#pragma once

#include "definition.h"
#include "tenon/cuda/group_weights.cuh"
#include "tenon/cuda/half_fragments.cuh"
#include "tenon/cuda/mma.cuh"

namespace tenon::cuda {

// This is the layout, with dense fragments of it.
struct SparseNibbles : IntegerWeights<8> {
  static constexpr bool kStaggered = false;
  static constexpr uint32_t kColumns = 256, kBytes = kColumns + 128, kWords = 16;
  static constexpr uint32_t kTableBytes = 128;  // the words use them; a dynamic array may begin after them

  // All threads of a block call it, and then wait for each other. The table is [columns]: two selectors of byte 0 or 2,
  // the codes, or 4, an 8, each with byte 1 or 5, which are above them.
  static __device__ void make_table() {
    if (threadIdx.x >= kWords) return;
    const uint32_t first = threadIdx.x & 3, second = threadIdx.x >> 2;
    uint32_t selectors = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t byte = i == first ? 0 : i == second ? 2 : 4;
      selectors |= (byte | 5 << 4) << 8 * i;
    }
    table()[threadIdx.x] = selectors;
  }
  __device__ __forceinline__ void load(uint32_t address) {
    codes_ = load_shared_8(address + 8 * lane_id());
    columns_ = load_shared(address + kColumns + lane_id() / 4 * 16);
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    static_assert((kWith & 0xff00ff) == 0 && kWith >> 16 == (kWith & 0xffff));
    const uint32_t of_steps[4] = {columns_.x, columns_.y, columns_.z, columns_.w};
    const uint32_t columns = of_steps[step] >> 4 * (lane_id() % 4);
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const uint32_t both = (step < 2 ? codes_.x : codes_.y) >> (8 * row + 4 * (step % 2)) & 0x000f000f;
      const uint32_t selectors = table()[columns >> 16 * row & 15];
      a[row] = permuted_bytes(both, 8 | (kWith & 0xff00), selectors);
      a[row + 2] = permuted_bytes(both, 8 | (kWith & 0xff00), selectors >> 16);
    }
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const uint32_t codes = *reinterpret_cast<const uint32_t*>(from + 8 * lane + 4 * block);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, quad = i / 4 % 2, column = i % 4, at = 8 * row + 4 * quad;
      const auto* of_quads = reinterpret_cast<const uint32_t*>(from + kColumns + lane / 4 * 16 + 8 * block);
      const uint32_t places = of_quads[quad] >> (16 * row + lane % 4 * 4);
      q[row][i % 8] = column == (places & 3)        ? codes >> at & 15
                      : column == (places >> 2 & 3) ? codes >> (16 + at) & 15
                                                    : 8;
    }
  }
  // Of each four q, two at most are not 8.
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    const uint32_t lane = lane_offset(row, k) / 16, block = k / 32;
    uint32_t codes[2] = {};  // it has the first ones of both quads, then the second ones
    for (uint32_t quad = 0; quad < 2; ++quad) {
      // These are the first and the last column that are taken, or two of those that are not.
      uint32_t first = 0, second = 3;
      while (first < 2 && q[4 * quad + first] == 8) ++first;
      while (second > first + 1 && q[4 * quad + second] == 8) --second;
      codes[0] |= q[4 * quad + first] << 4 * quad;
      codes[1] |= q[4 * quad + second] << 4 * quad;
      uint8_t& columns = to[kColumns + lane / 4 * 16 + 8 * block + 4 * quad + row / 8 * 2 + lane % 4 / 2];
      const uint32_t place = lane % 2 * 4;
      columns = static_cast<uint8_t>((columns & ~(15U << place)) | (first | second << 2) << place);
    }
    for (uint32_t i = 0; i < 2; ++i) to[8 * lane + 4 * block + 2 * i + row / 8] = static_cast<uint8_t>(codes[i]);
  }

 private:
  // Returns the block's table.
  static __device__ __forceinline__ uint32_t* table() {
    __shared__ uint32_t words[kWords];
    return words;
  }

  uint2 codes_;    // by 32 k
  uint4 columns_;  // by k-step
};
static_assert(GroupWeights<SparseNibbles>);

// This is a format of such weights, with scales as GroupedFormat has them.
template <GroupScales ScalesOf, uint32_t Group>
struct SparseFormat : GroupedFormat<SparseNibbles, ScalesOf, Group, 4> {
  using Dense = GroupedFormat<SparseNibbles, ScalesOf, Group, 4>;
  static constexpr bool kSparse = true, kNeedsSums = false;  // zeros are zeros, so no bias is multiplied

  template <int kPresent, int kTiles, int kRowBlocks, uint32_t kSums, PreparedX X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][kRowBlocks][kSums],
                                                  const uint32_t (&segment)[kTiles], X& x) {
    // This many k are summed before they are scaled; with several groups side by side, lane % 4 is the lane's group.
    constexpr uint32_t kScaledK = X::kSpreads ? Dense::kSpread * Group : Group;
    const uint32_t own = X::kSpreads ? lane_id() % Dense::kSpread : 0;
    float c[kPresent][kRowBlocks][4];  // [tile][row block]: an mma's sums of q x
#pragma unroll
    for (uint32_t bundle = 0; bundle < Dense::kBundles; ++bundle) {
      uint2 codes[kPresent];       // [tile], by 32 k
      uint32_t columns[kPresent];  // [tile]
#pragma unroll
      for (int t = 0; t < kPresent; ++t) {
        const uint32_t weights = segment[t] + SparseNibbles::kBytes * bundle;
        codes[t] = load_shared_8(weights + 8 * lane_id());
        columns[t] = load_shared_4(weights + SparseNibbles::kColumns + 4 * lane_id());
      }
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t k = 64 * bundle + 32 * half, group = k / kScaledK * (kScaledK / Group);
        uint4 fragment[kRowBlocks];
#pragma unroll
        for (int n = 0; n < kRowBlocks; ++n) fragment[n] = x.fragment(2 * bundle + half, n);
#pragma unroll
        for (int t = 0; t < kPresent; ++t) {
          uint32_t a[4];
          make_fragment(half == 0 ? codes[t].x : codes[t].y, a);
#pragma unroll
          for (int n = 0; n < kRowBlocks; ++n) {
            if (k % kScaledK == 0) {
#pragma unroll
              for (float& sum : c[t][n]) sum = 0;
            }
            half == 0 ? mma_sparse<0>(c[t][n], a, fragment[n], columns[t])
                      : mma_sparse<1>(c[t][n], a, fragment[n], columns[t]);
          }
          if ((k + 32) % kScaledK != 0) continue;
          const auto scales = ScalesOf::load(SharedBytes{segment[t] + Dense::kScales}, group + own, lane_id() / 4);
#pragma unroll
          for (int n = 0; n < kRowBlocks; ++n) {
            scale<X::kPaired>(acc[t][n], X::kSpreads ? 0 : group % Dense::kSpread * 2, c[t][n], scales);
          }
        }
      }
    }
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo& row) { return sum * row.unscale; }

 private:
  // The codes of a word less 8, as halves: 1024 + u less 1032, and (1024 + 16 u) / 16 less 72, are exact.
  static __device__ __forceinline__ void make_fragment(uint32_t word, uint32_t (&a)[4]) {
    const __half2 bias = __float2half2_rn(-1032), sixteenth = __float2half2_rn(0.0625F), late = __float2half2_rn(-72);
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const uint32_t bits = word >> 8 * row;
      const uint32_t first = masked<0x000f000f, detail::kThousand>(bits),
                     last = masked<0x00f000f0, detail::kThousand>(bits);
      a[row] = detail::as_bits(__hadd2(detail::as_halves(first), bias));
      a[row + 2] = detail::as_bits(__hfma2(detail::as_halves(last), sixteenth, late));
    }
  }
  // Adds s * c: if paired, to acc[at], of row g, and acc[at + 1], of row g + 8; at is 0 otherwise.
  template <bool kPaired, uint32_t kSums>
  static __device__ __forceinline__ void scale(float (&acc)[kSums], uint32_t at, const float (&c)[4],
                                               const typename ScalesOf::Words& scales) {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const float s = ScalesOf::scale(scales, row);
      if constexpr (kPaired) {
        acc[at + row] = fmaf(s, c[2 * row] + c[2 * row + 1], acc[at + row]);
      } else {
        acc[2 * row] = fmaf(s, c[2 * row], acc[2 * row]);
        acc[2 * row + 1] = fmaf(s, c[2 * row + 1], acc[2 * row + 1]);
      }
    }
  }
};
static_assert(PackedFormat<SparseFormat<HalfScales, 64>>);

template <GroupScales ScalesOf, uint32_t Group>
struct HalfFragments<SparseFormat<ScalesOf, Group>> : HalfFragments<typename SparseFormat<ScalesOf, Group>::Dense> {};

}  // namespace tenon::cuda
