// Attention of steps with at most sixteen rows a sequence, in one kernel: flash decoding.
//
// A team takes one KV head, up to sixteen queries (the query heads of that KV head, for one or several rows of a
// sequence) and one split of the positions. It is a block, whose four warps walk the split in tiles of 16 tokens, two in a
// turn; every warp has a ring of K and V tiles of its own, filled by asynchronous copies, so the loop has no block-wide
// barrier. Where sequences are many, nothing is split, and each warp is a team of its own.
// What a step appends is appended by the blocks whose splits it falls in. A cluster of blocks folds what its splits
// have made in shared memory, in order; if a row has more splits, that goes through scratch, and the last of its
// clusters folds all.
//
// Where splits lie follows from a row's own position alone: a row has the same bits alone, among drafts and in a batch
// of few rows. A step of more rows than that has blocks enough without splits, or with few.
// Rows whose splits differ (their positions straddle a change of the split's size) are taken one group after the other.
#include <algorithm>
#include <type_traits>

#include "cuda_ops.h"
#include "splits.cuh"
#include "tenon/cuda/block_size.h"
#include "tenon/cuda/overlap.cuh"
#include "tensor_core.cuh"

namespace tenon::flash {
namespace {

constexpr uint32_t kKeysOfTile = 16;

// kMany: a warp is a team.
template <uint32_t D, bool kMany>
struct Shape {
  static constexpr uint32_t kTeam = kMany ? 1 : kWarps, kTeams = kWarps / kTeam;  // kTeam: warps of a team
  static constexpr uint32_t kStride = kTeam * kKeysOfTile;                        // from a tile of a warp to its next
  static constexpr uint32_t kBlocks = kMany ? 3 : 2;                              // on a multiprocessor
  static constexpr uint32_t kTileBytes = kKeysOfTile * D * 2;
  static constexpr uint32_t kSlots = D == 64 ? (kMany ? 4 : 8) : D == 128 && !kMany ? 5 : 3;  // tiles of a warp's ring
  static constexpr uint32_t kRingBytes = kTeam * kSlots * kTileBytes;
  static constexpr uint32_t kPartRow = D + 8;  // floats; the padding spreads rows over the banks
  static constexpr uint32_t kPartBytes = kWarps * kQueries * kPartRow * 4;  // in the ring's place, and Made behind it
  static constexpr uint32_t kTeamBytes = kRingBytes + kQueries * D * 2, kSharedBytes = kTeams * kTeamBytes;
  static_assert(kMany || kPartBytes + kQueries * (8 + D * 4) <= kRingBytes);
  static_assert(D == 256 || kSharedBytes <= cuda::kSmallBlockBytes);
};

// A warp's tile of 16 tokens of K or V.
template <class E, uint32_t D>
struct TileLoader {
  cuda::KvRows rows;
  uint32_t pieces;  // 16-byte pieces of a row in memory; the tile's others are zeros

  // Tokens [from, to) are copied, those from `end` on are zeros, others are left alone.
  __device__ void operator()(uint32_t tile, uint32_t token, uint32_t from, uint32_t to, uint32_t end) const {
    const bool one_run = rows.run(token, kKeysOfTile) == kKeysOfTile;
    const char* base = one_run ? rows.at(token) : nullptr;
    constexpr uint32_t kPieces = D / 8, kRowsAtOnce = 32 / kPieces;
    if (one_run && token >= from && token + kKeysOfTile <= min(to, end) && pieces == kPieces) {
      const uint32_t row = threadIdx.x % 32 / kPieces, piece = threadIdx.x % kPieces;
      base += row * rows.stride() + piece * 16;
#pragma unroll
      for (uint32_t r = 0; r < kKeysOfTile; r += kRowsAtOnce, base += kRowsAtOnce * rows.stride()) {
        copy_async(tile + tile_offset<D>(r + row, piece), base);
      }
      return;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < kKeysOfTile * D / 8 / 32; ++i) {
      const uint32_t at = i * 32 + threadIdx.x % 32, r = at / (D / 8), piece = at % (D / 8), t = token + r;
      const uint32_t address = tile + tile_offset<D>(r, piece);
      if (t >= end || piece >= pieces) {
        store_zeros(address);
      } else if (t >= from && t < to) {
        const char* row = one_run ? base + r * rows.stride() : rows.at(t);
        copy_async(address, row + piece * 16);
      }
    }
  }
};

// The same of int8 with scales in f16, which becomes f16 on its way: a byte's bits, biased by 128, are the last of
// 1024 + 128 + q in f16, which is exact, and the product with the scale is rounded once.
template <uint32_t D>
struct Int8TileLoader {
  cuda::KvRows rows, scales;
  uint32_t pieces;  // 16-byte pieces of a row in memory: two of the tile

  __device__ static void store(uint32_t to, uint32_t low, uint32_t high, __half2 scale) {
    uint32_t word[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t biased =
          __byte_perm(i < 2 ? low ^ 0x80808080u : high ^ 0x80808080u, 0x64646464u, i % 2 == 0 ? 0x4140 : 0x4342);
      const __half2 q = __hsub2(reinterpret_cast<const __half2&>(biased), __half2half2(__ushort_as_half(0x6480)));
      const __half2 x = __hmul2(q, scale);
      word[i] = reinterpret_cast<const uint32_t&>(x);
    }
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]),
                 "r"(word[3])
                 : "memory");
  }
  __device__ void operator()(uint32_t tile, uint32_t token, uint32_t from, uint32_t to, uint32_t end) const {
    constexpr uint32_t kPieces = D / 16, kOfLane = kKeysOfTile * kPieces / 32;
    uint4 raw[kOfLane];
    __half scale[kOfLane];
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t at = i * 32 + threadIdx.x % 32, t = token + at / kPieces, piece = at % kPieces;
      raw[i] = {0, 0, 0, 0}, scale[i] = __ushort_as_half(0);
      if (t < from || t >= min(to, end) || piece >= pieces) continue;
      raw[i] = *reinterpret_cast<const uint4*>(rows.at(t) + piece * 16);
      scale[i] = *reinterpret_cast<const __half*>(scales.at(t));
    }
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t at = i * 32 + threadIdx.x % 32, r = at / kPieces, t = token + r, piece = at % kPieces;
      if (t < end && piece < pieces && (t < from || t >= to)) continue;
      const __half2 both = __half2half2(scale[i]);
      store(tile + tile_offset<D>(r, 2 * piece), raw[i].x, raw[i].y, both);
      store(tile + tile_offset<D>(r, 2 * piece + 1), raw[i].z, raw[i].w, both);
    }
  }
};

// One group of rows with the same cut, in one of its splits. kInt8: of the cache; E is then __half.
template <class E, uint32_t D, bool kInt8, bool kMany>
struct Pass {
  using S = Shape<D, kMany>;
  const GpuArgs& a;
  const GpuPointers& p;
  const Work& w;
  Query* queries;  // in shared memory
  float* scratch;
  char* smem;
  Cut cut;
  uint32_t split, begin, end;
  uint32_t first_tile, tiles;  // of this warp; tiles: of K, and of V

  static __device__ uint32_t warp_of_team() { return kMany ? 0 : threadIdx.x / 32; }
  static __device__ uint32_t thread_of_team() { return threadIdx.x % (32 * S::kTeam); }
  static __device__ void sync() {
    if constexpr (kMany) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  __device__ char* ring() const { return smem + warp_of_team() * S::kSlots * S::kTileBytes; }
  __device__ char* q_tile() const { return smem + S::kRingBytes; }
  __device__ Made<D>& made() const { return *reinterpret_cast<Made<D>*>(smem + S::kPartBytes); }

  // row, last_row: of the sequence
  __device__ Pass(const GpuArgs& args, const GpuPointers& pointers, const Work& work, Query* table, float* partials,
                  char* shared, Cut c, uint32_t row, uint32_t last_row)
      : a(args), p(pointers), w(work), queries(table), scratch(partials), smem(shared), cut(c) {
    split = blockIdx.z;
    begin = cut.start + split * cut.size;
    end = min(begin + cut.size, static_cast<uint32_t>(w.pos[last_row]) + 1);
    const uint32_t seen = first_seen(a, static_cast<uint32_t>(w.pos[row]));
    first_tile = seen > begin ? (seen - begin) / S::kStride : 0;
    tiles = tiles_of_warp(warp_of_team());
    const uint32_t thread = thread_of_team();
    if (thread < w.queries) {
      const uint32_t r = w.row_of(a, thread), pos = static_cast<uint32_t>(w.pos[r]);
      const bool mine = r >= row && r <= last_row;
      queries[thread] = {r, w.head_of(a, thread), first_seen(a, pos), mine ? pos + 1 : 0, mine ? cut.count(pos) : 0};
    } else if (thread < kQueries) {
      queries[thread] = {};
    }
  }

  __device__ uint32_t tiles_of_warp(uint32_t warp) const {
    const uint32_t own = begin + warp * kKeysOfTile, all = end > own ? (end - own + S::kStride - 1) / S::kStride : 0;
    return all > first_tile ? all - first_tile : 0;
  }
  // Tiles come in the order K K V V of a turn, the last turn having one or two of each: the i-th of a ring.
  static __device__ uint32_t place_of(uint32_t tile, bool v, uint32_t tiles) {
    return tile / 2 * 4 + tile % 2 + (v ? min(2u, tiles - tile / 2 * 2) : 0);
  }
  __device__ uint32_t token_of(uint32_t tile) const {
    return begin + (first_tile + tile) * S::kStride + warp_of_team() * kKeysOfTile;
  }
  __device__ void load(uint32_t i, uint32_t slot, uint32_t from, uint32_t to) const {
    const uint32_t first = i / 4 * 2, of_turn = min(2u, tiles - first), in_turn = i % 4;
    const bool v = in_turn >= of_turn;
    const cuda::KvPlane& plane = v ? a.kv.v : a.kv.k;
    const cuda::KvRows rows(a.kv, plane, v ? p.values : p.keys, p.pages, w.slot, w.kv_head);
    const uint32_t to_tile = shared_address(ring() + slot * S::kTileBytes);
    const uint32_t token = token_of(first + in_turn - (v ? of_turn : 0));
    if constexpr (kInt8) {
      cuda::KvPlane scale = plane;
      scale.page = plane.scale_page, scale.cell = plane.scale_cell, scale.head = plane.scale_head;
      const cuda::KvRows scales(a.kv, scale, v ? p.value_scales : p.key_scales, p.pages, w.slot, w.kv_head);
      Int8TileLoader<D>{rows, scales, plane.dim / 16}(to_tile, token, from, to, end);
    } else {
      TileLoader<E, D>{rows, plane.dim / 8}(to_tile, token, from, to, end);
    }
  }
  // What the ring holds at first; each tile is a group of copies.
  __device__ void fill(uint32_t from, uint32_t to) const {
#pragma unroll 1
    for (uint32_t i = 0; i < S::kSlots - 1; ++i) {
      if (i < 2 * tiles) load(i, i, from, to);
      commit_copies();
    }
  }
  __device__ void fill_new() const {
#pragma unroll 1
    for (uint32_t i = 0; i < min(2 * tiles, S::kSlots - 1); ++i) load(i, i, w.old_len, end);
    commit_copies(), wait_copies<0>();
  }

  __device__ const float* rope_row(uint32_t r) const {
    return a.rotated == 0 ? nullptr : p.rope + int64_t{w.pos[r]} * a.rotated;
  }

  // Heads of the block: its queries, then K and V of the sequence's rows, if they are to be appended.
  struct Head {
    const float* from = nullptr;  // nullptr: nothing to do
    uint32_t row = 0, dim = 0;
    bool v = false;
    char* tile = nullptr;  // in shared memory, or nullptr
    uint32_t tile_row = 0;
    E* cache = nullptr;  // or nullptr
  };
  __device__ uint32_t heads() const { return w.queries + (a.append != 0 ? 2 * w.rows : 0); }
  __device__ Head head(uint32_t i) const {
    Head h;
    if (i < w.queries) {
      h.row = queries[i].row, h.dim = a.kv.k.dim;
      h.from = p.q + (w.first_row + h.row) * a.q_row + queries[i].head * h.dim;
      h.tile = q_tile(), h.tile_row = i;
      return h;
    }
    h.row = (i - w.queries) / 2, h.v = (i - w.queries) % 2 != 0;
    const auto token = static_cast<uint32_t>(w.pos[h.row]);
    if (token < begin || token >= min(end, a.kv_len) || token < w.old_len) return h;
    const cuda::KvPlane& plane = h.v ? a.kv.v : a.kv.k;
    h.dim = plane.dim;
    h.from = p.q + (w.first_row + h.row) * a.q_row + a.q_heads * a.kv.k.dim + w.kv_head * plane.dim +
             (h.v ? a.kv.heads * a.kv.k.dim : 0);
    h.cache =
        reinterpret_cast<E*>(cuda::KvRows(a.kv, plane, h.v ? p.values : p.keys, p.pages, w.slot, w.kv_head).at(token));
    const uint32_t tile = (token - begin) / S::kStride, owner = (token - begin) % S::kStride / kKeysOfTile;
    h.tile_row = token % kKeysOfTile;
    if (tile < first_tile) return h;
    const uint32_t place = place_of(tile - first_tile, h.v, tiles_of_warp(owner));
    if (place < S::kSlots - 1) h.tile = smem + (owner * S::kSlots + place) * S::kTileBytes;
    return h;
  }
  __device__ void prepare(const Head& h) const {
    const bool turns = !h.v, query = h.cache == nullptr;
    const float* weight = h.v ? nullptr : query ? p.q_weight : p.k_weight;
    prepare_head<D / 32>(a, h.from, h.dim, weight, turns ? rope_row(h.row) : nullptr, [&](uint32_t d, float x) {
      const E e = cuda::from_float<E>(x);
      if (h.cache != nullptr) h.cache[d] = e;
      if (h.tile != nullptr) *reinterpret_cast<E*>(h.tile + tile_offset<D>(h.tile_row, d / 8) + d % 8 * 2) = e;
    });
  }
  __device__ void prepare(const Head& h, const LaneTurn<D>& turn, float (&x)[D / 32]) const {
    if (!h.v) turn.apply(x);
    const uint32_t d = threadIdx.x % 32 * LaneTurn<D>::kOwn;
    if (h.cache != nullptr) store_own<E, D>(x, h.cache);
    if (h.tile != nullptr) {
      *reinterpret_cast<OwnElements<E, D>*>(h.tile + tile_offset<D>(h.tile_row, d / 8) + d % 8 * 2) =
          OwnElements<E, D>(x);
    }
  }

  __device__ void run(bool waited) {
    const uint32_t warp = warp_of_team();
    const bool prefetch = a.prefetch != 0;
    if (waited || prefetch) fill(0, w.old_len);
    if (!waited) {
      for (uint32_t i = thread_of_team(); i < kQueries * D / 8; i += 32 * S::kTeam) {
        store_zeros(shared_address(q_tile()) + i * 16);
      }
    }
    sync();
    // The queries of all passes are prepared in the first.
    const uint32_t first = waited ? w.queries + (warp + S::kTeam - w.queries % S::kTeam) % S::kTeam : warp;
    if (LaneTurn<D>::fits(a)) {
      constexpr uint32_t kAtOnce = 2;
      LaneTurn<D> turn;
      uint32_t turned = first < heads() ? head(first).row : 0;
      turn.load(a, rope_row(turned));
      if (!waited) cuda::wait();
      if (!waited && !prefetch) fill(0, w.old_len);
#pragma unroll 1
      for (uint32_t i = first; i < heads(); i += kAtOnce * S::kTeam) {
        Head h[kAtOnce];
        float x[kAtOnce][D / 32];
#pragma unroll
        for (uint32_t u = 0; u < kAtOnce; ++u) {
          if (i + u * S::kTeam < heads()) h[u] = head(i + u * S::kTeam);
          if (h[u].from == nullptr) continue;
          load_own<D>(h[u].from, x[u]);
        }
#pragma unroll
        for (uint32_t u = 0; u < kAtOnce; ++u) {
          if (h[u].from == nullptr) continue;
          if (h[u].row != turned) turn.load(a, rope_row(turned = h[u].row));
          prepare(h[u], turn, x[u]);
        }
      }
    } else {
      if (!waited) cuda::wait();
      if (!waited && !prefetch) fill(0, w.old_len);
#pragma unroll 1
      for (uint32_t i = first; i < heads(); i += S::kTeam) {
        if (const Head h = head(i); h.from != nullptr) prepare(h);
      }
    }
    if (a.append == 0) fill_new();
    sync();
    attend();
  }

  // The warp's share of the split: maxima, sums and values of rows g and g + 8 of the queries.
  __device__ void attend() {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4;
    constexpr bool kKeep = D <= (kMany ? 64 : 128);  // the queries in registers
    uint32_t q[kKeep ? D / 16 : 1][4];
    const auto load_q = [&](uint32_t k) {
      load_matrices(q[kKeep ? k : 0], shared_address(q_tile()) + tile_offset<D>(lane % 16, k * 2 + lane / 16));
    };
    if (kKeep) {
#pragma unroll
      for (uint32_t k = 0; k < D / 16; ++k) load_q(k);
    }
    const uint32_t seen[2] = {queries[g].seen, queries[g + 8].seen}, past[2] = {queries[g].past, queries[g + 8].past};
    const ScoreScale scale = score_scale(a.scale, a.softcap);
    float top[2] = {kNothing, kNothing}, sum[2] = {0, 0}, out[D / 8][4] = {};
    uint32_t next = 0, slot = 0, free_slot = S::kSlots - 1;
    const auto next_tile = [&] {
      wait_copies<S::kSlots - 2>();
      __syncwarp();
      const uint32_t address = shared_address(ring()) + slot * S::kTileBytes;
      if (next + S::kSlots - 1 < 2 * tiles) load(next + S::kSlots - 1, free_slot, 0, end);
      commit_copies();
      ++next;
      free_slot = slot;
      slot = slot + 1 == S::kSlots ? 0 : slot + 1;
      return address;
    };
#pragma unroll 1
    for (uint32_t tile = 0; tile < tiles; tile += 2) {
      const uint32_t of_turn = min(2u, tiles - tile);
      float x[2][2][4];  // tile, eight keys
#pragma unroll 1
      for (uint32_t j = 0; j < of_turn; ++j) {
        const uint32_t keys = next_tile();
        float s[2][2][4] = {};  // by half of the dimensions, eight keys each
#pragma unroll
        for (uint32_t k = 0; k < D / 16; ++k) {
          uint32_t b[4];
          load_matrices(b, keys + tile_offset<D>(lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
          if (!kKeep) load_q(k);
          multiply<E>(s[k % 2][0], q[kKeep ? k : 0], b[0], b[1]);
          multiply<E>(s[k % 2][1], q[kKeep ? k : 0], b[2], b[3]);
        }
#pragma unroll
        for (uint32_t n = 0; n < 2; ++n) {
#pragma unroll
          for (uint32_t e = 0; e < 4; ++e) {
            const float score = s[0][n][e] + s[1][n][e];
            if (j == 0) x[0][n][e] = score, x[1][n][e] = 0;
            if (j == 1) x[1][n][e] = score;
          }
        }
      }
      scale(x);
      float higher[2] = {top[0], top[1]};
#pragma unroll
      for (uint32_t i = 0; i < 16; ++i) {
        const uint32_t j = i / 8, n = i / 4 % 2, e = i % 4, h = e / 2;
        const uint32_t t = token_of(tile + j) + lane % 4 * 2 + n * 8 + e % 2;
        if (t < seen[h] || t >= past[h] || (j == 1 && of_turn == 1)) x[j][n][e] = kNothing;
        higher[h] = fmaxf(higher[h], x[j][n][e]);
      }
      float shrink[2];
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        higher[h] = row_max(higher[h]);
        shrink[h] = top[h] == kNothing ? 0 : exp2_approx(top[h] - higher[h]);
        top[h] = higher[h];
        const float base = higher[h] == kNothing ? 0 : higher[h];
        float added[2];
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) {
#pragma unroll
          for (uint32_t i = 0; i < 4; ++i) {
            float& v = x[j][i / 2][2 * h + i % 2];
            v = exp2_approx(v - base);
          }
          added[j] = (x[j][0][2 * h] + x[j][0][2 * h + 1]) + (x[j][1][2 * h] + x[j][1][2 * h + 1]);
        }
        sum[h] = sum[h] * shrink[h] + (added[0] + added[1]);
      }
      if (tile > 0) {
#pragma unroll
        for (float(&o)[4] : out) o[0] *= shrink[0], o[1] *= shrink[0], o[2] *= shrink[1], o[3] *= shrink[1];
      }
#pragma unroll 1
      for (uint32_t j = 0; j < of_turn; ++j) {
        uint32_t weights[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t n = i / 2, e = i % 2 * 2;
          weights[i] = j == 0 ? pack<E>(x[0][n][e], x[0][n][e + 1]) : pack<E>(x[1][n][e], x[1][n][e + 1]);
        }
        const uint32_t values = next_tile();
#pragma unroll
        for (uint32_t n = 0; n < D / 16; ++n) {
          uint32_t b[4];
          load_matrices_transposed(b, values + tile_offset<D>(lane % 16, n * 2 + lane / 16));
          multiply<E>(out[2 * n], weights, b[0], b[1]);
          multiply<E>(out[2 * n + 1], weights, b[2], b[3]);
        }
      }
    }
    if constexpr (kMany) {
      finish_alone(g, lane, sum, out);
    } else {
      gather(warp_of_team(), g, lane, top, sum, out);
    }
  }

  // Stores what a warp has made of its queries, which nobody else works on.
  __device__ void finish_alone(uint32_t g, uint32_t lane, float (&sum)[2], const float (&out)[D / 8][4]) const {
    wait_copies<0>();
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const float weight = 1 / row_sum(sum[h]);
      const uint32_t q = g + 8 * h;
      if (q >= w.queries || queries[q].count == 0) continue;
      float* to = p.out + (w.first_row + queries[q].row) * a.out_row + queries[q].head * a.kv.v.dim + lane % 4 * 2;
#pragma unroll
      for (uint32_t n = 0; n < D / 8; ++n) {
        if (n * 8 >= a.kv.v.dim) break;
        *reinterpret_cast<float2*>(to + n * 8) = {out[n][2 * h] * weight, out[n][2 * h + 1] * weight};
      }
    }
  }

  // Adds the warps' shares and stores what the split makes of each query.
  __device__ void gather(uint32_t warp, uint32_t g, uint32_t lane, const float (&top)[2], float (&sum)[2],
                         const float (&out)[D / 8][4]) {
    __shared__ float tops[kWarps][kQueries], sums[kWarps][kQueries];
    for (uint32_t h = 0; h < 2; ++h) {
      sum[h] = row_sum(sum[h]);
      if (lane % 4 == 0) tops[warp][g + 8 * h] = top[h], sums[warp][g + 8 * h] = sum[h];
    }
    wait_copies<0>();
    __syncthreads();
    auto* part = reinterpret_cast<float*>(smem);
    const auto highest = [&](uint32_t q) {
      return fmaxf(fmaxf(tops[0][q], tops[1][q]), fmaxf(tops[2][q], tops[3][q]));
    };
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t q = g + 8 * h;
      if (q >= w.queries) continue;
      const float shrink = top[h] == kNothing ? 0 : exp2_approx(top[h] - highest(q));
#pragma unroll
      for (uint32_t n = 0; n < D / 8; ++n) {
        *reinterpret_cast<float2*>(part + (warp * kQueries + q) * S::kPartRow + n * 8 + lane % 4 * 2) = {
            out[n][2 * h] * shrink, out[n][2 * h + 1] * shrink};
      }
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < w.queries * (D / 4); i += kThreads) {
      const uint32_t q = i / (D / 4), d = i % (D / 4) * 4, count = queries[q].count;
      if (d >= a.kv.v.dim || split >= count) continue;
      const float all = highest(q);
      float value[4] = {}, total = 0;
#pragma unroll
      for (uint32_t k = 0; k < kWarps; ++k) {
        const auto v = *reinterpret_cast<const float4*>(part + (k * kQueries + q) * S::kPartRow + d);
        value[0] += v.x, value[1] += v.y, value[2] += v.z, value[3] += v.w;
        total += tops[k][q] == kNothing ? 0 : sums[k][q] * exp2_approx(tops[k][q] - all);
      }
      if (count == 1) {
        finish(a, p, w, queries[q], d, total, value);
      } else {
        *reinterpret_cast<float4*>(made().values[q] + d) = {value[0], value[1], value[2], value[3]};
        if (d == 0) made().sums[q] = {all, total};
      }
    }
  }

  // What the cluster's splits have made together: results, or partial ones if there are other clusters.
  __device__ void fold_cluster() const {
    const uint32_t rank = split % a.cluster, first = split - rank;
    const auto cluster = cuda::this_cluster();
    cluster.sync();
#pragma unroll 1
    for (uint32_t i = rank * kThreads + threadIdx.x; i < w.queries * (D / 4); i += a.cluster * kThreads) {
      const uint32_t q = i / (D / 4), d = i % (D / 4) * 4, count = queries[q].count;
      if (d >= a.kv.v.dim || count == 1 || first >= count) continue;
      float top, sum, value[4];
      fold<2>(min(count - first, a.cluster), top, sum, value, [&](uint32_t other, float2& sums, float4& values) {
        const Made<D>& theirs = *cluster.map_shared_rank(&made(), other);
        sums = theirs.sums[q], values = *reinterpret_cast<const float4*>(theirs.values[q] + d);
      });
      if (count <= a.cluster) {
        finish(a, p, w, queries[q], d, sum, value);
      } else {
        const Partials partials(a, scratch);
        const uint64_t at = partials.at(first / a.cluster, q);
        *reinterpret_cast<float4*>(partials.values + at * a.kv.v.dim + d) = {value[0], value[1], value[2], value[3]};
        if (d == 0) partials.sums[at] = {top, sum};
      }
    }
    cluster.sync();
  }
};

template <class E, uint32_t D, bool kInt8, bool kMany>
__global__ void __launch_bounds__(kThreads, Shape<D, kMany>::kBlocks)
    decode_kernel(const __grid_constant__ GpuArgs a, const __grid_constant__ GpuPointers p, float* scratch,
                  uint32_t* counters) {
  using S = Shape<D, kMany>;
  extern __shared__ __align__(128) char all_teams[];
  __shared__ Query all_queries[S::kTeams][kQueries];
  cuda::trigger();
  const uint32_t team = threadIdx.x / (32 * S::kTeam), item = blockIdx.x * S::kTeams + team;
  Work w{};
  w.kv_head = item % a.kv.heads, w.seq = blockIdx.y, w.query = item / a.kv.heads * kQueries;
  // What does not depend on each other is loaded together.
  const uint32_t live = p.live[1];
  const int32_t slot = p.seq_slot[w.seq], first_row = p.seq_row[w.seq], end_row = p.seq_row[w.seq + 1];
  if (w.seq >= live || slot < 0) return cuda::wait();
  char* const smem = all_teams + team * S::kTeamBytes;
  Query* const queries = all_queries[team];
  w.slot = static_cast<uint32_t>(slot), w.first_row = static_cast<uint32_t>(first_row);
  w.rows = min(static_cast<uint32_t>(end_row) - w.first_row, a.rows_per_seq);
  if (w.query >= w.rows * a.group) return cuda::wait();
  w.queries = min(kQueries, w.rows * a.group - w.query);
  w.old_len = static_cast<uint32_t>(p.kv_len[w.slot]);
  w.pos = p.pos + w.first_row;

  bool waited = false;
  uint32_t most = 0;
  const uint32_t first_of_cluster = blockIdx.z / a.cluster * a.cluster;
  const uint32_t end = w.row_of(a, w.queries - 1) + 1;
  for (uint32_t row = w.row_of(a, 0), next = row; row < end; row = next) {
    const Cut c = cut(a, static_cast<uint32_t>(w.pos[row]));
    do ++next;
    while (next < end && cut(a, static_cast<uint32_t>(w.pos[next])) == c);
    const uint32_t count = c.count(static_cast<uint32_t>(w.pos[next - 1]));
    if (first_of_cluster >= count) continue;
    most = max(most, count);
    if (waited) Pass<E, D, kInt8, kMany>::sync();
    Pass<E, D, kInt8, kMany> pass(a, p, w, queries, scratch, smem, c, row, next - 1);
    if (blockIdx.z < count) {
      pass.run(waited);
    } else if (!waited) {
      cuda::wait();
    }
    waited = true;
    if constexpr (!kMany) {
      if (count > 1) pass.fold_cluster();
    }
  }
  if (!waited) return cuda::wait();
  if constexpr (!kMany) {
    if (most <= a.cluster || blockIdx.z != first_of_cluster) return;
    const uint32_t clusters = (most + a.cluster - 1) / a.cluster;
    if (is_last(counters + blockIdx.y * gridDim.x + blockIdx.x, clusters)) combine<D>(a, p, w, scratch);
  }
}

template <class E, uint32_t D, bool kInt8, bool kMany>
void launch(const GpuArgs& a, const cuda::Launch& l) {
  using S = Shape<D, kMany>;
  l(&decode_kernel<E, D, kInt8, kMany>,
    {.blocks = {(a.kv.heads * tiles_of(a) + S::kTeams - 1) / S::kTeams, a.seqs, a.most_splits},
     .threads = {kThreads},
     .shared_bytes = S::kSharedBytes,
     .cluster = {1, 1, a.cluster}},
    a, pointers(a, l), l.scratch<float>(), l.zeroed<uint32_t>());
}

template <class E, uint32_t D, bool kInt8>
void launch(const GpuArgs& a, const cuda::Launch& l) {
  D <= 128 && a.of_many_teams != 0 ? launch<E, D, kInt8, D <= 128>(a, l) : launch<E, D, kInt8, false>(a, l);
}

}  // namespace

uint32_t decode_shared_bytes(uint32_t dim) {
  return dim <= 64    ? Shape<64, false>::kSharedBytes
         : dim <= 128 ? Shape<128, false>::kSharedBytes
                      : Shape<256, false>::kSharedBytes;
}
uint64_t decode_scratch_bytes(const GpuArgs& a) {
  return uint64_t{a.kv.heads} * tiles_of(a) * a.seqs * (a.most_splits / a.cluster) * queries_of_block(a) *
         (a.kv.v.dim + 2) * sizeof(float);
}
uint64_t decode_zeroed_bytes(const GpuArgs& a) {
  return uint64_t{a.kv.heads} * tiles_of(a) * a.seqs * sizeof(uint32_t);
}

// Of few rows, the splits of all KV heads are two blocks for every multiprocessor: each works while the other waits for
// its keys and values. Of many rows, those of all sequences are four. Larger clusters would not fill the GPU.
void set_splits(GpuArgs& a, uint32_t units, uint32_t arch, uint32_t granule) {
  constexpr uint32_t kCluster = 2, kHasClusters = 90, kBlocks = 2, kManyBlocks = 4;
  const uint32_t unsplit = a.kv.heads * tiles_of(a) * a.seqs;
  a.granule = granule, a.of_many_rows = a.rows > kSteadyRows;
  a.of_many_teams = a.of_many_rows != 0 && std::max(a.kv.k.dim, a.kv.v.dim) <= 128 && unsplit > kBlocks * units;
  a.cluster = arch >= kHasClusters && a.of_many_rows == 0 ? kCluster : 1;
  const uint32_t wanted = a.of_many_teams != 0  ? 1
                          : a.of_many_rows != 0 ? kManyBlocks * units / unsplit
                                                : kBlocks * units / a.kv.heads;
  a.splits = std::max(1u, wanted / a.cluster) * a.cluster;
  const uint64_t span = a.window == 0 ? a.kv_len : std::min<uint64_t>(a.kv_len, uint64_t{a.window} + kAnchor);
  const uint64_t least = a.of_many_rows != 0 ? kAmple : granule;
  const uint64_t most = std::min<uint64_t>(a.splits, (span + least - 1) / least);
  a.most_splits = static_cast<uint32_t>((most + a.cluster - 1) / a.cluster * a.cluster);
}

void decode(const GpuArgs& recorded, const cuda::Launch& l) {
  GpuArgs a = recorded;
  a.prefetch = l.stable(kKeys) && l.stable(kValues) && l.stable(kPages);
  const uint32_t dim = std::max(a.kv.k.dim, a.kv.v.dim);
  const auto of_dim = [&]<class E, bool kInt8>(E, std::bool_constant<kInt8>) {
    dim <= 64 ? launch<E, 64, kInt8>(a, l) : dim <= 128 ? launch<E, 128, kInt8>(a, l) : launch<E, 256, kInt8>(a, l);
  };
  if (a.kv.k.codec == TENON_I8) {
    a.prefetch = a.prefetch != 0 && l.stable(kKeyScales) && l.stable(kValueScales);
    return of_dim(__half{}, std::true_type());
  }
  with_half(a.kv.k.codec, [&]<class E>(E e) { of_dim(e, std::false_type()); });
}

}  // namespace tenon::flash
