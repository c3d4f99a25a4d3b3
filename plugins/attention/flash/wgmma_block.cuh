// A block of cuda_wgmma.cu shares these: its shared memory, its walk over the
// positions, and the producer that fills the rings.
#pragma once

#include <cuda.h>

#include "codes.cuh"
#include "cuda_ops.h"
#include "head.cuh"
#include "prefill.cuh"
#include "tenon/cuda/barrier.cuh"
#include "tenon/cuda/warpgroup.cuh"

namespace tenon::flash::wgmma {

using cuda::Barrier;
using cuda::warpgroup::kSwizzledColumns;
using cuda::warpgroup::kSwizzledRowBytes;
using cuda::warpgroup::kSwizzlePeriod;

inline constexpr uint32_t kRows = kWgmmaTileRows;        // a tile of queries has so many
inline constexpr uint32_t kTileKeys = 128, kStages = 2;  // a tile of keys and a ring have so many
inline constexpr uint32_t kConsumers = 2, kWarpgroupThreads = 128, kThreads = (kConsumers + 1) * kWarpgroupThreads;
inline constexpr uint32_t kConsumerRows = kRows / kConsumers;
static_assert(kConsumerRows == 64);
// A tile is (rows 128, D) in slices of 64 columns side by side, as the copy engine writes them in the 128-byte swizzle.
inline constexpr uint32_t kSliceBytes = kTileKeys * kSwizzledRowBytes;
static_assert(kRows == kTileKeys);
// Every consumer has one of kTurn and one of kConsumer.
enum NamedBarrier {
  kTurn = 1,
  kConsumer = kTurn + kConsumers,
  kProducer = kConsumer + kConsumers,
  kTileDone,
  kTileFound
};

// The copy engine reads these tensors.
struct Maps {
  CUtensorMap q, k, v;
};

// Here lie tiles of codes that become tiles of fp16, and their tokens' scales, or the zeros and the steps of a tile of
// keys by channel, group after group. C is void where the copy engine brings what is multiplied.
template <uint32_t D, class C>
struct RawTiles {
  static constexpr uint32_t kStages = 3, kBytes = kTileKeys * D / C::kEights * 2;
  static constexpr uint32_t kScaleStages = 4, kGroups = kTileKeys / kKeysOfGroup, kGroupBytes = 2 * D * sizeof(__half);
  static constexpr uint32_t kScaleBytes = kKeysByChannel<C> ? kGroups * kGroupBytes : kTileKeys * sizeof(__half);
  static constexpr uint32_t kAllBytes = kStages * kBytes + kScaleStages * kScaleBytes;
};
template <uint32_t D>
struct RawTiles<D, void> {
  static constexpr uint32_t kStages = 0, kBytes = 0, kScaleStages = 0, kScaleBytes = 0, kAllBytes = 0;
};

// Shared memory has Q, [stage] tiles of K, [stage] tiles of V, raw tiles and their scales, and barriers.
template <uint32_t D, class C>
struct Layout {
  using Raw = RawTiles<D, C>;
  static constexpr uint32_t kRawStages = Raw::kStages, kScaleStages = Raw::kScaleStages;
  static constexpr uint32_t kSlices = D / kSwizzledColumns;
  static constexpr uint32_t kTileBytes = kSliceBytes * kSlices;
  static constexpr uint32_t kKeysAt = kTileBytes, kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr uint32_t kRawAt = kValuesAt + kStages * kTileBytes, kBarriersAt = kRawAt + Raw::kAllBytes;
  static constexpr uint32_t kAlignment = 1024;  // the swizzle needs it
  static constexpr uint32_t kSharedBytes = kBarriersAt + (1 + 4 * kStages) * Barrier::kBytes + kAlignment;

  uint32_t base;
  __device__ uint32_t queries() const { return base; }
  __device__ uint32_t tile(Side side, uint32_t stage) const {
    return base + (side == Side::kValues ? kValuesAt : kKeysAt) + stage * kTileBytes;
  }
  __device__ uint32_t raw(uint32_t stage) const { return base + kRawAt + stage * Raw::kBytes; }
  __device__ uint32_t scales(uint32_t stage) const { return raw(kRawStages) + stage * Raw::kScaleBytes; }
  // The barriers are that of the queries; full ones of K's stages, of V's; empty ones of K's stages, of V's.
  __device__ Barrier queries_full() const { return Barrier(base + kBarriersAt); }
  __device__ Barrier full(Side side, uint32_t stage) const { return Barrier(full_address(side, stage)); }
  __device__ Barrier empty(Side side, uint32_t stage) const {
    return Barrier(full_address(side, stage) + 2 * kStages * Barrier::kBytes);
  }
  // One thread makes the barriers for a tile of queries, `again` if there are those of another one.
  __device__ void make_barriers(bool again) const {
    const auto make = [&](Barrier barrier, uint32_t arrivals) {
      if (again) barrier.invalidate();
      barrier.init(arrivals);
    };
    make(queries_full(), 1);
    for (const Side side : {Side::kKeys, Side::kValues}) {
      for (uint32_t i = 0; i < kStages; ++i) {
        make(full(side, i), std::is_void_v<C> ? 1 : kWarpgroupThreads / 32);
        make(empty(side, i), kConsumers * kWarpgroupThreads / 32);
      }
    }
    cuda::publish_barriers();
  }

 private:
  __device__ uint32_t full_address(Side side, uint32_t stage) const {
    return base + kBarriersAt + Barrier::kBytes + ((side == Side::kValues ? kStages : 0) + stage) * Barrier::kBytes;
  }
};

// A block walks these tiles of positions, from the last one down.
struct Walk {
  uint32_t last, count;  // tiles
  __device__ Walk(const GpuArgs& a, const QueryTile& t) {
    last = (t.end - 1) / kTileKeys;
    count = last - a.first(t.position) / kTileKeys + 1;
  }
  // Returns the first token of the i-th.
  __device__ uint32_t token(uint32_t i) const { return (last - i) * kTileKeys; }
};

// These return the stage that the i-th tile is in, and the parity of the phase in which it is full.
__device__ __forceinline__ uint32_t stage_of(uint32_t i) {
  return i % kStages;
}
__device__ __forceinline__ uint32_t parity_of(uint32_t i) {
  return i / kStages % 2;
}

// A block's warps share this.
template <uint32_t D, class C>
struct BlockWork {
  const GpuArgs& a;
  const GpuPointers& p;
  const Maps& maps;
  const Layout<D, C>& s;
  const QueryTile& t;
  const Walk& walk;
};

// ---- the producer: one thread, where nothing has to be converted (wgmma_codes.cuh has the other one) --------------------
// Loads the i-th tile, in boxes of as many tokens as follow each other: a page, or a tile.
template <uint32_t D>
__device__ __forceinline__ void load_tile(const BlockWork<D, void>& b, Side side, uint32_t i) {
  const GpuArgs& a = b.a;
  const auto kv_head = static_cast<int32_t>(blockIdx.x / a.group);
  const uint32_t run = min(kTileKeys, a.kv.page_cells), shift = 31 - static_cast<uint32_t>(__clz(a.kv.page_cells));
  const int32_t* pages = b.p.pages + size_t{b.t.slot} * a.kv.columns;
  const uint32_t stage = stage_of(i), first = b.walk.token(i);
  const Barrier full = b.s.full(side, stage);
  b.s.empty(side, stage).wait(parity_of(i) ^ 1);
  full.arrive_expecting(Layout<D, void>::kTileBytes);
  for (uint32_t r = 0; r < kTileKeys; r += run) {
    const uint32_t token = first + r;
    // Tokens after the last have no page: they are outside of the map, hence zeros.
    const int32_t page = token < b.t.end ? pages[token >> shift] : -1;
    for (uint32_t h = 0; h < Layout<D, void>::kSlices; ++h) {
      full.copy_box(b.s.tile(side, stage) + h * kSliceBytes + r * kSwizzledRowBytes,
                    side == Side::kValues ? &b.maps.v : &b.maps.k,
                    {static_cast<int32_t>(h * kSwizzledColumns), static_cast<int32_t>(token & (a.kv.page_cells - 1)),
                     kv_head, page});
    }
  }
}
template <uint32_t D, class C>
__device__ void load_queries(const BlockWork<D, C>& b) {
  const auto head = static_cast<int32_t>(b.a.first_head + blockIdx.x);
  const Barrier full = b.s.queries_full();
  full.arrive_expecting(Layout<D, C>::kTileBytes);
  for (uint32_t h = 0; h < Layout<D, C>::kSlices; ++h) {
    full.copy_box(b.s.queries() + h * kSliceBytes, &b.maps.q,
                  {static_cast<int32_t>(h * kSwizzledColumns), static_cast<int32_t>(b.t.first_row), head, 0});
  }
}
template <uint32_t D>
__device__ void produce(const BlockWork<D, void>& b) {
  load_tile(b, Side::kKeys, 0);
  for (uint32_t i = 1; i < b.walk.count; ++i) {
    load_tile(b, Side::kKeys, i);
    load_tile(b, Side::kValues, i - 1);
  }
  load_tile(b, Side::kValues, b.walk.count - 1);
}

}  // namespace tenon::flash::wgmma
