// A block of matvec_kernel (matvec.cuh) works with these: its shared memory, its segments, its rows, its outputs.
#pragma once

#include <type_traits>

#include "tenon/cuda/expert_groups.cuh"
#include "tenon/cuda/formats.cuh"
#include "tenon/cuda/matvec_args.cuh"
#include "tenon/cuda/ring.cuh"
#include "tenon/cuda/row_prologue.cuh"
#include "tenon/cuda/row_sources.cuh"

namespace tenon::cuda {

// This is the layout of a block's shared memory: offsets in bytes. The rings come first.
struct MatvecLayout {
  uint32_t x;         // [k] one row of x, 4 bytes a k; only kShared
  uint32_t sums;      // [group] f32, its sums; only kShared
  uint32_t partials;  // [pair % 2][warp][tile of the pair][row][16 rows of the tile] f32
  uint32_t squares;   // [warp] f32, for the norm
  uint32_t barriers;  // [warp][stage]
  uint32_t taken;     // [pair % 2], a barrier each
  uint32_t bytes;     // all
};
// rows counts the rows of x: 1 if kShared, else a multiple of 4.
template <PackedFormat F, int kTiles, bool kShared>
__host__ __device__ inline MatvecLayout matvec_layout(uint32_t k, uint32_t rows, uint32_t stages) {
  const uint32_t padded = segments_of<F>(k) * F::kSegmentK, groups = F::kGroup == 0 ? 0 : padded / kGroupDivisor<F>;
  MatvecLayout at{};
  at.x = kMatvecWarps * stages * kTiles * F::kSegmentBytes;
  at.sums = at.x + (kShared ? 4 * padded : 0);
  at.partials = at.sums + (kShared ? (groups * 4 + 15) / 16 * 16 : 0);
  at.squares = at.partials + 2 * kMatvecWarps * kTiles * kTileRows * rows * 4;
  at.barriers = at.squares + kMatvecWarps * 4;
  at.taken = at.barriers + kMatvecWarps * stages * Barrier::kBytes;
  at.bytes = at.taken + 2 * Barrier::kBytes;
  return at;
}

// A warp multiplies segments in this order: those of a tile pair, then those of the next.
template <PackedFormat F, uint32_t kTiles>
class SegmentWalk {
 public:
  // The block has tiles [first, last), and a tile has so many `segments`.
  __device__ SegmentWalk(uint32_t first, uint32_t last, uint32_t segments, uint32_t warp)
      : tile_(warp < segments ? first : last), last_(last), segments_(segments), warp_(warp), segment_(warp) {}
  __device__ __forceinline__ bool more() const { return tile_ < last_; }
  // These return the offset of the segment of the pair's first tile, and the number of the pair's tiles.
  __device__ __forceinline__ size_t offset() const { return size_t{tile_ * segments_ + segment_} * F::kSegmentBytes; }
  __device__ __forceinline__ uint32_t tiles() const { return min(last_ - tile_, kTiles); }
  __device__ __forceinline__ void advance() {
    segment_ += kMatvecWarps;
    if (segment_ >= segments_) {
      segment_ = warp_;
      tile_ += kTiles;
    }
  }

 private:
  uint32_t tile_, last_, segments_, warp_, segment_;
};

// This feeds a warp's weights through its ring, in the order of the walk.
template <PackedFormat F, uint32_t kTiles>
class WeightFeed {
  using Ring = WarpRing<F::kSegmentBytes, kTiles>;

 public:
  // A tile has so many `segments`.
  __device__ __forceinline__ WeightFeed(const Ring& ring, const SegmentWalk<F, kTiles>& walk, uint32_t segments)
      : ring_(ring), walk_(walk), tile_bytes_(size_t{segments} * F::kSegmentBytes) {}
  __device__ __forceinline__ size_t tile_bytes() const { return tile_bytes_; }
  // Fills the ring's stages; `weights` is the first tile of the matrix.
  __device__ __forceinline__ void prime(const uint8_t* weights, uint32_t stages) {
#pragma unroll 1
    for (uint32_t s = 0; s < stages && walk_.more(); ++s, walk_.advance()) {
      if (s > 0) ring_.wait_first(s - 1);  // or the loads of x would queue up after all of the ring
      fill(s, weights);
    }
  }
  // Returns the address of the segment that is next, of the pair's first tile, in shared memory.
  __device__ __forceinline__ uint32_t front() const { return ring_.front(); }
  // Every lane has read that segment: its stage is filled again.
  __device__ __forceinline__ void refill(const uint8_t* weights) {
    if (walk_.more()) {
      fill(ring_.stage(), weights);
      walk_.advance();
    }
    ring_.pop();
  }

 private:
  __device__ __forceinline__ void fill(uint32_t stage, const uint8_t* weights) const {
    ring_.fill(stage, StageSource{weights + walk_.offset(), tile_bytes_, walk_.tiles()});
  }

  Ring ring_;
  SegmentWalk<F, kTiles> walk_;
  size_t tile_bytes_;
};

// A block multiplies these rows by their matrices. Routed, the grid's y counts rows of x, or groups of rows.
template <bool kRouted, bool kShared>
class BlockRows {
 public:
  __device__ __forceinline__ explicit BlockRows(const MatvecPointers& p) : p_(p) {}
  // Returns, after the wait, the number of the rows' expert; -1 if there is none, and the product is 0.
  __device__ __forceinline__ int32_t expert(uint32_t experts) const {
    const int32_t e = kShared ? p_.routing[blockIdx.y] : ExpertGroups::expert(p_.routing, blockIdx.y);
    return e < static_cast<int32_t>(experts) ? e : -1;
  }
  // Returns the row of x and y that the block's row i is; UINT32_MAX if there is none.
  __device__ __forceinline__ uint32_t operator[](uint32_t i) const {
    if constexpr (!kRouted) {
      return i;
    } else if constexpr (kShared) {
      return blockIdx.y;
    } else {
      return static_cast<uint32_t>(ExpertGroups::row(p_.routing, blockIdx.y, i));
    }
  }

 private:
  const MatvecPointers& p_;
};

namespace detail {

// A warp's share of the one row goes into the block's shared memory.
template <PackedFormat F>
struct SharedRowSink {
  static constexpr bool kPaired = true;
  uint8_t* memory;
  float* sums;
  __device__ __forceinline__ void put_octet(uint32_t octet, const uint4& high, const uint4& low) const {
    auto* to = reinterpret_cast<uint4*>(memory + OctetPlace<F>::offset(octet));
    to[0] = high;
    to[OctetPlace<F>::kGap / 16] = low;
  }
  __device__ __forceinline__ void put_codes(uint32_t octet, uint2 codes) const {
    *reinterpret_cast<uint2*>(memory + octet / 8 * 256 + octet % 8 * 8) = codes;
  }
  __device__ __forceinline__ void put_sum(uint32_t group, float sum) const { sums[group] = sum; }
};
// A warp's share of the one row goes there as digits, in the order of SharedDigits.
template <PackedFormat F>
struct SharedDigitSink {
  uint8_t* memory;
  float* sums;
  __device__ __forceinline__ void put_digit(uint32_t octet, uint32_t digit, uint2 quartets) const {
    auto* to = reinterpret_cast<uint32_t*>(memory + octet / 8 * 256 + digit * 64 + octet % 4 * 16 + octet / 4 % 2 * 4);
    to[0] = quartets.x;
    to[2] = quartets.y;
  }
  __device__ __forceinline__ void put_sum(uint32_t group, float sum) const { sums[group] = sum; }
};
// A row of several goes into PreparedRows.
template <PackedFormat F, int kRowBlocks, bool kTakesPairs>
struct PreparedRowSink {
  static constexpr bool kPaired = kTakesPairs;
  uint8_t* prepared;
  const PreparedRows<F>& rows;
  uint32_t row;
  __device__ __forceinline__ void put_octet(uint32_t octet, const uint4& high, const uint4& low) const {
    auto* to = reinterpret_cast<uint4*>(prepared);
    if constexpr (std::is_void_v<typename F::Half>) {
      to += size_t{row} * rows.padded / 4 + 2 * octet;
      to[0] = high;
      to[1] = low;
    } else if constexpr (!kPaired) {
      to[((octet / 4 * kRowBlocks + row / 8) * 8 + row % 8) * 4 + octet % 4] = high;  // lane 4 * column + octet % 4
    } else {
      // The octet goes to lane 4 * column + octet % 4. The row's columns of B are 2 * (row
      // % 4), with the high parts, and the next.
      to += ((octet / 4 * kRowBlocks + row / 4) * 8 + 2 * (row % 4)) * 4 + octet % 4;
      to[0] = high;
      to[4] = low;
    }
  }
  __device__ __forceinline__ void put_codes(uint32_t octet, uint2 codes) const {
    *reinterpret_cast<uint2*>(prepared + size_t{row} * rows.padded * 4 + octet / 8 * 256 + octet % 8 * 8) = codes;
  }
  __device__ __forceinline__ void put_sum(uint32_t group, float sum) const {
    reinterpret_cast<float*>(prepared + rows.sums())[rows.sum_at(row, group)] = sum;
  }
};

// A thread reduces this output of a tile pair. From pair to pair the outputs move on by one warp.
template <uint32_t kRows>
struct ThreadOutput {
  uint32_t output, row, packed_row;
  __device__ __forceinline__ ThreadOutput(uint32_t pair, uint32_t tile)
      : output((threadIdx.x - 32 * pair) % kMatvecThreads),
        row(output / kTileRows % kRows),
        packed_row((tile + output / (kTileRows * kRows)) * kTileRows + output % kTileRows) {}
};

// An output takes these beside its sum; they are loaded before a tile pair is multiplied.
struct OutputTerms {
  float scale = 1, addend = 0;
};
// `scales` has one for each packed row, those of the rows' expert.
template <PackedFormat F>
__device__ __forceinline__ OutputTerms load_terms(const MatvecArgs& a, const MatvecPointers& p, const float* scales,
                                                  uint32_t packed_row, uint32_t row) {
  OutputTerms terms;
  const uint32_t column = a.map.column(packed_row);
  if (column == UINT32_MAX) return terms;
  if constexpr (F::kRowScales) terms.scale = scales[packed_row];
  if (p.bias != nullptr) terms.addend = p.bias[column];
  if (p.addend != nullptr) terms.addend += p.addend[row * a.addend_stride + column];
  return terms;
}

// Four lanes have parts of the sums of the same two rows of each tile. Each gets the whole of one sum: of two tiles lane
// n of the four has that of tile n % 2, of row g + 8 (n / 2); of one tile that of row g + 8 (n % 2).
template <int kTiles>
__device__ __forceinline__ float sum_of_parts(const RowPair (&part)[kTiles]) {
  const bool odd = lane_id() % 2 != 0, second = lane_id() % 4 > 1;
  if constexpr (kTiles == 1) {
    const float sum = (odd ? part[0].high : part[0].low) + __shfl_xor_sync(~0U, odd ? part[0].low : part[0].high, 1);
    return sum + __shfl_xor_sync(~0U, sum, 2);
  } else {
    static_assert(kTiles == 2);
    const auto [low0, high0] = part[0];
    const auto [low1, high1] = part[1];
    const float low = (odd ? low1 : low0) + __shfl_xor_sync(~0U, odd ? low0 : low1, 1);
    const float high = (odd ? high1 : high0) + __shfl_xor_sync(~0U, odd ? high0 : high1, 1);
    return (second ? high : low) + __shfl_xor_sync(~0U, second ? low : high, 2);
  }
}
// A warp leaves its sums of a tile pair of a row of digits; `to` is as leave_paired() has it.
template <PackedFormat F, class X, int kTiles>
__device__ __forceinline__ void leave_digits(const float (&acc)[kTiles][1][4], const ShareSums& share, float* to) {
  RowPair part[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) part[t] = F::template partial<X>(acc[t][0]);
  const float sum = sum_of_parts(part);
  const uint32_t lane = lane_id(), n = lane % 4, tile = kTiles == 2 ? n % 2 : 0, half = kTiles == 2 ? n / 2 : n % 2;
  if (kTiles == 2 || n < 2) {
    to[tile * kTileRows + 8 * half + lane / 4] = F::finish_digits(sum, {share.unscale, share.total});
  }
}

// A warp leaves its sums of a tile pair, to be added to those of the other warps: `to` is [tile of the pair][row][16
// rows of the tile]. If rows are prepared, `infos` has the warp's RowInfo of each row, kMatvecWarps apart; if the
// row is in shared memory, `share` has it.
template <PackedFormat F, class X, int kTiles, int kRowBlocks, int kSums>
__device__ __forceinline__ void leave_paired(const float (&acc)[kTiles][kRowBlocks][kSums], const ShareSums& share,
                                             const RowInfo* infos, float* to) {
  constexpr bool kShared = X::kRows == 1;
  const uint32_t lane = lane_id();
#pragma unroll
  for (int n = 0; n < kRowBlocks; ++n) {
    const uint32_t row = kShared ? 0 : 4 * n + lane % 4;
    RowInfo info{share.unscale, share.total};
    if constexpr (!kShared) info = infos[row * kMatvecWarps];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const RowPair sum = F::template partial<X>(acc[t][n]);
      if (kShared && lane % 4 != 0) continue;
      float* own = to + (t * X::kRows + row) * kTileRows + lane / 4;
      own[0] = F::finish(sum.low, info);
      own[8] = F::finish(sum.high, info);
    }
  }
}
// Does the same for unpaired rows, which have one column of B each.
template <PackedFormat F, int kTiles, int kRowBlocks, int kSums>
__device__ __forceinline__ void leave_unpaired(const float (&acc)[kTiles][kRowBlocks][kSums], const RowInfo* infos,
                                               float* to) {
  const uint32_t lane = lane_id();
#pragma unroll
  for (int n = 0; n < kRowBlocks; ++n) {
#pragma unroll
    for (uint32_t c = 0; c < 2; ++c) {
      const uint32_t row = 8 * n + 2 * (lane % 4) + c;
      const RowInfo info = infos[row * kMatvecWarps];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        float* own = to + (t * 8 * kRowBlocks + row) * kTileRows + lane / 4;
        own[0] = F::finish(acc[t][n][c], info);
        own[8] = F::finish(acc[t][n][2 + c], info);
      }
    }
  }
}

// Returns the sum of what the 16 warps left of an output; from: the first warp's.
template <uint32_t kOutputs>
__device__ __forceinline__ float sum_of_warps(const float* from) {
  float sum = 0;
#pragma unroll
  for (uint32_t w = 0; w < kMatvecWarps; ++w) sum += from[w * kOutputs];
  return sum;
}

// Returns silu(gate) * up in lanes with a gate; the lane 8 further has its up. All lanes of a warp call it.
__device__ __forceinline__ float silu_multiplied(float v) {
  const float up = __shfl_down_sync(~0U, v, 8);
  return v / (1 + expf(-v)) * up;
}

}  // namespace detail

}  // namespace tenon::cuda
