// Attention of steps with many rows on Hopper, after FlashAttention-3 (Shah et al., arXiv:2407.08608).
//
// A block takes 128 rows of one query head. A producer warp fills a ring of K and V tiles of 128 tokens through the
// tensor copy engine; two consumer warpgroups take 64 rows each. Within a warpgroup the next tile's scores are computed
// while the last tile's values are accumulated, and the two warpgroups take turns to issue their products, so that
// one's softmax runs beside the other's products. Tiles go from the last position to the first: masks come first.
#include <cudaTypedefs.h>

#include <algorithm>
#include <string_view>

#include "cuda_ops.h"
#include "head.cuh"
#include "prefill.cuh"
#include "warpgroup.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177  // what nothing but the kernel for sm_90a refers to
#endif

namespace tenon::flash {
namespace {

constexpr uint32_t kRows = 128, kKeys = 128, kStages = 2;
constexpr uint32_t kConsumers = 2, kGroupThreads = 128, kThreads = (kConsumers + 1) * kGroupThreads;
constexpr uint32_t kRowsOfGroup = kRows / kConsumers;
static_assert(kRowsOfGroup == 64);
constexpr uint32_t kHalfBytes = kKeys * kHalfRow;  // of any tile
static_assert(kRows == kKeys);
enum NamedBarrier { kTurn = 1, kGroup = kTurn + kConsumers };  // one each for every consumer

struct Maps {
  CUtensorMap q, k, v;
};

// Shared memory: Q, the stages of K, those of V, and barriers.
template <uint32_t D>
struct Layout {
  static constexpr uint32_t kTileBytes = kHalfBytes * (D / kHalfColumns);
  static constexpr uint32_t kKeysAt = kTileBytes, kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr uint32_t kBarriersAt = kValuesAt + kStages * kTileBytes;
  static constexpr uint32_t kAlignment = 1024;  // of the swizzle
  static constexpr uint32_t kSharedBytes = kBarriersAt + (1 + 4 * kStages) * 8 + kAlignment;

  uint32_t base;
  __device__ uint32_t queries() const { return base; }
  __device__ uint32_t tile(bool v, uint32_t stage) const {
    return base + (v ? kValuesAt : kKeysAt) + stage * kTileBytes;
  }
  __device__ uint32_t queries_full() const { return base + kBarriersAt; }
  __device__ uint32_t full(bool v, uint32_t stage) const {
    return base + kBarriersAt + 8 + ((v ? kStages : 0) + stage) * 8;
  }
  __device__ uint32_t empty(bool v, uint32_t stage) const { return full(v, stage) + 2 * kStages * 8; }
};

// The tiles of positions that a block walks, from the last one down.
struct Walk {
  uint32_t last, count;  // tiles
  __device__ Walk(const GpuArgs& a, const QueryTile& t) {
    const uint32_t end = t.position + t.rows;
    last = (end - 1) / kKeys;
    count = last - first_seen(a, t.position) / kKeys + 1;
  }
  __device__ uint32_t token(uint32_t i) const { return (last - i) * kKeys; }
};

// Which stage the i-th tile is in, and the parity of the barriers' phase.
__device__ __forceinline__ uint32_t stage_of(uint32_t i) {
  return i % kStages;
}
__device__ __forceinline__ uint32_t parity_of(uint32_t i) {
  return i / kStages % 2;
}

template <uint32_t D>
__device__ void produce(const GpuArgs& a, const GpuPointers& p, const Maps& maps, const Layout<D>& s,
                        const QueryTile& t, const Walk& walk) {
  constexpr uint32_t kHalves = D / kHalfColumns;
  const auto head = static_cast<int32_t>(blockIdx.x), kv_head = static_cast<int32_t>(blockIdx.x / a.group);
  const uint32_t run = min(kKeys, a.kv.page_cells), shift = 31 - static_cast<uint32_t>(__clz(a.kv.page_cells));
  const int32_t* pages = p.pages + size_t{t.slot} * a.kv.columns;
  const auto load = [&](bool v, uint32_t i) {
    const uint32_t stage = stage_of(i), barrier = s.full(v, stage), first = walk.token(i);
    wait_barrier(s.empty(v, stage), parity_of(i) ^ 1);
    arrive_expecting(barrier, Layout<D>::kTileBytes);
    for (uint32_t r = 0; r < kKeys; r += run) {
      const uint32_t token = first + r;
      // Tokens behind the last have no page: outside of the map, hence zeros.
      const int32_t page = token < t.position + t.rows ? pages[token >> shift] : -1;
      for (uint32_t h = 0; h < kHalves; ++h) {
        copy_box(s.tile(v, stage) + h * kHalfBytes + r * kHalfRow, v ? maps.v : maps.k, barrier,
                 static_cast<int32_t>(h * kHalfColumns), static_cast<int32_t>(token & (a.kv.page_cells - 1)), kv_head,
                 page);
      }
    }
  };
  arrive_expecting(s.queries_full(), Layout<D>::kTileBytes);
  for (uint32_t h = 0; h < kHalves; ++h) {
    copy_box(s.queries() + h * kHalfBytes, maps.q, s.queries_full(), static_cast<int32_t>(h * kHalfColumns),
             static_cast<int32_t>(t.first_row), head, 0);
  }
  load(false, 0);
  for (uint32_t i = 1; i < walk.count; ++i) load(false, i), load(true, i - 1);
  load(true, walk.count - 1);
}

// One warpgroup's 64 rows; a thread has parts of rows g and g + 8 of its warp's 16.
template <class E, uint32_t D>
struct Consumer {
  const GpuArgs& a;
  const GpuPointers& p;
  const Layout<D>& s;
  const QueryTile& t;
  const Walk& walk;
  uint32_t group, lane, row;  // row: of the tile, the first of the thread's two
  float factor;

  using Scores = float[kKeys / 2];
  using Values = float[D / 2];
  using Weights = uint32_t[kKeys / 16][4];  // by product
  struct Softmax {
    float top[2], sum[2];
  };

  __device__ Consumer(const GpuArgs& args, const GpuPointers& pointers, const Layout<D>& shared, const QueryTile& tile,
                      const Walk& w)
      : a(args), p(pointers), s(shared), t(tile), walk(w) {
    group = threadIdx.x / kGroupThreads - 1, lane = threadIdx.x % 32;
    row = group * kRowsOfGroup + threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
    factor = a.scale * kLog2E;
  }

  __device__ __forceinline__ void multiply_keys(Scores& scores, uint32_t i) const {
    const uint32_t queries = s.queries() + group * kRowsOfGroup * kHalfRow, keys = s.tile(false, stage_of(i));
    begin_products();
#pragma unroll
    for (uint32_t k = 0; k < D / 16; ++k) {
      const uint32_t at = k / 4 * kHalfBytes + k % 4 * 32;
      multiply_tiles<E>(scores, describe_tile(queries + at, 0), describe_tile(keys + at, 0), k != 0);
    }
    commit_products();
  }
  __device__ __forceinline__ void multiply_values(Values& out, const Weights& weights, uint32_t i) const {
    const uint32_t values = s.tile(true, stage_of(i));
    begin_products();
#pragma unroll
    for (uint32_t k = 0; k < kKeys / 16; ++k) {
      multiply_rows<E>(out, weights[k], describe_tile(values + k * 16 * kHalfRow, kHalfBytes));
    }
    commit_products();
  }
  __device__ __forceinline__ void release(bool v, uint32_t i) const {
    if (lane == 0) arrive(s.empty(v, stage_of(i)));
  }

  // What lies in a tile behind the last token is multiplied by 0, so it must be finite.
  __device__ __forceinline__ void clear_values(uint32_t i) const {
    const uint32_t left = t.position + t.rows - walk.token(i);
    if (left >= kKeys) return;
    const uint32_t pieces = (kKeys - left) * kHalfRow / 16;
    for (uint32_t at = threadIdx.x % kGroupThreads; at < pieces; at += kGroupThreads) {
      for (uint32_t h = 0; h < D / kHalfColumns; ++h) {
        store_zeros(s.tile(true, stage_of(i)) + h * kHalfBytes + left * kHalfRow + at * 16);
      }
    }
    fence_async();
    named_sync(kGroup + group, kGroupThreads);
  }

  // Scores of tile i become weights. Returns by how much what was accumulated before shrinks, for both rows.
  __device__ __forceinline__ float2 softmax(Scores& scores, Softmax& state, uint32_t i) const {
    const uint32_t token = walk.token(i), position = t.position + group * kRowsOfGroup;
    const bool whole = token + kKeys <= position + 1 && token >= first_seen(a, position + kRowsOfGroup - 1);
    if (!whole) {
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t pos = t.position + row + 8 * h, seen = first_seen(a, pos);
#pragma unroll
        for (uint32_t n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (uint32_t e = 0; e < 2; ++e) {
            const uint32_t at = token + n * 8 + lane % 4 * 2 + e;
            if (at < seen || at > pos) scores[4 * n + 2 * h + e] = -INFINITY;
          }
        }
      }
    }
    float shrink[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      float higher = state.top[h];
#pragma unroll
      for (uint32_t n = 0; n < kKeys / 8; ++n) {
        higher = fmaxf(higher, fmaxf(scores[4 * n + 2 * h], scores[4 * n + 2 * h + 1]));
      }
      higher = row_max(higher);
      const float base = higher == -INFINITY ? 0 : higher * factor;
      shrink[h] = exp2_approx(state.top[h] * factor - base);
      state.top[h] = higher;
      float own = 0;
#pragma unroll
      for (uint32_t n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
          float& x = scores[4 * n + 2 * h + e];
          own += x = exp2_approx(x * factor - base);
        }
      }
      state.sum[h] = state.sum[h] * shrink[h] + own;
    }
    return {shrink[0], shrink[1]};
  }
  static __device__ __forceinline__ void convert(const Scores& scores, Weights& weights) {
#pragma unroll
    for (uint32_t n = 0; n < kKeys / 4; ++n) weights[n / 4][n % 4] = pack<E>(scores[2 * n], scores[2 * n + 1]);
#pragma unroll
    for (uint32_t k = 0; k < kKeys / 16; ++k) hold(weights[k]);
  }

  __device__ __forceinline__ void run() const {
    Softmax state{{-INFINITY, -INFINITY}, {0, 0}};
    Scores scores;
    Values out;
    Weights weights;
#pragma unroll
    for (float& x : out) x = 0;
    wait_barrier(s.queries_full(), 0);
    wait_barrier(s.full(false, 0), 0);
    multiply_keys(scores, 0);
    wait_products<0>();
    hold(scores);
    release(false, 0);
    softmax(scores, state, 0);
    convert(scores, weights);
    wait_barrier(s.full(true, 0), 0);
    clear_values(0);
    if (group == 1) named_arrive(kTurn, kConsumers * kGroupThreads);
    for (uint32_t i = 1; i < walk.count; ++i) {
      wait_barrier(s.full(false, stage_of(i)), parity_of(i));
      named_sync(kTurn + group, kConsumers * kGroupThreads);
      hold(scores), hold(out);
      multiply_keys(scores, i);
      wait_barrier(s.full(true, stage_of(i - 1)), parity_of(i - 1));
      multiply_values(out, weights, i - 1);
      named_arrive(kTurn + (group ^ 1), kConsumers * kGroupThreads);
      wait_products<1>();
      hold(scores);
      release(false, i);
      const float2 shrink = softmax(scores, state, i);
      wait_products<0>();
      hold(out);
      release(true, i - 1);
#pragma unroll
      for (uint32_t n = 0; n < D / 8; ++n) {
        out[4 * n] *= shrink.x, out[4 * n + 1] *= shrink.x;
        out[4 * n + 2] *= shrink.y, out[4 * n + 3] *= shrink.y;
      }
      convert(scores, weights);
    }
    wait_barrier(s.full(true, stage_of(walk.count - 1)), parity_of(walk.count - 1));
    hold(out);
    multiply_values(out, weights, walk.count - 1);
    wait_products<0>();
    hold(out);
    store(out, state);
  }

  __device__ __forceinline__ void store(const Values& out, const Softmax& state) const {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const float weight = 1 / row_sum(state.sum[h]);
      if (row + 8 * h >= t.rows) continue;
      const int64_t r = t.first_row + row + 8 * h;
      float* to = p.out + r * a.out_row + blockIdx.x * D + lane % 4 * 2;
#pragma unroll
      for (uint32_t i = 0; i < D / 8; ++i) {
        *reinterpret_cast<float2*>(to + i * 8) = {out[4 * i + 2 * h] * weight, out[4 * i + 2 * h + 1] * weight};
      }
    }
  }
};

template <class E, uint32_t D>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_kernel(const __grid_constant__ GpuArgs a, const __grid_constant__ GpuPointers p,
                 const __grid_constant__ Maps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char smem[];
  const QueryTile t = QueryTile::of<kRows>(p, blockIdx.y);
  if (t.rows == 0) return;
  const Walk walk(a, t);
  const Layout<D> s{(shared_address(smem) + Layout<D>::kAlignment - 1) / Layout<D>::kAlignment * Layout<D>::kAlignment};
  if (threadIdx.x == 0) {
    init_barrier(s.queries_full(), 1);
    for (const bool v : {false, true}) {
      for (uint32_t i = 0; i < kStages; ++i) {
        init_barrier(s.full(v, i), 1), init_barrier(s.empty(v, i), kConsumers * kGroupThreads / 32);
      }
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    fewer_registers<24>();
    if (threadIdx.x == 0) produce<D>(a, p, maps, s, t, walk);
  } else {
    more_registers<240>();
    Consumer<E, D>(a, p, s, t, walk).run();
  }
#endif
}

PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  TENON_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) throw sdk::Failed("the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

struct MapShape {
  uint64_t dim[4], stride[3];  // innermost first; strides in bytes, of dimensions 1 to 3
  uint32_t rows;               // of a box, along dimension 1
};
CUtensorMap make_map(uint32_t codec, void* base, const MapShape& s) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();
  const uint32_t box[4] = {kHalfColumns, s.rows, 1, 1}, steps[4] = {1, 1, 1, 1};
  CUtensorMap map{};
  const CUresult status =
      encode(&map, codec == TENON_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, base,
             s.dim, s.stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) throw sdk::Failed("cuTensorMapEncodeTiled: error " + std::to_string(status));
  return map;
}

template <class E, uint32_t D>
void launch(const GpuArgs& a, const cuda::Launch& l) {
  const GpuPointers p = pointers(a, l);
  const uint64_t q_head = D * sizeof(E), q_row = q_head * a.q_heads;
  const auto plane = [&](void* base, const cuda::KvPlane& kv) {
    const uint64_t tokens = a.kv.columns == 1 ? std::min(a.kv_len, a.kv.page_cells) : a.kv.page_cells;
    return make_map(kv.codec, base,
                    {{D, tokens, a.kv.heads, a.kv_pages},
                     {static_cast<uint64_t>(kv.cell), static_cast<uint64_t>(kv.head), static_cast<uint64_t>(kv.page)},
                     std::min(kKeys, a.kv.page_cells)});
  };
  const Maps maps{make_map(a.kv.k.codec, p.converted, {{D, a.rows, a.q_heads, 1}, {q_row, q_head, q_row}, kRows}),
                  plane(p.keys, a.kv.k), plane(p.values, a.kv.v)};
  l(&wgmma_kernel<E, D>,
    {.blocks = {a.q_heads, query_tiles(a, kRows)}, .threads = {kThreads}, .shared_bytes = Layout<D>::kSharedBytes}, a,
    p, maps);
}

}  // namespace

bool can_prefill_wgmma(const GpuArgs& a, uint32_t arch) {
  constexpr uint32_t kHopper = 90;
  constexpr bool kBuilt = std::string_view(TENON_PLUGIN_TARGETS).find("sm_90a") != std::string_view::npos;
  const auto fits = [](const cuda::KvPlane& p) {
    return (p.dim == 64 || p.dim == 128) && p.cell % 16 == 0 && p.head % 16 == 0 && p.page % 16 == 0;
  };
  return kBuilt && arch == kHopper && a.kv.k.dim == a.kv.v.dim && fits(a.kv.k) && fits(a.kv.v) && a.softcap == 0 &&
         a.out_row % 2 == 0 && a.kv.page_cells >= kSwizzleRows;
}

void prefill_wgmma(const GpuArgs& a, const cuda::Launch& l) {
  with_half(a.kv.k.codec, [&]<class E>(E) { a.kv.k.dim == 64 ? launch<E, 64>(a, l) : launch<E, 128>(a, l); });
}

}  // namespace tenon::flash
