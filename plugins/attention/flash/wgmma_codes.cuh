// This is the producer of a block of cuda_wgmma.cu over codes: a warpgroup that makes fp16 of them, once for the
// block's 128 rows. The copy engine cannot, so a thread's asynchronous copies bring its own pieces of 16 bytes two
// tiles ahead, and it writes the elements, scaled, where the copy engine would have: in the 128-byte swizzle.
//
// A tile takes a step. The steps are in the order in which consumers wait for tiles: K0, K1, V0, K2, V1, ...
//
// Example, int8 with D = 128: a row has 8 pieces, and a thread has 8 of a tile's. Thread 5 has piece 1 of rows 1, 33,
// 65 and 97 in the first 64 columns, and the same in the others.
#pragma once

#include "codes.cuh"
#include "tenon/cuda/warp.cuh"
#include "wgmma_block.cuh"

namespace tenon::flash::wgmma {

template <uint32_t D, Codec C>
class CodedProducer {
 public:
  __device__ explicit CodedProducer(const BlockWork<D, C>& block)
      : b_(block), kv_head_(blockIdx.x / block.a.group), steps_(2 * block.walk.count) {
    pages_ = block.p.pages + size_t{block.t.slot} * block.a.kv.columns;
    shift_ = 31 - static_cast<uint32_t>(__clz(static_cast<int>(block.a.kv.page_cells)));
    end_ = block.t.end;
    keys_ = source(Side::kKeys);
    values_ = source(Side::kValues);
    const auto whole = [&](const cuda::KvPlane& plane, const Source& from) {
      if (kKeysByChannel<C> && plane.group != 0) return true;  // its rows of zeros and steps are copied in any case
      const uint64_t odd = reinterpret_cast<uintptr_t>(from.scale) | static_cast<uint64_t>(plane.scale_page);
      return plane.scale_cell == sizeof(__half) && odd % 16 == 0;
    };
    whole_ = (1u << shift_) >= kTileKeys && whole(block.a.kv.k, keys_) && whole(block.a.kv.v, values_);
  }

  __device__ void run() const {
    fetch(0);
    fetch(1);
    for (uint32_t s = 0; s < steps_; ++s) {
      fetch(s + kAhead);
      cuda::wait_copies<kAhead>();
      // A step's pieces are the thread's own, and its scales are everybody's: those that the next
      // fetch() will replace were read before this.
      cuda::named_sync(kProducer, kWarpgroupThreads);
      const Tile t = tile_of(s);
      b_.s.empty(t.side, stage_of(t.number)).wait(parity_of(t.number) ^ 1);
      convert(s, t);
      cuda::fence_async();
      __syncwarp();
      if (cuda::lane_id() == 0) b_.s.full(t.side, stage_of(t.number)).arrive();
    }
  }

 private:
  using Shared = Layout<D, C>;
  static constexpr uint32_t kAhead = Shared::kRawStages - 1;
  static_assert(kAhead == 2 && Shared::kScaleStages >= kAhead + 2);
  // A row has kOfSlice pieces in each slice of 64 columns, and kSlices slices. A thread has kOwn pieces of a tile.
  static constexpr uint32_t kOfSlice = kSwizzledColumns / (8 * C::kEights), kSlices = Shared::kSlices;
  static constexpr uint32_t kRowsAtOnce = kWarpgroupThreads / kOfSlice, kOwn = kOfSlice * kSlices;
  static constexpr uint32_t kPassBytes = kWarpgroupThreads * 16;  // all threads have so many
  static_assert(kTileKeys == kWarpgroupThreads);

  struct Tile {
    Side side;
    uint32_t number;
  };
  // The thread has this first piece in a tile that begins at token 0, and the scale of that token. Where a sequence has
  // more than one page, they are of the first one.
  struct Source {
    const char *piece, *scale;
  };
  __device__ Source source(Side side) const {
    const cuda::KvPlane& plane = plane_of(b_.a, side);
    const bool values = side == Side::kValues;
    const int64_t page = b_.a.kv.columns == 1 ? pages_[0] : 0;
    return {static_cast<const char*>(values ? b_.p.values : b_.p.keys) + kv_head_ * plane.head + page * plane.page +
                row_of(0) * plane.cell + piece() * 16,
            static_cast<const char*>(values ? b_.p.value_scales : b_.p.key_scales) + kv_head_ * plane.scale_head +
                page * plane.scale_page};
  }
  // It returns by value, since a reference to one of two would keep both in local memory.
  __device__ Source source_of(Side side) const {
    const bool values = side == Side::kValues;
    return {values ? values_.piece : keys_.piece, values ? values_.scale : keys_.scale};
  }
  // Returns a token's distance from the source's.
  __device__ __forceinline__ int64_t distance(uint32_t token, int64_t page, int64_t cell) const {
    if (b_.a.kv.columns == 1) return token * cell;
    return pages_[token >> shift_] * page + inside(token) * cell;
  }
  __device__ Tile tile_of(uint32_t s) const {
    if (s == 0) return {Side::kKeys, 0};
    if (s + 1 == steps_) return {Side::kValues, s / 2};
    return s % 2 != 0 ? Tile{Side::kKeys, (s + 1) / 2} : Tile{Side::kValues, s / 2 - 1};
  }
  // These return the row of the thread's n-th piece, its slice, and its number in that.
  static __device__ uint32_t row_of(uint32_t n) { return threadIdx.x / kOfSlice + n / kSlices * kRowsAtOnce; }
  static __device__ uint32_t slice_of(uint32_t n) { return n % kSlices; }
  static __device__ uint32_t piece() { return threadIdx.x % kOfSlice; }
  __device__ uint32_t raw(uint32_t s, uint32_t n) const {
    return b_.s.raw(s % Shared::kRawStages) + n * kPassBytes + threadIdx.x * 16;
  }
  __device__ uint32_t inside(uint32_t token) const { return token & ((1u << shift_) - 1); }

  // Begins the copies of a step, or an empty batch if there is no such step. Tokens after the last are zeros.
  __device__ __forceinline__ void fetch(uint32_t s) const {
    if (s < steps_) {
      const Tile t = tile_of(s);
      const cuda::KvPlane& plane = plane_of(b_.a, t.side);
      const uint32_t first = b_.walk.token(t.number), to = raw(s, 0);
      const char* from = source_of(t.side).piece;
      const uint32_t scales = b_.s.scales(s % Shared::kScaleStages);
      const bool by_channel = kKeysByChannel<C> && t.side == Side::kKeys;
      if (by_channel) fetch_channels(scales, first);
      if (first + kTileKeys <= end_ && whole_) {
        if (!by_channel && threadIdx.x < kTileKeys * sizeof(__half) / 16) {
          cuda::copy_async(scales + threadIdx.x * 16, source_of(t.side).scale + threadIdx.x * 16 +
                                                          distance(first, plane.scale_page, plane.scale_cell));
        }
        from += distance(first, plane.page, plane.cell);
#pragma unroll
        for (uint32_t n = 0; n < kOwn; ++n) {
          cuda::copy_async(to + n * kPassBytes, from + slice_of(n) * kOfSlice * 16);
          if (slice_of(n) + 1 == kSlices) from += kRowsAtOnce * plane.cell;
        }
      } else {
        if (!by_channel) {
          cuda::store_shared_2(scales + threadIdx.x * sizeof(__half),
                               __half_as_ushort(scale_of(t.side, first + threadIdx.x)));
        }
#pragma unroll 1
        for (uint32_t n = 0; n < kOwn; ++n) {
          const uint32_t token = first + row_of(n);
          if (token >= end_) {
            cuda::store_zeros(to + n * kPassBytes);
          } else {
            cuda::copy_async(
                to + n * kPassBytes,
                from - row_of(0) * plane.cell + distance(token, plane.page, plane.cell) + slice_of(n) * kOfSlice * 16);
          }
        }
      }
    }
    cuda::commit_copies();
  }
  // Begins the copies of the zeros and the steps of a tile's groups. A group after the last token has zeros.
  __device__ __forceinline__ void fetch_channels(uint32_t to, uint32_t first) const {
    if constexpr (kKeysByChannel<C>) {
      constexpr uint32_t kPieces = Shared::Raw::kGroupBytes / 16;  // a group has so many
      static_assert(Shared::Raw::kGroups * kPieces <= kWarpgroupThreads);
      const cuda::KvPlane& plane = b_.a.kv.k;
      const uint32_t shift = 31 - static_cast<uint32_t>(__clz(static_cast<int>(plane.group)));
      const uint32_t group = threadIdx.x / kPieces, piece = threadIdx.x % kPieces, token = first + (group << shift);
      if (group << shift >= kTileKeys) return;
      if (token >= end_) return cuda::store_zeros(to + threadIdx.x * 16);
      const int64_t page = b_.a.kv.columns == 1 ? 0 : pages_[token >> shift_] * plane.scale_page;
      cuda::copy_async(to + threadIdx.x * 16,
                       keys_.scale + page + (inside(token) >> shift) * plane.scale_cell + piece * 16);
    }
  }
  __device__ __forceinline__ __half scale_of(Side side, uint32_t token) const {
    if (token >= end_) return __ushort_as_half(0);
    const cuda::KvPlane& plane = plane_of(b_.a, side);
    return *reinterpret_cast<const __half*>(source_of(side).scale +
                                            distance(token, plane.scale_page, plane.scale_cell));
  }

  // Does for a tile of keys by channel what convert() does.
  __device__ __forceinline__ void convert_by_channel(uint32_t s, const Tile& t) const {
    const uint32_t tile = b_.s.tile(Side::kKeys, stage_of(t.number)), from = raw(s, 0);
    const uint32_t shift = 31 - static_cast<uint32_t>(__clz(static_cast<int>(b_.a.kv.k.group)));
#pragma unroll 1
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t row = row_of(n), eight_of_slice = piece() * C::kEights;
      const uint32_t to = tile + slice_of(n) * kSliceBytes + row * kSwizzledRowBytes;
      const uint32_t zeros = b_.s.scales(s % Shared::kScaleStages) + (row >> shift) * Shared::Raw::kGroupBytes +
                             slice_of(n) * kSwizzledRowBytes + eight_of_slice * 16;
      unpack_by_channel(
          cuda::load_shared(from + n * kPassBytes),
          [&](uint32_t i) {
            return EightChannels{cuda::load_shared(zeros + i * 16),
                                 cuda::load_shared(zeros + D * sizeof(__half) + i * 16)};
          },
          [&](uint32_t i, const uint4& eight) {
            cuda::store_shared(to + ((eight_of_slice + i) ^ row % kSwizzlePeriod) * 16, eight);
          });
    }
  }
  // Writes the thread's pieces of a step's tile as fp16.
  __device__ __forceinline__ void convert(uint32_t s, const Tile& t) const {
    if constexpr (kKeysByChannel<C>) {
      if (t.side == Side::kKeys) return convert_by_channel(s, t);
    }
    // Rows of the thread's pieces are the same in the period of the swizzle, and so are its places in them.
    static_assert(kRowsAtOnce % kSwizzlePeriod == 0);
    const uint32_t tile = b_.s.tile(t.side, stage_of(t.number)) + row_of(0) * kSwizzledRowBytes, from = raw(s, 0);
    const uint32_t scales = b_.s.scales(s % Shared::kScaleStages) + row_of(0) * sizeof(__half);
    // Some pieces are loaded before the first of them is stored: no load passes a store.
    constexpr uint32_t kAtOnce = kOwn < 4 ? kOwn : 4;
#pragma unroll
    for (uint32_t first = 0; first < kOwn; first += kAtOnce) {
      uint4 codes[kAtOnce];
      uint32_t scale[kAtOnce];
#pragma unroll
      for (uint32_t n = 0; n < kAtOnce; ++n) {
        codes[n] = cuda::load_shared(from + (first + n) * kPassBytes);
        scale[n] = cuda::load_shared_2(scales + (first + n) / kSlices * kRowsAtOnce * sizeof(__half));
      }
#pragma unroll
      for (uint32_t n = 0; n < kAtOnce; ++n) {
        const uint32_t to =
            tile + slice_of(first + n) * kSliceBytes + (first + n) / kSlices * kRowsAtOnce * kSwizzledRowBytes;
        unpack_scaled<C>(
            codes[n], __ushort_as_half(static_cast<uint16_t>(scale[n])), [&](uint32_t i, const uint4& eight) {
              cuda::store_shared(to + ((piece() * C::kEights + i) ^ row_of(0) % kSwizzlePeriod) * 16, eight);
            });
      }
    }
  }

  const BlockWork<D, C>& b_;
  uint32_t kv_head_, steps_;
  const int32_t* pages_;
  uint32_t shift_, end_;
  Source keys_, values_;
  bool whole_;  // A page has all of a tile of 128 tokens, and its scales can be copied.
};

}  // namespace tenon::flash::wgmma
