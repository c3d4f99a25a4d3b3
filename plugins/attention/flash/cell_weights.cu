// This adds up softmax weights by cell (gather.h): scores are multiplied once more, by tensor cores, and become weights
// by the sums that attention has left. A block has 64 places of a KV head of a sequence, whose keys it holds in shared
// memory.
#include "cuda_ops.h"
#include "gather.cuh"
#include "softmax.cuh"
#include "tenon/cuda/mma.cuh"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tenon/sdk/live.h"
#include "tiles.cuh"

namespace tenon::flash {
namespace {

constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps;
constexpr uint32_t kCellsOfBlock = 64;

struct CellWeightPointers {
  const float* q;
  const void* keys;
  const int32_t *cell_of, *pos;
  const float* sums;
  const uint32_t* live;
  const int32_t *seq_slot, *seq_row;
  float* weights;
};

// Returns dimensions d and d + 1 of a query as two halves; they are zeros beyond `dim` and where there is no query.
template <cuda::HalfType E>
__device__ __forceinline__ uint32_t two_of(const float* q, uint32_t d, uint32_t dim) {
  if (q == nullptr || d >= dim) return 0;
  const float2 x = *reinterpret_cast<const float2*>(q + d);
  return cuda::to_halves<E>(x.x, x.y);
}

// These are the places of a block: kCellsOfBlock of a KV head of a sequence, whose keys are a tile in shared memory.
struct Places {
  uint32_t seq, kv_head, first, end;  // the sequence has places up to `end`
  uint32_t first_row, end_row;        // these rows' weights count
  const int32_t* pos;                 // by row of the step
  uint32_t tile;
};
// The whole block calls this.
template <cuda::HalfType E, uint32_t D>
__device__ __forceinline__ void load_keys(const CellWeightArgs& a, const E* keys, const Places& s) {
  const CopiedHead head{s.seq * (a.room / kCopiedPage), s.kv_head, a.heads};
  const E* from = keys + element_at(head, s.first, a.dim);
  for (uint32_t i = threadIdx.x; i < kCellsOfBlock * D / 8; i += kThreads) {
    const uint32_t r = i / (D / 8), piece = i % (D / 8), to = s.tile + tile_offset<D>(r, piece);
    if (s.first + r < s.end && piece < a.dim / 8) {
      cuda::copy_async(to, from + r * a.dim + piece * 8);
    } else {
      cuda::store_zeros(to);
    }
  }
  cuda::commit_copies();
  cuda::wait_copies<0>();
  __syncthreads();
}

// In a 16 x 8 product, lane 4 g + t has queries g and g + 8, and of eight places 2t and 2t + 1.
using PlaceSums = float[kCellsOfBlock / 8][2];  // [eight places][of the lane's two]
// Adds the weights of 16 queries, from number q on.
template <cuda::HalfType E, uint32_t D>
__device__ __forceinline__ void add_weights(const CellWeightArgs& a, const CellWeightPointers& p, const Places& places,
                                            uint32_t q, PlaceSums& sum) {
  const uint32_t queries = (places.end_row - places.first_row) * a.group;
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const ScoreScale scale = score_scale(a.scale, a.softcap);
  const float* own[2];  // by row of the product; nullptr: there is no such query
  float log[2];
  uint32_t past[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t number = q + g + 8 * i, row = places.first_row + number / a.group,
                   head = places.kv_head * a.group + number % a.group;
    const bool there = number < queries;
    own[i] = there ? p.q + row * a.q_row + head * a.dim : nullptr;
    log[i] = there ? p.sums[row * a.q_heads + head] : 0;
    past[i] = there ? static_cast<uint32_t>(places.pos[row]) + 1 : 0;
  }
  float s[kCellsOfBlock / 8][4] = {};
#pragma unroll
  for (uint32_t k = 0; k < D / 16; ++k) {
    const uint32_t d = k * 16 + 2 * t;
    const uint32_t x[4] = {two_of<E>(own[0], d, a.dim), two_of<E>(own[1], d, a.dim), two_of<E>(own[0], d + 8, a.dim),
                           two_of<E>(own[1], d + 8, a.dim)};
#pragma unroll
    for (uint32_t n = 0; n < kCellsOfBlock / 16; ++n) {
      uint32_t b[4];
      cuda::load_matrices(b, places.tile + pieces_first<D>(n * 16, k * 2));
      cuda::mma<E>(s[2 * n], x, b[0], b[1]);
      cuda::mma<E>(s[2 * n + 1], x, b[2], b[3]);
    }
  }
#pragma unroll
  for (uint32_t n = 0; n < kCellsOfBlock / 8; ++n) {
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t place = places.first + n * 8 + 2 * t + e % 2;
      if (place < past[e / 2]) sum[n][e % 2] += exp2_approx(scale(s[n][e]) - log[e / 2]);
    }
  }
}

// A block's warps take 16 queries at a time, of all rows and query heads that count.
template <cuda::HalfType E, uint32_t D>
__global__ void __launch_bounds__(kThreads)
    weights_kernel(const __grid_constant__ CellWeightArgs a, const __grid_constant__ CellWeightPointers p) {
  extern __shared__ __align__(128) char smem[];
  __shared__ float of_warp[kWarps][kCellsOfBlock];
  cuda::wait();
  const uint32_t seq = blockIdx.z, kv_head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto first_row = static_cast<uint32_t>(p.seq_row[seq]), end_row = static_cast<uint32_t>(p.seq_row[seq + 1]);
  if (first_row == end_row) return;
  const int32_t* pos = p.pos + size_t{kv_head} * a.rows;
  const uint32_t observed = max(first_row, end_row > a.weight_rows ? end_row - a.weight_rows : 0);
  const Places places{
      seq,     kv_head, blockIdx.x * kCellsOfBlock, static_cast<uint32_t>(pos[end_row - 1]) + 1, observed,
      end_row, pos,     cuda::shared_address(smem)};
  if (places.first >= places.end) return;
  load_keys<E, D>(a, static_cast<const E*>(p.keys), places);

  PlaceSums sum = {};
  for (uint32_t q = warp * 16; q < (end_row - observed) * a.group; q += kWarps * 16) {
    add_weights<E, D>(a, p, places, q, sum);
  }
#pragma unroll
  for (uint32_t n = 0; n < kCellsOfBlock / 8; ++n) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      const float of_place = cuda::column_sum(sum[n][e]);
      if (lane < 4) of_warp[warp][n * 8 + 2 * lane + e] = of_place;
    }
  }
  __syncthreads();
  const uint32_t place = places.first + threadIdx.x;
  if (threadIdx.x >= kCellsOfBlock || place >= places.end) return;
  float all = 0;
  for (uint32_t w = 0; w < kWarps; ++w) all += of_warp[w][threadIdx.x];
  const auto cell = static_cast<uint32_t>(p.cell_of[(size_t{seq} * a.heads + kv_head) * a.room + place]);
  p.weights[(size_t{static_cast<uint32_t>(p.seq_slot[seq])} * a.heads + kv_head) * a.capacity + cell] = all;
}

}  // namespace

void cell_weights(const CellWeightArgs& a, const cuda::Launch& l) {
  const CellWeightPointers p{
      l.ptr<const float>(kWeightQuery),     l.ptr<const void>(kWeightKeys),      l.ptr<const int32_t>(kWeightCellOf),
      l.ptr<const int32_t>(kWeightPos),     l.ptr<const float>(kWeightSums),     l.ptr<const uint32_t>(kWeightLive),
      l.ptr<const int32_t>(kWeightSeqSlot), l.ptr<const int32_t>(kWeightSeqRow), l.ptr<float>(kWeights)};
  with_half(a.codec, [&]<class E>(E) {
    with_dim<64, 96, 128, 256>(a.dim, [&]<uint32_t D>() {
      l(&weights_kernel<E, D>,
        {.blocks = {(a.room + kCellsOfBlock - 1) / kCellsOfBlock, a.heads, a.seqs},
         .threads = {kThreads},
         .shared_bytes = kCellsOfBlock * kTileRowBytes<D>},
        a, p);
    });
  });
}

}  // namespace tenon::flash
