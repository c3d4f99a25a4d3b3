// This is the first phase of cuda_decode.cu: the team's queries become a tile (rows 16, D) in shared memory, and the
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

template <DecodingTeam Team>
__device__ uint32_t head_count(const Team& t) {
  return t.w.queries + (t.a.append != 0 ? 2 * t.w.rows : 0);
}

// The heads of a team are its queries, and then K and V of each row.
template <DecodingTeam Team>
__device__ __forceinline__ DecodeHead find_query(const Team& t, uint32_t i) {
  const Query& query = t.memory.queries[i];
  DecodeHead h;
  h.row = query.row;
  h.dim = t.a.kv.k.dim;
  h.from = query_head(t.a, t.p, t.w.first_row + query.row, query.head);
  h.tile = t.query_tile();
  h.tile_row = i;
  return h;
}
// Finds K or V number i.
template <DecodingTeam Team>
__device__ __forceinline__ DecodeHead find_new(const Team& t, uint32_t i) {
  using Shape = typename Team::Shape;
  const GpuArgs& a = t.a;
  const Work& w = t.w;
  DecodeHead h;
  h.row = i / 2;
  h.side = i % 2 != 0 ? Side::kValues : Side::kKeys;
  const uint32_t token = w.pos_of(h.row);
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
template <DecodingTeam Team>
__device__ void prepare_any(const Team& t, const DecodeHead& h) {
  using E = typename Team::Element;
  constexpr uint32_t D = Team::kDim;
  const bool turns = h.side == Side::kKeys, query = h.cache == nullptr;
  const float* weight = !turns ? nullptr : query ? t.p.q_weight : t.p.k_weight;
  const HeadSource source{h.from, h.dim, weight, turns ? rope_row(t.a, t.p, t.w.pos_of(h.row)) : nullptr};
  prepare_head<D / 32>(t.a, source, [&](uint32_t d, float x) {
    const E e = cuda::from_float<E>(x);
    if (h.cache != nullptr) reinterpret_cast<E*>(h.cache)[d] = e;
    if (h.tile != nullptr) *reinterpret_cast<E*>(h.tile + tile_offset<D>(h.tile_row, d / 8) + d % 8 * 2) = e;
  });
}
// One warp stores a head in codes, as the cache's own append does, with the same bits. x: the lane's elements.
template <DecodingTeam Team>
__device__ void append_codes(const DecodeHead& h, const float (&x)[Team::kDim / 32]) {
  using Stored = typename Team::Code::Stored;
  using Tile = CodedTile<Team::kDim, typename Team::Code>;
  constexpr uint32_t kOwn = Team::kDim / 32, kBytes = sdk::kTwoInAByte<Stored> ? kOwn / 2 : kOwn;
  cuda::KvExtremes own;
#pragma unroll
  for (const float element : x) own.add(element);
  const float scale = cuda::kv_scale_of_warp(Stored::kFormat, TENON_F16, own);
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
template <DecodingTeam Team>
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

// Some heads of a warp, each kWarpsOfTeam after the one before. find(number) finds one.
template <DecodingTeam Team, uint32_t kHeads, class Find>
class HeadBatch {
 public:
  static constexpr uint32_t kOwn = Team::kDim / 32;
  // Finds heads from number `first` on that are below `end`.
  __device__ __forceinline__ HeadBatch(uint32_t first, uint32_t end, const Find& find) : end_(end), find_(find) {
    find_from(first);
  }
  // Asks for what was found.
  __device__ __forceinline__ void load() {
#pragma unroll
    for (uint32_t u = 0; u < kHeads; ++u) {
      if (heads_[u].from != nullptr) load_own<Team::kDim>(heads_[u].from, x_[u]);
    }
  }
  // Calls prepare(head, x) for what was asked for, and for all that follow. x: the lane's elements.
  template <class Prepare>
  __device__ __forceinline__ void prepare(const Prepare& prepare) {
#pragma unroll 1
    while (true) {
#pragma unroll
      for (uint32_t u = 0; u < kHeads; ++u) {
        if (heads_[u].from != nullptr) prepare(heads_[u], x_[u]);
      }
      if (next_ >= end_) return;
      find_from(next_);
      load();
    }
  }

 private:
  __device__ __forceinline__ void find_from(uint32_t first) {
    next_ = first;
#pragma unroll
    for (uint32_t u = 0; u < kHeads; ++u, next_ += Team::Shape::kWarpsOfTeam) {
      heads_[u] = next_ < end_ ? find_(next_) : DecodeHead{};
    }
  }

  const uint32_t end_;
  const Find& find_;
  uint32_t next_;
  DecodeHead heads_[kHeads];
  float x_[kHeads][kOwn];
};

// Prepares the warp's heads from number `first` on, where LaneRope fits. The first queries and the first of what is
// appended are asked for together: beside the loads of rings, each round of loads takes its time.
template <DecodingTeam Team>
__device__ __forceinline__ void prepare_whole_heads(const Team& t, uint32_t first) {
  constexpr uint32_t kApart = Team::Shape::kWarpsOfTeam;
  const uint32_t queries = t.w.queries, count = head_count(t);
  const uint32_t first_new = first < queries ? first + (queries - first + kApart - 1) / kApart * kApart : first;
  const auto query = [&](uint32_t i) { return find_query(t, i); };
  const auto appended = [&](uint32_t i) { return find_new(t, i - queries); };
  HeadBatch<Team, Team::kWarpTeams ? 4 : 1, decltype(query)> of_queries(first, queries, query);
  HeadBatch<Team, Team::kWarpTeams ? 2 : 1, decltype(appended)> of_new(first_new, count, appended);
  LaneRope<Team::kDim> turn;
  uint32_t turned = ~0u;  // `turn` is for this row
  const auto turn_to = [&](uint32_t row) {
    if (row != turned) turn.load(t.a, rope_row(t.a, t.p, t.w.pos_of(row)));
    turned = row;
  };
  const auto prepare = [&](const DecodeHead& h, float(&x)[Team::kDim / 32]) {
    turn_to(h.row);
    prepare_whole(t, h, turn, x);
  };
  if (first < count) turn_to(first < queries ? t.memory.queries[first].row : (first - queries) / 2);
  cuda::wait();
  of_queries.load();
  of_new.load();
  of_queries.prepare(prepare);
  of_new.prepare(prepare);
}

// Fills the tile of queries, and what follows it, with zeros.
template <DecodingTeam Team>
__device__ __forceinline__ void clear_queries(const Team& t) {
  using Shape = typename Team::Shape;
  const uint32_t pieces = (Shape::query_rows(t.a) * Team::kDim * 2 + Shape::kZeroBytes) / 16;
#pragma unroll 1
  for (uint32_t i = Team::thread_of_team(); i < pieces; i += 32 * Shape::kWarpsOfTeam) {
    cuda::store_zeros(cuda::shared_address(t.query_tile()) + i * 16);
  }
}

// Primes the ring and prepares all heads. worked: whether the team has worked before, and so has waited; it then has
// prepared its queries too. On return the ring holds whole tiles, and all of the team may read them.
template <DecodingTeam Team>
__device__ __forceinline__ void prepare_heads(const Team& t, bool worked) {
  constexpr uint32_t kWarpsOfTeam = Team::Shape::kWarpsOfTeam;
  const uint32_t warp = Team::warp_of_team();
  if (!worked && t.a.prefetch == 0) cuda::wait();
  t.prime(0, t.stable_len());
  if (!worked) clear_queries(t);
  Team::sync();
  // The warp's first head comes after the queries, if these were prepared before.
  const uint32_t first =
      worked ? t.w.queries + (warp + kWarpsOfTeam - t.w.queries % kWarpsOfTeam) % kWarpsOfTeam : warp;
  if (LaneRope<Team::kDim>::fits(t.a)) {
    prepare_whole_heads(t, first);
  } else {
    cuda::wait();
#pragma unroll 1
    for (uint32_t i = first; i < head_count(t); i += kWarpsOfTeam) {
      const DecodeHead h = i < t.w.queries ? find_query(t, i) : find_new(t, i - t.w.queries);
      if (h.from != nullptr) prepare_any(t, h);
    }
  }
  if (t.a.append == 0) t.prime_new();
  Team::sync();
}

}  // namespace tenon::flash
