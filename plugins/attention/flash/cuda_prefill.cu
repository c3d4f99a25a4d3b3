// Attention of steps with many rows, on any GPU since sm_80: FlashAttention-2 (Dao, arXiv:2307.08691), a block for 64
// rows of one query head, 16 of them a warp. And what comes before it: rope, append, and the queries in the cache's
// type.
#include <algorithm>

#include "cuda_ops.h"
#include "head.cuh"
#include "prefill.cuh"
#include "tenon/cuda/overlap.cuh"
#include "tensor_core.cuh"

namespace tenon::flash {
namespace {

constexpr float kNothing = -INFINITY;

// A head of a row, on its way to the converted queries or to the cache.
template <class E>
struct PreparedHead {
  const float* from = nullptr;
  E* to = nullptr;  // nullptr: nothing to do
  uint32_t dim = 0;
  const float *weight = nullptr, *table = nullptr;
};
template <class E>
__device__ PreparedHead<E> head_of_row(const GpuArgs& a, const GpuPointers& p, uint32_t row, uint32_t head) {
  const auto pos = static_cast<uint32_t>(p.pos[row]);
  const uint32_t q_columns = a.q_heads * a.kv.k.dim;
  const float *x = p.q + row * a.q_row, *table = a.rotated == 0 ? nullptr : p.rope + int64_t{pos} * a.rotated;
  if (head < a.q_heads) {
    E* to = static_cast<E*>(p.converted) + int64_t{row} * q_columns + head * a.kv.k.dim;
    return {x + head * a.kv.k.dim, to, a.kv.k.dim, p.q_weight, table};
  }
  const bool v = head >= a.q_heads + a.kv.heads;
  const uint32_t kv_head = head - a.q_heads - (v ? a.kv.heads : 0);
  const cuda::KvPlane& plane = v ? a.kv.v : a.kv.k;
  if (pos >= a.kv_len) return {};
  const cuda::KvRows rows(a.kv, plane, v ? p.values : p.keys, p.pages, static_cast<uint32_t>(p.slot[row]), kv_head);
  return {x + q_columns + (v ? a.kv.heads * a.kv.k.dim : 0) + kv_head * plane.dim, reinterpret_cast<E*>(rows.at(pos)),
          plane.dim, v ? nullptr : p.k_weight, v ? nullptr : table};
}

constexpr uint32_t kPrepareWarps = 4, kPrepareHeads = 8;

// A warp takes some heads of a row: of Q and, if they are to be appended, of K and V. It reads all before it writes.
template <class E, uint32_t D>
__global__ void __launch_bounds__(32 * kPrepareWarps)
    prepare_kernel(const __grid_constant__ GpuArgs a, const __grid_constant__ GpuPointers p) {
  cuda::wait();
  const uint32_t heads = a.q_heads + (a.append != 0 ? 2 * a.kv.heads : 0),
                 first = (blockIdx.x * kPrepareWarps + threadIdx.x / 32) * kPrepareHeads,
                 end = min(first + kPrepareHeads, heads);
  for (uint32_t row = blockIdx.y; row < min(*p.live, a.rows); row += gridDim.y) {
    if (p.slot[row] < 0) continue;
    if (!LaneTurn<D>::fits(a)) {
      for (uint32_t head = first; head < end; ++head) {
        const auto h = head_of_row<E>(a, p, row, head);
        if (h.to == nullptr) continue;
        prepare_head<D / 32>(a, h.from, h.dim, h.weight, h.table,
                             [&](uint32_t d, float value) { h.to[d] = cuda::from_float<E>(value); });
      }
      continue;
    }
    PreparedHead<E> h[kPrepareHeads];
    float x[kPrepareHeads][LaneTurn<D>::kOwn];
#pragma unroll
    for (uint32_t i = 0; i < kPrepareHeads; ++i) {
      if (first + i < end) h[i] = head_of_row<E>(a, p, row, first + i);
      if (h[i].to != nullptr) load_own<D>(h[i].from, x[i]);
    }
    LaneTurn<D> turn;
    turn.load(a, a.rotated == 0 ? nullptr : p.rope + int64_t{p.pos[row]} * a.rotated);
#pragma unroll
    for (uint32_t i = 0; i < kPrepareHeads; ++i) {
      if (h[i].to == nullptr) continue;
      if (h[i].table != nullptr) turn.apply(x[i]);
      store_own<E, D>(x[i], h[i].to);
    }
  }
}

constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps, kRows = 16 * kWarps;

template <class E, uint32_t D>
struct Prefill {
  static constexpr uint32_t kKeys = D <= 128 ? 64 : 32;  // of a tile
  static constexpr uint32_t kQueryBytes = kRows * kTileRow<D>, kTileBytes = kKeys * kTileRow<D>;
  static constexpr uint32_t kSharedBytes = kQueryBytes + 4 * kTileBytes;

  const GpuArgs& a;
  const GpuPointers& p;
  QueryTile t;
  uint32_t head, smem;

  __device__ uint32_t tile(bool v, uint32_t j) const { return smem + kQueryBytes + ((v ? 2 : 0) + j % 2) * kTileBytes; }
  __device__ void load_queries() const {
    const uint32_t dim = a.kv.k.dim;
    const E* from = static_cast<const E*>(p.converted) + (int64_t{t.first_row} * a.q_heads + head) * dim;
    for (uint32_t i = threadIdx.x; i < kRows * D / 8; i += kThreads) {
      const uint32_t r = i / (D / 8), piece = i % (D / 8), to = smem + tile_offset<D>(r, piece);
      if (r < t.rows && piece < dim / 8) {
        copy_async(to, from + int64_t{r} * a.q_heads * dim + piece * 8);
      } else {
        store_zeros(to);
      }
    }
  }
  // Tokens from `first` on; those from `end` on are zeros.
  __device__ void load_tile(bool v, uint32_t j, uint32_t first, uint32_t end) const {
    const cuda::KvPlane& plane = v ? a.kv.v : a.kv.k;
    const cuda::KvRows rows(a.kv, plane, v ? p.values : p.keys, p.pages, t.slot, head / a.group);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < kKeys * D / 8; i += kThreads) {
      const uint32_t r = i / (D / 8), piece = i % (D / 8), to = tile(v, j) + tile_offset<D>(r, piece);
      if (first + r < end && piece < plane.dim / 8) {
        copy_async(to, rows.at(first + r) + piece * 16);
      } else {
        store_zeros(to);
      }
    }
  }

  __device__ void run() {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    const uint32_t end = t.position + t.rows, begin = first_seen(a, t.position) / kKeys * kKeys;
    load_queries();
    load_tile(false, 0, begin, end);
    commit_copies();
    load_tile(true, 0, begin, end);
    commit_copies();

    uint32_t seen[2], past[2];
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t pos = t.position + warp * 16 + g + 8 * h;
      seen[h] = first_seen(a, pos), past[h] = pos + 1;
    }
    const ScoreScale scale = score_scale(a.scale, a.softcap);
    float top[2] = {kNothing, kNothing}, sum[2] = {0, 0}, out[D / 8][4] = {};
    uint32_t j = 0;
    for (uint32_t first = begin; first < end; first += kKeys, ++j) {
      wait_copies<1>();
      __syncthreads();
      if (first + kKeys < end) load_tile(false, j + 1, first + kKeys, end);
      commit_copies();
      float s[kKeys / 8][4] = {};
#pragma unroll
      for (uint32_t k = 0; k < D / 16; ++k) {
        uint32_t q[4];
        load_matrices(q, smem + tile_offset<D>(warp * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
        for (uint32_t n = 0; n < kKeys / 16; ++n) {
          uint32_t b[4];
          load_matrices(b, tile(false, j) + tile_offset<D>(n * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
          multiply<E>(s[2 * n], q, b[0], b[1]);
          multiply<E>(s[2 * n + 1], q, b[2], b[3]);
        }
      }
      const bool whole = first + kKeys <= t.position + 1 && (a.window == 0 || first >= first_seen(a, end - 1));
      softmax(s, first + lane % 4 * 2, whole, seen, past, scale, top, sum, out);
      wait_copies<1>();
      __syncthreads();
      if (first + kKeys < end) load_tile(true, j + 1, first + kKeys, end);
      commit_copies();
#pragma unroll
      for (uint32_t k = 0; k < kKeys / 16; ++k) {
        const uint32_t weights[4] = {pack<E>(s[2 * k][0], s[2 * k][1]), pack<E>(s[2 * k][2], s[2 * k][3]),
                                     pack<E>(s[2 * k + 1][0], s[2 * k + 1][1]),
                                     pack<E>(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
        for (uint32_t n = 0; n < D / 16; ++n) {
          uint32_t b[4];
          load_matrices_transposed(b, tile(true, j) + tile_offset<D>(k * 16 + lane % 16, n * 2 + lane / 16));
          multiply<E>(out[2 * n], weights, b[0], b[1]);
          multiply<E>(out[2 * n + 1], weights, b[2], b[3]);
        }
      }
    }
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t r = warp * 16 + g + 8 * h;
      const float weight = 1 / row_sum(sum[h]);
      if (r >= t.rows) continue;
      const int64_t row = t.first_row + r;
      float* to = p.out + row * a.out_row + head * a.kv.v.dim + lane % 4 * 2;
#pragma unroll
      for (uint32_t i = 0; i < D / 8; ++i) {
        if (i * 8 >= a.kv.v.dim) break;
        to[i * 8] = out[i][2 * h] * weight, to[i * 8 + 1] = out[i][2 * h + 1] * weight;
      }
    }
  }

  // Scores become weights; what was accumulated under the old maximum shrinks.
  __device__ void softmax(float (&s)[kKeys / 8][4], uint32_t token, bool whole, const uint32_t (&seen)[2],
                          const uint32_t (&past)[2], const ScoreScale& scale, float (&top)[2], float (&sum)[2],
                          float (&out)[D / 8][4]) const {
    float higher[2] = {top[0], top[1]};
#pragma unroll
    for (uint32_t n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t h = e / 2, at = token + n * 8 + e % 2;
        s[n][e] = whole || (at >= seen[h] && at < past[h]) ? scale(s[n][e]) : kNothing;
        higher[h] = fmaxf(higher[h], s[n][e]);
      }
    }
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      higher[h] = row_max(higher[h]);
      const float base = higher[h] == kNothing ? 0 : higher[h], shrink = exp2_approx(top[h] - base);
      top[h] = higher[h], sum[h] *= shrink;
#pragma unroll
      for (uint32_t n = 0; n < kKeys / 8; ++n) {
        for (uint32_t e = 2 * h; e < 2 * h + 2; ++e) sum[h] += s[n][e] = exp2_approx(s[n][e] - base);
      }
#pragma unroll
      for (uint32_t n = 0; n < D / 8; ++n) out[n][2 * h] *= shrink, out[n][2 * h + 1] *= shrink;
    }
  }
};

template <class E, uint32_t D>
__global__ void __launch_bounds__(kThreads)
    prefill_kernel(const __grid_constant__ GpuArgs a, const __grid_constant__ GpuPointers p) {
  extern __shared__ __align__(128) char smem[];
  const QueryTile t = QueryTile::of<kRows>(p, blockIdx.y);
  cuda::wait();
  if (t.rows != 0) Prefill<E, D>{a, p, t, blockIdx.x, shared_address(smem)}.run();
}

template <class E, uint32_t D>
void launch(const GpuArgs& a, const cuda::Launch& l) {
  l(&prefill_kernel<E, D>,
    {.blocks = {a.q_heads, query_tiles(a, kRows)}, .threads = {kThreads}, .shared_bytes = Prefill<E, D>::kSharedBytes},
    a, pointers(a, l));
}

}  // namespace

void prepare(const GpuArgs& a, const cuda::Launch& l) {
  constexpr uint32_t kMostRowBlocks = 32768;  // further rows are taken in turns
  constexpr uint32_t kPerBlock = kPrepareWarps * kPrepareHeads;
  const uint32_t heads = a.q_heads + (a.append != 0 ? 2 * a.kv.heads : 0);
  with_half(a.kv.k.codec, [&]<class E>(E) {
    const uint32_t dim = std::max(a.kv.k.dim, a.kv.v.dim);
    l(dim <= 64    ? &prepare_kernel<E, 64>
      : dim <= 128 ? &prepare_kernel<E, 128>
                   : &prepare_kernel<E, 256>,
      {.blocks = {(heads + kPerBlock - 1) / kPerBlock, std::min(a.rows, kMostRowBlocks)},
       .threads = {32 * kPrepareWarps}},
      a, pointers(a, l));
  });
}

void prefill(const GpuArgs& a, const cuda::Launch& l) {
  const uint32_t dim = std::max(a.kv.k.dim, a.kv.v.dim);
  with_half(a.kv.k.codec, [&]<class E>(E) {
    dim <= 64    ? launch<E, 64>(a, l)
    : dim <= 96  ? launch<E, 96>(a, l)
    : dim <= 128 ? launch<E, 128>(a, l)
                 : launch<E, 256>(a, l);
  });
}

}  // namespace tenon::flash
