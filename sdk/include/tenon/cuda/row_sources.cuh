// Prepared rows of x (row_prologue.cuh) as what a format multiplies (formats.cuh): one row in shared memory, or several
// in device memory. seek(segment), then of that segment: fragment(block, n), the B fragment of 32 k and of rows 4 n to 4 n
// + 3; sum(group, n), of the lane's row 4 n + lane % 4; pair(row, k), two f32.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tenon/cuda/row_prologue.cuh"

namespace tenon::cuda {

// Several rows of x as fragments in device memory, 4 rows (8 columns of B) a block. [32 k][block][lane][16 bytes]; f32
// formats: [row][k]. Then the groups' sums, [row][group], a RowInfo for each warp's part of each row, [row][warp], and
// the norm's factors.
template <class F>
struct PreparedRows {
  uint32_t padded, groups, rows;  // rows: a multiple of 4

  __host__ __device__ PreparedRows(uint32_t k, uint32_t row_blocks)
      : padded(segments_of<F>(k) * F::kSegmentK),
        groups(F::kGroup != 0 ? padded / (F::kGroup + !F::kGroup) : 0),
        rows(4 * row_blocks) {}
  __host__ __device__ size_t sums() const { return size_t{padded} * rows * 4; }
  __host__ __device__ size_t info() const { return sums() + size_t{groups} * rows * 4; }
  __host__ __device__ size_t factors() const { return info() + rows * kMatvecWarps * sizeof(RowInfo); }
  __host__ __device__ size_t bytes() const { return factors() + rows * sizeof(float); }
};

// One row of x in shared memory, as a source of B fragments: lanes 0-3 have the high parts (column 0), lanes 4-7 the
// low ones (column 1), the others' columns are zero; where formats spread groups of k, the next lanes have the next
// group. Of short segments it is loaded once for all tiles of a group.
template <class F>
class SharedRow {
 public:
  static constexpr int kRows = 1;
  static constexpr bool kSpreads = F::kSpread > 1;
  __device__ SharedRow(const uint8_t* stage, const float* sums) : stage_(stage), sums_(sums) {
    for (uint4& f : held_) f = {0, 0, 0, 0};
  }
  __device__ __forceinline__ void seek(uint32_t segment) {
    segment_ = segment;
    if constexpr (kHeld != 0) {
      const uint32_t from = shared_address(stage_) + place(segment * F::kBlocks);
#pragma unroll
      for (uint32_t b = 0; b < kHeld; ++b) load_held(held_[b], from + 128 * b, spread(b));
    }
  }
  __device__ __forceinline__ uint4 fragment(uint32_t block, int) const {
    if constexpr (kHeld != 0) return held_[block];
    uint4 v{};
    if (lane_id() / 8 == spread(block))
      v = *reinterpret_cast<const uint4*>(stage_ + place(segment_ * F::kBlocks + block));
    return v;
  }
  __device__ __forceinline__ float sum(uint32_t group, int) const { return sums_[segment_ * kGroups + group]; }
  __device__ __forceinline__ float2 pair(int, uint32_t k) const {
    return *reinterpret_cast<const float2*>(stage_ + (segment_ * F::kSegmentK + k) * 4);
  }

 private:
  static constexpr uint32_t kGroups = F::kGroup != 0 ? F::kSegmentK / (F::kGroup + !F::kGroup) : 1;
  static constexpr uint32_t kHeld = F::kBlocks <= 4 && !std::is_void_v<typename F::Half> ? F::kBlocks : 0;
  static __device__ __forceinline__ uint32_t place(uint32_t block) {
    return block * 128 + lane_id() / 4 % 2 * 64 + lane_id() % 4 * 16;
  }
  // Which lanes / 8 hold a block (of groups of 16: the lane's k of it).
  static __device__ __forceinline__ uint32_t spread(uint32_t block) {
    if constexpr (F::kSpread == 1) return 0;
    if constexpr (F::kGroup == 16) return lane_id() % 4 / 2;
    return block * 32 / (F::kGroup + !F::kGroup) % F::kSpread;
  }
  // Leaves the other lanes' zeros where they are.
  static __device__ __forceinline__ void load_held(uint4& v, uint32_t address, uint32_t lanes) {
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, %5, %6;\n@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "r"(address), "r"(lane_id() / 8), "r"(lanes));
  }

  const uint8_t* stage_;
  const float* sums_;
  uint32_t segment_ = 0;
  uint4 held_[kHeld + !kHeld];
};

// 4 N rows of x from PreparedRows. With N = 1 a short segment's fragments stay in registers for all tiles of
// the group.
template <class F, int N>
class GlobalRows {
 public:
  static constexpr int kRows = 4 * N;
  static constexpr bool kSpreads = false;
  __device__ GlobalRows(const uint8_t* prepared, const PreparedRows<F>& rows)
      : from_(prepared), sums_(reinterpret_cast<const float*>(prepared + rows.sums())), rows_(rows) {}
  __device__ __forceinline__ void seek(uint32_t segment) {
    segment_ = segment;
    if constexpr (kHeld != 0) {
#pragma unroll
      for (uint32_t b = 0; b < kHeld; ++b) held_[b] = load(b, 0);
    }
  }
  __device__ __forceinline__ uint4 fragment(uint32_t block, int n) const {
    if constexpr (kHeld != 0) return held_[block];
    return load(block, n);
  }
  __device__ __forceinline__ float sum(uint32_t group, int n) const {
    constexpr uint32_t kGroups = F::kGroup != 0 ? F::kSegmentK / (F::kGroup + !F::kGroup) : 1;
    return sums_[(4 * n + lane_id() % 4) * rows_.groups + segment_ * kGroups + group];
  }
  __device__ __forceinline__ float2 pair(int row, uint32_t k) const {
    return *reinterpret_cast<const float2*>(
        from_ + (size_t{static_cast<uint32_t>(row)} * rows_.padded + segment_ * F::kSegmentK + k) * 4);
  }

 private:
  static constexpr uint32_t kHeld = N == 1 && F::kBlocks <= 4 && !std::is_void_v<typename F::Half> ? F::kBlocks : 0;
  __device__ __forceinline__ uint4 load(uint32_t block, int n) const {
    const uint32_t index = ((segment_ * F::kBlocks + block) * N + static_cast<uint32_t>(n)) * 32 + lane_id();
    return reinterpret_cast<const uint4*>(from_)[index];
  }

  const uint8_t* from_;
  const float* sums_;
  PreparedRows<F> rows_;
  uint32_t segment_ = 0;
  uint4 held_[kHeld + !kHeld];
};

}  // namespace tenon::cuda
