// The end of a product of tile_gemm.cuh: what becomes of its sums once all of K is in them.
#pragma once

#include <algorithm>

#include "tenon/cuda/tile_gemm_rows.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda::detail {

inline constexpr uint32_t kSumBarrier = 1;  // all that multiply meet there

// Two lanes, so far apart, have neighbouring columns, and exchange what they have of each other's row of two. Returns the
// word that this lane has to store: of the first row, or of the second one if it is odd.
template <HalfType H>
__device__ __forceinline__ uint32_t exchanged_halves(float of_row, float of_next, bool odd, int apart) {
  const float other = __shfl_xor_sync(~0U, odd ? of_row : of_next, apart);
  return odd ? to_halves<H>(other, of_next) : to_halves<H>(of_row, other);
}

// A warp finishes its sums of a tile by 8 * kGroups rows of a band, from a multiple of eight on. It has 16 packed rows, a lane
// rows g and g + 8 of them, g = lane / 4; of each eight rows of x it has two.
template <PackedFormat F, int N, uint32_t kGroups>
class FinishedRows {
  static constexpr uint32_t kSums = 4 * kGroups, kRows = 2 * kGroups;  // a lane has so many sums, and rows of x
  static constexpr bool kPassesNorms = RowNumbers<N>::kForNorms, kWhole = kGroups * 8 == N;

 public:
  using Block = TileGemmBlock<F, N>;
  using Shape = TileGemmShape<N>;
  // The block finishes rows [first, end) of its band, of which so many are live.
  struct Rows {
    uint32_t first, end, live;
  };
  __device__ __forceinline__ FinishedRows(const Block& b, const NumbersOfRows<Block>& numbers, RowNumbers<N>& shared,
                                          const Rows& rows)
      : b_(b),
        numbers_(numbers),
        shared_(shared),
        warp_(warp_id()),
        first_(rows.first),
        end_(rows.end),
        live_(min(rows.live, rows.end)) {}

  // Makes y of the sums of a panel: sums of eight rows are [packed row g or g + 8][of the lane's two rows].
  __device__ __forceinline__ void finish(uint32_t panel, float (&sums)[kSums]) {
    const uint32_t tile = (panel * kClusterBlocks + b_.rank) * kPanelTiles + warp_,
                   packed_row = tile * kTileRows + lane_id() / 4;
    const bool there = tile < b_.tiles;
    const uint32_t column[2] = {there ? b_.a.map.column(packed_row) : UINT32_MAX,
                                there ? b_.a.map.column(packed_row + 8) : UINT32_MAX};
    scale(packed_row, column, sums);
    if (b_.a.silu != 0) {
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i) sum(sums, i, 0) = silu(sum(sums, i, 0)) * sum(sums, i, 1);
      if (b_.a.y_tiled != Tiled::kNo) {
        if (there) store_tiled(tile, sums);
      } else {
        store(0, column[0], sums);
      }
      return;
    }
    // All of the addend is loaded before the first store, which no load could pass.
    if (b_.p.addend != nullptr) {
      add(0, column[0], sums);
      add(1, column[1], sums);
    }
    store(0, column[0], sums);
    store(1, column[1], sums);
    if constexpr (kPassesNorms) {
      if (b_.a.normed != Tiled::kNo) {
        if (there) store_normed(tile, column, sums);
        sum_squares(panel * kClusterBlocks + b_.rank, there, sums);
      }
    }
  }

 private:
  // row(i) is the number in the band of the lane's i-th row of x; sum(sums, i, half) is its sum for packed row g (0) or
  // g + 8 (1).
  __device__ __forceinline__ uint32_t row(uint32_t i) const { return first_ + i / 2 * 8 + 2 * (lane_id() % 4) + i % 2; }
  static __device__ __forceinline__ float& sum(float (&sums)[kSums], uint32_t i, uint32_t half) {
    return sums[i / 2 * 4 + half * 2 + i % 2];
  }
  // Says whether the row is stored: one that is not live may be, unless it is another block's.
  __device__ __forceinline__ bool is_stored(uint32_t i) const { return live_ > 0 && (kWhole || row(i) < end_); }
  __device__ __forceinline__ void scale(uint32_t packed_row, const uint32_t (&column)[2], float (&sums)[kSums]) const {
    float scale[2] = {1, 1}, bias[2] = {};
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      if (column[half] == UINT32_MAX) continue;
      if constexpr (F::kRowScales) scale[half] = b_.p.scales[packed_row + 8 * half];
      if (b_.p.bias != nullptr) bias[half] = b_.p.bias[column[half]];
    }
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      const float factor = row(i) >= live_ ? 0 : shared_.factor[row(i)];
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half)
        sum(sums, i, half) = fmaf(sum(sums, i, half), factor * scale[half], bias[half]);
    }
  }

  // It has no branch: a division has one, which the next output would wait for. Where exp(-v) is infinite, it is 0.
  static __device__ __forceinline__ float silu(float v) { return __fdividef(v, 1 + expf(-v)); }
  // Calls f with a pointer to the place of each of the lane's live rows in a matrix, and the row's i.
  template <class T, class Use>
  __device__ __forceinline__ void each_row(T* matrix, int64_t stride, uint32_t column, const Use& use) const {
    if (column == UINT32_MAX) return;
    T* at = matrix + (b_.band * N + row(0)) * stride + column;
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      if (row(i) < live_) use(at, i);
      at += (i % 2 == 0 ? 1 : 7) * stride;
    }
  }
  __device__ __forceinline__ void add(uint32_t half, uint32_t column, float (&sums)[kSums]) const {
    each_row(b_.p.addend, b_.a.addend_stride, column,
             [&](const float* addend, uint32_t i) { sum(sums, i, half) += *addend; });
  }
  __device__ __forceinline__ void store(uint32_t half, uint32_t column, float (&sums)[kSums]) const {
    each_row(b_.p.y, b_.a.y_stride, column, [&](float* y, uint32_t i) { *y = sum(sums, i, half); });
  }
  static __device__ __forceinline__ float saturated(float v) { return cuda::saturated<typename F::Half>(v); }
  // A tile has eight columns of y, which are a word of each of four octets (tenon/sdk/linked_rows.h).
  __device__ __forceinline__ void store_tiled(uint32_t tile, float (&sums)[kSums]) const {
    const uint32_t g = lane_id() / 4, odd = g % 2, octet = tile / 4 * 4 + g / 2;
    const TiledRows rows(b_.p.y, b_.a.rows, b_.a.map.columns / 2);
    const uint32_t first = b_.band * N + row(odd);
    uint32_t in_band = rows.in_band(first);
    uint8_t* at = rows.at(first, octet) + tile % 4 * 4;
    const float up = octet_scale(b_.a.y_tiled, octet);
#pragma unroll
    for (uint32_t i = 0; i < kRows; i += 2) {
      const uint32_t word = exchanged_halves<typename F::Half>(saturated(sum(sums, i, 0) * up),
                                                               saturated(sum(sums, i + 1, 0) * up), odd != 0, 4);
      if (is_stored(i + odd)) *reinterpret_cast<uint32_t*>(at) = word;
      rows.advance(at, in_band);
    }
  }
  __device__ __forceinline__ float scale_of(uint32_t row) const {
    return numbers_.scale(kWhole ? row : min(row, uint32_t{N} - 1));
  }
  // Leaves the rows of a tile for the norm after the product. A tile has sixteen columns of y, which are two words of
  // each of four octets.
  __device__ __forceinline__ void store_normed(uint32_t tile, const uint32_t (&column)[2], float (&sums)[kSums]) const {
    const uint32_t g = lane_id() / 4, odd = g % 2, octet = tile / 2 * 4 + g / 2, columns = b_.a.map.columns;
    const TiledRows rows(b_.p.normed, b_.a.rows, columns + sdk::number_columns(columns, N));
    const uint32_t first = b_.band * N + row(odd);
    uint32_t in_band = rows.in_band(first);
    uint8_t* at = rows.at(first, octet) + tile % 2 * 8;
    const float up = octet_scale(b_.a.normed, octet);
    const float weight[2] = {up * b_.p.normed_weights[column[0]], up * b_.p.normed_weights[column[1]]};
#pragma unroll
    for (uint32_t i = 0; i < kRows; i += 2) {
      const float scale[2] = {scale_of(row(i)), scale_of(row(i + 1))};
      uint32_t word[2];
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        word[half] = exchanged_halves<typename F::Half>(saturated(sum(sums, i, half) * weight[half] * scale[0]),
                                                        saturated(sum(sums, i + 1, half) * weight[half] * scale[1]),
                                                        odd != 0, 4);
      }
      if (is_stored(i + odd)) *reinterpret_cast<uint2*>(at) = {word[0], word[1]};
      rows.advance(at, in_band);
    }
  }
  // Leaves the sums of the squares of the block's columns, which are the `part`-th of each row; if they are not `there`,
  // the warp adds nothing to them.
  __device__ __forceinline__ void sum_squares(uint32_t part, bool there, float (&sums)[kSums]) const {
    constexpr uint32_t kAtOnce = std::min(RowNumbers<N>::kAtOnce, 8 * kGroups), kLaneRows = kAtOnce / 4;
    constexpr uint32_t kSummedWarps = sdk::summed_columns(N) / kTileRows, kParts = kPanelTiles / kSummedWarps;
    const uint32_t columns = b_.a.map.columns, own_part = threadIdx.x / kAtOnce, number_of_row = threadIdx.x % kAtOnce;
    const TiledRows rows(b_.p.normed, b_.a.rows, columns + sdk::number_columns(columns, N));
#pragma unroll
    for (uint32_t turn = 0; turn < 8 * kGroups / kAtOnce; ++turn) {
#pragma unroll
      for (uint32_t i = 0; i < kLaneRows; ++i) {
        const uint32_t mine = turn * kLaneRows + i;
        float square =
            there ? fmaf(sum(sums, mine, 0), sum(sums, mine, 0), sum(sums, mine, 1) * sum(sums, mine, 1)) : 0;
        square = column_sum(square);
        if (lane_id() < 4) shared_.square[warp_][(row(mine) - first_) % kAtOnce] = square;
      }
      named_sync(kSumBarrier, Shape::kMultiplying);
      const uint32_t own = first_ + turn * kAtOnce + number_of_row, all = columns / sdk::summed_columns(N);
      if (own_part < kParts && own < live_ && kParts * part + own_part < all) {
        float square = 0;
        for (uint32_t w = 0; w < kSummedWarps; ++w) {
          square += shared_.square[own_part * kSummedWarps + w][number_of_row];
        }
        const auto number = [&](uint32_t n) { return rows.number(b_.band * N + own, columns, n); };
        *number(kParts * part + own_part) = square;
        if (part + own_part == 0) *number(all) = 1 / numbers_.scale(own);
      }
      named_sync(kSumBarrier, Shape::kMultiplying);
    }
  }

  const Block& b_;
  const NumbersOfRows<Block>& numbers_;
  RowNumbers<N>& shared_;
  const uint32_t warp_, first_, end_, live_;
};

}  // namespace tenon::cuda::detail
