// This does the attention of steps with many rows on Hopper, after FlashAttention-3 (Shah et al.,
// arXiv:2407.08608). Its naive twins are exact.cuh, which computes the formula in f32, and
// AttentionHost::expected() of conformance/attention_expected.cc, in f64.
//
// A block takes tiles of 128 rows of one query head, one after the other. A producer fills a ring of K and V tiles of 128 tokens: one thread through
// the tensor copy engine or, where the cache has codes, a warpgroup that converts them. Two consumer warpgroups take 64
// rows each. Within a warpgroup the next tile's scores are computed while the last tile's values are added up, and the
// two warpgroups take turns to issue their products, so that one's softmax runs beside the other's products. Tiles go
// from the last position to the first: masks come first.
//
// Example: rows 0 to 127 of a sequence that begins at position 4000 see positions 0 to 4127: 33 tiles, of which the
// first that is walked is tile 32 (tokens 4096 to 4223).
#include <algorithm>
#include <string_view>

#include "cuda_ops.h"
#include "halves_result.cuh"
#include "softmax.cuh"
#include "tenon/cuda/mma.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tenon/cuda/tensor_map.h"
#include "tenon/cuda/warp.cuh"
#include "tenon/cuda/warpgroup.cuh"
#include "wgmma_block.cuh"
#include "wgmma_codes.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177  // nothing but the kernel for sm_90a refers to some of this
#endif

namespace tenon::flash {
namespace {

using namespace wgmma;

// ---- the consumers ----------------------------------------------------------------------------------------------------
// A warpgroup has 64 rows. Of its warp's 16, lane 4 g + t has rows g and g + 8; "row" of an array below is 0 for g and 1
// for g + 8. Of eight keys or dimensions it has 2t and 2t + 1: element 4 * eight + 2 * row + i is of 2t + i.
// C is the cache's Codec if that has scales, else void.
template <cuda::HalfType E, uint32_t D, class C>
struct Consumer {
  using Scores = float[kTileKeys / 2];
  using Values = float[D / 2];
  using Weights = uint32_t[kTileKeys / 16][4];  // [16 keys]: an A fragment (rows 16, keys 16)
  struct Softmax {
    float top[2], sum[2];  // by row: the greatest score, the sum of the lane's weights
  };

  const BlockWork<D, C>& b;
  const GpuArgs& a;
  const Layout<D, C>& s;
  uint32_t warpgroup, lane, row;  // row: the first of the lane's two, in the tile of queries
  float factor;

  __device__ explicit Consumer(const BlockWork<D, C>& block) : b(block), a(block.a), s(block.s) {
    warpgroup = threadIdx.x / kWarpgroupThreads - 1;
    lane = cuda::lane_id();
    row = warpgroup * kConsumerRows + threadIdx.x % kWarpgroupThreads / 32 * 16 + lane / 4;
    factor = a.scale * kLog2E;
  }

  // Computes scores (rows 64, keys 128) = queries (rows 64, D) keys (D, 128).
  __device__ __forceinline__ void multiply_keys(Scores& scores, uint32_t i) const {
    using namespace cuda::warpgroup;
    const uint32_t queries = s.queries() + warpgroup * kConsumerRows * kSwizzledRowBytes;
    const uint32_t keys = s.tile(Side::kKeys, stage_of(i));
    begin();
#pragma unroll
    for (uint32_t k = 0; k < D / 16; ++k) {
      const uint32_t at = k / 4 * kSliceBytes + k % 4 * 32;
      multiply_shared<E>(scores, describe_swizzled(queries + at, 0), describe_swizzled(keys + at, 0), k != 0);
    }
    commit();
  }
  // Computes out (rows 64, D) += weights (rows 64, keys 128) values (128, D).
  __device__ __forceinline__ void multiply_values(Values& out, const Weights& weights, uint32_t i) const {
    using namespace cuda::warpgroup;
    const uint32_t values = s.tile(Side::kValues, stage_of(i));
    begin();
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k) {
      multiply<E, Contiguous::kAlongN>(out, weights[k],
                                       describe_swizzled(values + k * 16 * kSwizzledRowBytes, kSliceBytes));
    }
    commit();
  }
  __device__ __forceinline__ void wait_full(Side side, uint32_t i) const {
    s.full(side, stage_of(i)).wait(parity_of(i));
  }
  // The warp has read a tile.
  __device__ __forceinline__ void release(Side side, uint32_t i) const {
    if (lane == 0) s.empty(side, stage_of(i)).arrive();
  }

  // Values after the last token are multiplied by 0, so they must be finite. Those of codes are zeros.
  __device__ __forceinline__ void clear_values(uint32_t i) const {
    if constexpr (!std::is_void_v<C>) return;
    const uint32_t left = b.t.end - b.walk.token(i);
    if (left >= kTileKeys) return;
    const uint32_t pieces = (kTileKeys - left) * kSwizzledRowBytes / 16;
    for (uint32_t at = threadIdx.x % kWarpgroupThreads; at < pieces; at += kWarpgroupThreads) {
      for (uint32_t h = 0; h < Layout<D, C>::kSlices; ++h) {
        cuda::store_zeros(s.tile(Side::kValues, stage_of(i)) + h * kSliceBytes + left * kSwizzledRowBytes + at * 16);
      }
    }
    cuda::fence_async();
    cuda::named_sync(kConsumer + warpgroup, kWarpgroupThreads);
  }

  __device__ __forceinline__ void mask(Scores& scores, uint32_t token) const {
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t pos = b.t.position + row + 8 * h, seen = a.first(pos), past = a.past(pos);
#pragma unroll
      for (uint32_t n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
          const uint32_t at = token + n * 8 + lane % 4 * 2 + e;
          if (at < seen || at >= past) scores[4 * n + 2 * h + e] = kNothing;
        }
      }
    }
  }
  // Makes weights of the scores of tile i. Returns, for both rows, by how much what was added up before shrinks.
  __device__ __forceinline__ float2 softmax(Scores& scores, Softmax& state, uint32_t i) const {
    const uint32_t token = b.walk.token(i), position = b.t.position + warpgroup * kConsumerRows;
    const bool whole = token + kTileKeys <= a.past(position) && token >= a.first(position + kConsumerRows - 1);
    if (!whole) mask(scores, token);
    float shrink[2];  // by row
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      float higher = state.top[h];
#pragma unroll
      for (uint32_t n = 0; n < kTileKeys / 8; ++n) {
        higher = fmaxf(higher, fmaxf(scores[4 * n + 2 * h], scores[4 * n + 2 * h + 1]));
      }
      higher = cuda::row_max(higher);
      const float base = higher == kNothing ? 0 : higher * factor;
      shrink[h] = exp2_approx(state.top[h] * factor - base);
      state.top[h] = higher;
      float own = 0;
#pragma unroll
      for (uint32_t n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
          float& x = scores[4 * n + 2 * h + e];
          x = exp2_approx(x * factor - base);
          own += x;
        }
      }
      state.sum[h] = state.sum[h] * shrink[h] + own;
    }
    return {shrink[0], shrink[1]};
  }
  // Makes A fragments of weights.
  static __device__ __forceinline__ void convert(const Scores& scores, Weights& weights) {
#pragma unroll
    for (uint32_t n = 0; n < kTileKeys / 4; ++n) {
      weights[n / 4][n % 4] = cuda::to_halves<E>(scores[2 * n], scores[2 * n + 1]);
    }
#pragma unroll
    for (uint32_t k = 0; k < kTileKeys / 16; ++k) cuda::warpgroup::hold(weights[k]);
  }

  __device__ __forceinline__ void run() const {
    using cuda::warpgroup::hold;
    using cuda::warpgroup::wait;
    Softmax state{{kNothing, kNothing}, {0, 0}};
    Scores scores;
    Values out;
    Weights weights;
#pragma unroll
    for (float& x : out) x = 0;

    // The first tile has scores alone.
    s.queries_full().wait(0);
    wait_full(Side::kKeys, 0);
    multiply_keys(scores, 0);
    wait<0>();
    hold(scores);
    release(Side::kKeys, 0);
    softmax(scores, state, 0);
    convert(scores, weights);
    wait_full(Side::kValues, 0);
    clear_values(0);

    // Tile i's scores are made beside tile i - 1's values. The first consumer has the first turn.
    if (warpgroup == 1) cuda::named_arrive(kTurn, kConsumers * kWarpgroupThreads);
    for (uint32_t i = 1; i < b.walk.count; ++i) {
      wait_full(Side::kKeys, i);
      cuda::named_sync(kTurn + warpgroup, kConsumers * kWarpgroupThreads);
      hold(scores);
      hold(out);
      multiply_keys(scores, i);
      wait_full(Side::kValues, i - 1);
      multiply_values(out, weights, i - 1);
      cuda::named_arrive(kTurn + (warpgroup ^ 1), kConsumers * kWarpgroupThreads);
      wait<1>();
      hold(scores);
      release(Side::kKeys, i);
      const float2 shrink = softmax(scores, state, i);
      wait<0>();
      hold(out);
      release(Side::kValues, i - 1);
#pragma unroll
      for (uint32_t n = 0; n < D / 8; ++n) {
        out[4 * n] *= shrink.x;
        out[4 * n + 1] *= shrink.x;
        out[4 * n + 2] *= shrink.y;
        out[4 * n + 3] *= shrink.y;
      }
      convert(scores, weights);
    }

    // The last tile's values are left.
    wait_full(Side::kValues, b.walk.count - 1);
    hold(out);
    multiply_values(out, weights, b.walk.count - 1);
    wait<0>();
    hold(out);
    store(out, state);
  }

  __device__ __forceinline__ void store(const Values& out, const Softmax& state) const {
    const uint32_t head = a.first_head + blockIdx.x;
#pragma unroll
    for (uint32_t h = 0; h < 2; ++h) {
      const float sum = cuda::row_sum(state.sum[h]);
      if (row + 8 * h >= b.t.rows) continue;
      const uint32_t r = b.t.first_row + row + 8 * h;
      const ResultFactors factors = result_factors(a, b.p, {r, head, state.top[h] * factor, sum}, lane % 4 == 0);
      if (a.out != Out::kF32) {
        store_halves<D>({a, b.p, r, head}, D,
                        [&](uint32_t i, uint32_t of_pair) { return out[4 * i + 2 * h + of_pair] * factors.own; });
        continue;
      }
      float* to = b.p.out + int64_t{r} * a.out_row + head * D + lane % 4 * 2;
#pragma unroll
      for (uint32_t i = 0; i < D / 8; ++i) {
        auto& two = *reinterpret_cast<float2*>(to + i * 8);
        two = {result_of(factors, out[4 * i + 2 * h], two.x), result_of(factors, out[4 * i + 2 * h + 1], two.y)};
      }
    }
  }
};

// A block takes its tiles of queries from here, one after the other. The first consumer's first warp finds the next one.
class Tiles {
 public:
  struct Found {
    uint32_t number;
    QueryTile tile;
  };
  // `found` is in shared memory.
  __device__ Tiles(const GpuArgs& a, const GpuPointers& p, Found& found) : a_(a), p_(p), found_(found) {
    uint32_t number = blockIdx.y;
    tile_ = QueryTile::next<kRows>(a, p, number);
    if (threadIdx.x == 0) found.number = number;
  }
  __device__ bool done() const { return tile_.rows == 0; }
  __device__ const QueryTile& tile() const { return tile_; }

  // Goes on to the next tile, when all threads are done with this one.
  template <class Shared>
  __device__ __forceinline__ void advance(const Shared& s) {
    tile_.rows = 0;
    if (a_.tile_rows == 0) return;
    // The second consumer has given a turn that the first one has not taken.
    if (threadIdx.x / kWarpgroupThreads == 1) cuda::named_sync(kTurn, kConsumers * kWarpgroupThreads);
    cuda::named_sync(kTileDone, kThreads);
    if (threadIdx.x == 0) s.make_barriers(true);
    if (threadIdx.x / 32 == kWarpgroupThreads / 32) find();
    cuda::named_sync(kTileFound, kThreads);
    tile_ = found_.tile;
  }

 private:
  __device__ __forceinline__ void find() const {
    uint32_t number = found_.number + gridDim.y;
    const QueryTile tile = QueryTile::next<kRows>(a_, p_, number);
    __syncwarp();  // all lanes have read the number
    if (cuda::lane_id() == 0) found_ = {number, tile};
  }

  const GpuArgs& a_;
  const GpuPointers& p_;
  Found& found_;
  QueryTile tile_;
};

template <cuda::HalfType E, uint32_t D, class C>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_kernel(const __grid_constant__ GpuArgs a, const __grid_constant__ GpuPointers p,
                 const __grid_constant__ Maps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char smem[];
  __shared__ Tiles::Found found;
  Tiles tiles(a, p, found);
  if (tiles.done()) return;
  constexpr uint32_t kAlignment = Layout<D, C>::kAlignment;
  constexpr bool kCoded = !std::is_void_v<C>;
  const Layout<D, C> s{(cuda::shared_address(smem) + kAlignment - 1) / kAlignment * kAlignment};
  if (threadIdx.x == 0) s.make_barriers(false);
  __syncthreads();
  if (threadIdx.x < kWarpgroupThreads) {
    cuda::warpgroup::keep_registers<kCoded ? 56 : 24>();
    for (; !tiles.done(); tiles.advance(s)) {
      const Walk walk(a, tiles.tile());
      const BlockWork<D, C> block{a, p, maps, s, tiles.tile(), walk};
      if (threadIdx.x == 0) load_queries(block);
      if constexpr (kCoded) {
        CodedProducer<D, C>(block).run();
      } else {
        if (threadIdx.x == 0) produce<D>(block);
      }
    }
  } else {
    cuda::warpgroup::take_registers<kCoded ? 224 : 240>();
    for (; !tiles.done(); tiles.advance(s)) {
      const Walk walk(a, tiles.tile());
      Consumer<E, D, C>(BlockWork<D, C>{a, p, maps, s, tiles.tile(), walk}).run();
    }
  }
#endif
}

// ---- the host's side --------------------------------------------------------------------------------------------------
template <cuda::HalfType E, uint32_t D, class C>
void launch(const GpuArgs& a, const cuda::Launch& l) {
  const GpuPointers p = pointers(a, l);
  const uint64_t q_head = D * sizeof(E), q_row = q_head * a.q_heads;
  const auto plane = [&](void* base, const cuda::KvPlane& kv) {
    const uint64_t tokens = a.kv.columns == 1 ? std::min(a.kv_len, a.kv.page_cells) : a.kv.page_cells;
    return cuda::make_tensor_map(
        half_of(kv.codec), base,
        {{D, tokens, a.kv.heads, a.kv_pages},
         {static_cast<uint64_t>(kv.cell), static_cast<uint64_t>(kv.head), static_cast<uint64_t>(kv.page)},
         std::min(kTileKeys, a.kv.page_cells)});
  };
  Maps maps{};
  maps.q = cuda::make_tensor_map(half_of(a.kv.k.codec), p.converted,
                                 {{D, a.rows, a.q_heads, 1}, {q_row, q_head, q_row}, kRows});
  if (std::is_void_v<C>) {
    maps.k = plane(p.keys, a.kv.k);
    maps.v = plane(p.values, a.kv.v);
  }
  l(&wgmma_kernel<E, D, C>,
    {.blocks = {a.kv.heads * a.group, tile_blocks(a, kRows)},
     .threads = {kThreads},
     .shared_bytes = Layout<D, C>::kSharedBytes},
    a, p, maps);
}

}  // namespace

bool can_prefill_wgmma(const GpuArgs& a, uint32_t arch) {
  constexpr uint32_t kHopper = 90;
  constexpr bool kBuilt = std::string_view(TENON_PLUGIN_TARGETS).find("sm_90a") != std::string_view::npos;
  const auto fits = [](const cuda::KvPlane& p) {
    return (p.dim == 64 || p.dim == 128) && p.cell % 16 == 0 && p.head % 16 == 0 && p.page % 16 == 0;
  };
  return kBuilt && arch == kHopper && a.kv.k.dim == a.kv.v.dim && fits(a.kv.k) && fits(a.kv.v) && a.softcap == 0 &&
         a.out_row % 2 == 0 && a.kv.page_cells >= cuda::warpgroup::kSwizzlePeriod;
}

void prefill_wgmma(const GpuArgs& a, const cuda::Launch& l) {
  with_cache(a.kv.k, [&]<class E, class C>(E, std::type_identity<C>) {
    with_dim<64, 128>(head_dim(a), [&]<uint32_t D>() { launch<E, D, C>(a, l); });
  });
}

}  // namespace tenon::flash
