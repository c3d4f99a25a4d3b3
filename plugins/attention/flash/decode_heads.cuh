// This is the first stage of cuda_decode.cu: the team's queries become a tile (rows 16, D) in shared memory, and the
// step's keys and values that fall into the team's split are appended to the cache and put into the tiles of the ring.
#pragma once

#include "decode_team.cuh"
#include "tenon/cuda/hadamard.cuh"
#include "tenon/cuda/overlap.cuh"

namespace tenon::flash {

// A team prepares this head: one of its queries, or K or V of one of the sequence's rows.
struct DecodeHead {
  const float* from = nullptr;  // nullptr: there is nothing to do
  uint32_t row = 0, dim = 0;    // the row is that of the sequence
  Side side = Side::kKeys;      // K or V; a query is treated as a key
  char* tile = nullptr;         // it is in shared memory, or nullptr
  uint32_t tile_row = 0;
  char* cache = nullptr;  // the cache stores it there; nullptr for a query
  char* scale = nullptr;  // and its scale, if it is coded
};

template <class Team>
__device__ uint32_t head_count(const Team& t) {
  return t.w.queries + (t.a.append != 0 ? 2 * t.w.rows : 0);
}

// Returns the i-th: first the queries come, then K and V of each row.
template <class Team>
__device__ DecodeHead find_head(const Team& t, uint32_t i) {
  using Shape = typename Team::Shape;
  const GpuArgs& a = t.a;
  const Work& w = t.w;
  DecodeHead h;
  if (i < w.queries) {
    h.row = t.memory.queries[i].row;
    h.dim = a.kv.k.dim;
    h.from = query_head(a, t.p, w.first_row + h.row, t.memory.queries[i].head);
    h.tile = t.query_tile();
    h.tile_row = i;
    return h;
  }
  h.row = (i - w.queries) / 2;
  h.side = (i - w.queries) % 2 != 0 ? Side::kValues : Side::kKeys;
  const auto token = static_cast<uint32_t>(w.pos[h.row]);
  if (token < t.begin || token >= min(t.end, a.kv_len) || token < w.old_len) return h;
  h.dim = plane_of(a, h.side).dim;
  h.cache = cached(a, t.p, h.side, w.slot, w.kv_head).at(token);
  if (h.cache == nullptr) return h;
  h.from = new_head(a, t.p, h.side, w.first_row + h.row, w.kv_head);
  if constexpr (Shape::kCoded) h.scale = cached_scales(a, t.p, h.side, w.slot, w.kv_head).at(token);
  // The tile that the token belongs to may be in the ring of any of the team's warps, or come later.
  const uint32_t tile = (token - t.begin) / Shape::kStride,
                 owner = (token - t.begin) % Shape::kStride / Shape::kTileKeys;
  h.tile_row = token % Shape::kTileKeys;
  if (tile < t.first_tile) return h;
  const uint32_t of_warp = tile - t.first_tile;
  const uint32_t stage =
      Shape::kCoded ? Team::coded_stage(of_warp, h.side) : Team::order_of(of_warp, h.side, t.tiles_of_warp(owner));
  const bool in_ring = Shape::kCoded ? of_warp < 2 : stage < Shape::kStages - 1;
  if (in_ring) h.tile = t.memory.tiles + (owner * Shape::kStages + stage) * Shape::kTileBytes;
  return h;
}

// One warp prepares a head with any norm, rope and dimension.
template <class Team>
__device__ void prepare_any(const Team& t, const DecodeHead& h) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
  const bool turns = h.side == Side::kKeys, query = h.cache == nullptr;
  const float* weight = !turns ? nullptr : query ? t.p.q_weight : t.p.k_weight;
  const HeadSource source{h.from, h.dim, weight, turns ? rope_row(t.a, t.p, t.w.pos[h.row]) : nullptr};
  prepare_head<D / 32>(t.a, source, [&](uint32_t d, float x) {
    const E e = cuda::from_float<E>(x);
    if (h.cache != nullptr) reinterpret_cast<E*>(h.cache)[d] = e;
    if (h.tile != nullptr) *reinterpret_cast<E*>(h.tile + tile_offset<D>(h.tile_row, d / 8) + d % 8 * 2) = e;
  });
}
// One warp stores a head in codes, as the cache's own append does, with the same bits. x: the lane's elements.
template <class Team>
__device__ void append_codes(const DecodeHead& h, const float (&x)[Team::kDim / 32]) {
  using Stored = typename Team::Code::Stored;
  using Tile = CodedTile<Team::kDim, typename Team::Code>;
  constexpr uint32_t kOwn = Team::kDim / 32, kBytes = sdk::kTwoInAByte<Stored> ? kOwn / 2 : kOwn;
  float most = 0, least = 0;
#pragma unroll
  for (const float own : x) {
    most = fmaxf(most, own);
    least = fminf(least, own);
  }
  const float scale = cuda::kv_scale_of_warp(Stored::kFormat, TENON_F16, most, least);
  struct alignas(kBytes) {
    typename Stored::Stored byte[kBytes];
  } codes;
#pragma unroll
  for (uint32_t i = 0; i < kBytes; ++i) {
    codes.byte[i] = sdk::kv_stored<Stored>(
        i, kOwn, [&](uint32_t d) { return x[d]; }, scale);
  }
  const uint32_t lane = threadIdx.x % 32, at = lane * kBytes;
  const auto store = [&](char* row, char* scale_of_row) {
    *reinterpret_cast<decltype(codes)*>(row) = codes;
    if (lane == 0) *reinterpret_cast<__half*>(scale_of_row) = __float2half_rn(scale);
  };
  store(h.cache + at, h.scale);
  if (h.tile == nullptr) return;
  store(h.tile + tile_offset<Tile::kColumns>(h.tile_row, at / 16) + at % 16,
        h.tile + Tile::kScalesAt + h.tile_row * sizeof(__half));
}
// One warp prepares a head where LaneRope fits. x: the lane's elements.
template <class Team>
__device__ void prepare_whole(const Team& t, const DecodeHead& h, const LaneRope<Team::kDim>& turn,
                              float (&x)[Team::kDim / 32]) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
  if (h.side == Side::kKeys) turn.apply(x);
  if constexpr (Team::kRotates) {
    if (t.a.rotates != 0) cuda::rotate_head<D>(x);
  }
  if constexpr (Team::kAppendsCodes) {
    if (h.cache != nullptr) return append_codes<Team>(h, x);
  }
  const uint32_t d = threadIdx.x % 32 * LaneRope<D>::kOwn;
  if (h.cache != nullptr) store_own<E, D>(x, reinterpret_cast<E*>(h.cache));
  if (h.tile != nullptr) {
    *reinterpret_cast<OwnElements<E, D>*>(h.tile + tile_offset<D>(h.tile_row, d / 8) + d % 8 * 2) =
        OwnElements<E, D>(x);
  }
}

// Primes the ring and prepares all heads. worked: whether the team has worked before, and so has waited; it then has
// prepared its queries too. On return the ring holds whole tiles, and all of the team may read them.
template <class Team>
__device__ __forceinline__ void prepare_heads(const Team& t, bool worked) {
  using Shape = typename Team::Shape;
  constexpr uint32_t D = Team::kDim;
  const GpuArgs& a = t.a;
  const uint32_t warp = Team::warp_of_team();
  const bool prefetch = a.prefetch != 0;
  if (worked || prefetch) t.prime(0, t.stable_len());
  if (!worked) {
    const uint32_t pieces = (Shape::query_rows(a) * D * 2 + Shape::kZeroBytes) / 16;
    for (uint32_t i = Team::thread_of_team(); i < pieces; i += 32 * Shape::kWarpsOfTeam) {
      cuda::store_zeros(cuda::shared_address(t.query_tile()) + i * 16);
    }
  }
  Team::sync();
  // The warp's first head comes after the queries, if these were prepared before.
  const uint32_t first =
      worked ? t.w.queries + (warp + Shape::kWarpsOfTeam - t.w.queries % Shape::kWarpsOfTeam) % Shape::kWarpsOfTeam
             : warp;
  if (LaneRope<D>::fits(a)) {
    constexpr uint32_t kAtOnce = 2;
    LaneRope<D> turn;
    uint32_t turned = 0;  // `turn` is for this row
    const auto turn_to = [&](uint32_t row) {
      turned = row;
      turn.load(a, rope_row(a, t.p, t.w.pos[row]));
    };
    if (!worked && !prefetch) {
      cuda::wait();
      t.prime(0, t.stable_len());
    }
    uint32_t i = first;
#pragma unroll 1
    do {
      DecodeHead h[kAtOnce];
      float x[kAtOnce][D / 32];  // the lane has these elements
#pragma unroll
      for (uint32_t u = 0; u < kAtOnce; ++u, i += Shape::kWarpsOfTeam) {
        if (i < head_count(t)) h[u] = find_head(t, i);
      }
      if (i == first + kAtOnce * Shape::kWarpsOfTeam) {
        turn_to(h[0].row);
        cuda::wait();
      }
#pragma unroll
      for (uint32_t u = 0; u < kAtOnce; ++u) {
        if (h[u].from != nullptr) load_own<D>(h[u].from, x[u]);
      }
#pragma unroll
      for (uint32_t u = 0; u < kAtOnce; ++u) {
        if (h[u].from == nullptr) continue;
        if (h[u].row != turned) turn_to(h[u].row);
        prepare_whole(t, h[u], turn, x[u]);
      }
    } while (i < head_count(t));
  } else {
    if (!worked) cuda::wait();
    if (!worked && !prefetch) t.prime(0, t.stable_len());
#pragma unroll 1
    for (uint32_t i = first; i < head_count(t); i += Shape::kWarpsOfTeam) {
      if (const auto h = find_head(t, i); h.from != nullptr) prepare_any(t, h);
    }
  }
  if (a.append == 0) t.prime_new();
  Team::sync();
}

}  // namespace tenon::flash
