// These hand a format prepared rows of x (row_prologue.cuh) in the form that it multiplies (PreparedX of formats.cuh):
// one row in shared memory, or several in device memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tenon/cuda/row_prologue.cuh"

namespace tenon::cuda {

// Several rows of x lie as fragments in device memory. A row block has 4 rows, or 8 unpaired ones, which are 8 columns of B.
// The memory has in this order:
//   x        [32 k][row block][lane][16 bytes]; formats that multiply in f32: [row][k] f32
//   sums     [row][group] f32; if x is unpaired [group][row]
//   info     [row][warp] RowInfo, about each warp's share of each row
//   factors  [row] f32, RMSNorm's
// Example: 5 rows of K = 4096 for Int4Format<64> are 2 row blocks, that is 8 rows: x has 8 * 4 * 4096 bytes, sums
// 8 * 64 * 4, info 8 * 16 * 8, factors 8 * 4: 134176 bytes.
template <PackedFormat F>
struct PreparedRows {
  uint32_t padded;      // k, in whole segments
  uint32_t groups;      // a row has so many
  uint32_t row_blocks;  // each has 16 bytes a k
  bool paired;
  uint32_t rows;  // a multiple of 4

  __host__ __device__ PreparedRows(uint32_t k, uint32_t blocks_of_rows, bool in_pairs = true)
      : padded(segments_of<F>(k) * F::kSegmentK),
        groups(F::kGroup == 0 ? 0 : padded / kGroupDivisor<F>),
        row_blocks(blocks_of_rows),
        paired(in_pairs),
        rows((paired ? 4 : 8) * row_blocks) {}
  // Returns the index of a sum among all.
  __host__ __device__ uint32_t sum_at(uint32_t row, uint32_t group) const {
    return paired ? row * groups + group : group * rows + row;
  }
  // These return the offsets in bytes, and the size of all.
  __host__ __device__ size_t sums() const { return size_t{padded} * row_blocks * 16; }
  __host__ __device__ size_t info() const { return sums() + size_t{groups} * rows * 4; }
  __host__ __device__ size_t factors() const { return info() + rows * kMatvecWarps * sizeof(RowInfo); }
  __host__ __device__ size_t bytes() const { return factors() + rows * sizeof(float); }
};

// If true, the fragments of a whole segment stay in registers, so that they are loaded once for all tiles.
template <PackedFormat F>
inline constexpr bool kHoldsSegment = F::kBlocks <= 4 && !std::is_void_v<typename F::Half>;

// A single row of x lies in shared memory. Lanes 0-3 have column 0 of B, its high parts, lanes 4-7 column 1, its low
// parts, and the other columns are zero. Where a format spreads groups (kSpread), the next lanes have the next group.
template <PackedFormat F>
class SharedRow {
 public:
  static constexpr int kRows = 1;
  static constexpr bool kSpreads = F::kSpread > 1, kPaired = true;
  __device__ SharedRow(const uint8_t* memory, const float* sums) : memory_(memory), sums_(sums) {
    for (uint4& f : held_) f = {0, 0, 0, 0};
  }
  __device__ __forceinline__ void seek(uint32_t segment) {
    segment_ = segment;
    if constexpr (kHeld != 0) {
      const uint32_t from = shared_address(memory_) + octet_offset(segment * F::kBlocks);
#pragma unroll
      for (uint32_t b = 0; b < kHeld; ++b) {
        // The other lanes' zeros stay where they are.
        load_shared_if_equal(held_[b], from + 128 * b, lane_id() / 8, owner(b));
      }
    }
  }
  __device__ __forceinline__ uint4 fragment(uint32_t block, int) const {
    if constexpr (kHeld != 0) return held_[block];
    uint4 v{};
    if (lane_id() / 8 == owner(block)) {
      v = *reinterpret_cast<const uint4*>(memory_ + octet_offset(segment_ * F::kBlocks + block));
    }
    return v;
  }
  __device__ __forceinline__ float sum(uint32_t group, int) const {
    return sums_[segment_ * (F::kSegmentK / kGroupDivisor<F>)+group];
  }
  __device__ __forceinline__ float2 pair(int, uint32_t k) const {
    return *reinterpret_cast<const float2*>(memory_ + (segment_ * F::kSegmentK + k) * 4);
  }

 private:
  static constexpr uint32_t kHeld = kHoldsSegment<F> ? F::kBlocks : 0;
  static __device__ __forceinline__ uint32_t octet_offset(uint32_t block) {
    return block * 128 + lane_id() / 4 % 2 * 64 + lane_id() % 4 * 16;
  }
  // Returns the lane / 8 that holds a block; with groups of 16, the lane's k of it.
  static __device__ __forceinline__ uint32_t owner(uint32_t block) {
    if constexpr (F::kSpread == 1) {
      return 0;
    } else if constexpr (F::kGroup == 16) {
      return lane_id() % 4 / 2;
    } else {
      return block * 32 / F::kGroup % F::kSpread;
    }
  }

  const uint8_t* memory_;
  const float* sums_;  // by group
  uint32_t segment_ = 0;
  uint4 held_[kHeld + !kHeld];  // by block of 32 k; at least one, which is never read
};

// A single row of digits lies in shared memory (DigitRow of formats.cuh): [64 k][digit][lane % 4][16 bytes], of which
// three of four digits are there. The sums of groups are those of the integers.
template <PackedFormat F>
class SharedDigits {
 public:
  static constexpr int kRows = 1;
  __device__ SharedDigits(const uint8_t* memory, const float* sums) : memory_(memory), sums_(sums) {
    for (uint4& f : held_) f = {0, 0, 0, 0};
  }
  __device__ __forceinline__ void seek(uint32_t segment) {
    segment_ = segment;
    const uint32_t from = shared_address(memory_) + segment * (kBundles * 256) + lane_id() % 16 * 16;
#pragma unroll
    for (uint32_t b = 0; b < kBundles; ++b) {
      // The other lanes' zeros stay where they are.
      load_shared_if_equal(held_[b], from + 256 * b, lane_id() / 16, F::kGroup < 64 ? lane_id() / 16 : owner(b));
    }
  }
  __device__ __forceinline__ uint4 digits(uint32_t bundle) const {
    const uint4& d = held_[bundle];
    if constexpr (F::kGroup >= 64) return d;
    const bool first = lane_id() < 16;  // the lane has the first group of 32 k
    return {first ? d.x : 0, first ? 0 : d.y, first ? d.z : 0, first ? 0 : d.w};
  }
  __device__ __forceinline__ float sum(uint32_t group) const { return sums_[segment_ * F::kGroups + group]; }

 private:
  static constexpr uint32_t kBundles = F::kBlocks / 2;
  // Returns the lane / 16 that holds 64 k.
  static __device__ __forceinline__ uint32_t owner(uint32_t bundle) { return bundle * 64 / F::kGroup % F::kSpread; }

  const uint8_t* memory_;
  const float* sums_;  // by group
  uint32_t segment_ = 0;
  uint4 held_[kBundles];
};

// This reads kRowBlocks row blocks of x from PreparedRows.
template <PackedFormat F, int kRowBlocks, bool kHasPairs = true>
class GlobalRows {
 public:
  static constexpr int kRows = (kHasPairs ? 4 : 8) * kRowBlocks;
  static constexpr bool kSpreads = false, kPaired = kHasPairs;
  __device__ GlobalRows(const uint8_t* prepared, const PreparedRows<F>& rows)
      : from_(prepared), sums_(reinterpret_cast<const float*>(prepared + rows.sums())), rows_(rows) {}
  __device__ __forceinline__ void seek(uint32_t segment) {
    segment_ = segment;
    if constexpr (kHeld != 0) {
#pragma unroll
      for (uint32_t b = 0; b < kHeld; ++b) held_[b] = load(b, 0);
      if constexpr (kHeldSums != 0) {
#pragma unroll
        for (uint32_t g = 0; g < kHeldSums; ++g) held_sums_[g] = load_sum(g, 0);
      }
    }
  }
  __device__ __forceinline__ uint4 fragment(uint32_t block, int row_block) const {
    if constexpr (kHeld != 0) return held_[block];
    return load(block, row_block);
  }
  __device__ __forceinline__ auto sum(uint32_t group, int row_block) const {
    if constexpr (kPaired) {
      return sums_[(4 * row_block + lane_id() % 4) * rows_.groups + segment_ * kGroups + group];
    } else if constexpr (kHeldSums != 0) {
      return held_sums_[group];
    } else {
      return load_sum(group, row_block);
    }
  }
  __device__ __forceinline__ float2 pair(int row, uint32_t k) const {
    return *reinterpret_cast<const float2*>(
        from_ + (size_t{static_cast<uint32_t>(row)} * rows_.padded + segment_ * F::kSegmentK + k) * 4);
  }

 private:
  static constexpr uint32_t kHeld = kRowBlocks == 1 && kHoldsSegment<F> ? F::kBlocks : 0;
  static constexpr uint32_t kGroups = F::kSegmentK / kGroupDivisor<F>;  // a segment has so many
  static constexpr uint32_t kHeldSums = !kPaired && kHeld != 0 && F::kGroup != 0 ? kGroups : 0;
  __device__ __forceinline__ float2 load_sum(uint32_t group, int row_block) const {
    const uint32_t row = 8 * static_cast<uint32_t>(row_block) + 2 * (lane_id() % 4);
    return *reinterpret_cast<const float2*>(sums_ + (segment_ * kGroups + group) * rows_.rows + row);
  }
  __device__ __forceinline__ uint4 load(uint32_t block, int row_block) const {
    const uint32_t row_blocks_before = (segment_ * F::kBlocks + block) * kRowBlocks + static_cast<uint32_t>(row_block);
    return reinterpret_cast<const uint4*>(from_)[row_blocks_before * 32 + lane_id()];
  }

  const uint8_t* from_;
  const float* sums_;
  PreparedRows<F> rows_;
  uint32_t segment_ = 0;
  uint4 held_[kHeld + !kHeld];                // by block of 32 k; at least one, which is never read
  float2 held_sums_[kHeldSums + !kHeldSums];  // by group; the same
};

}  // namespace tenon::cuda
