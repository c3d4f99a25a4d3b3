// How decoding cuts a row's positions into splits, a block each, and folds what these have made.
#pragma once

#include "head.cuh"
#include "tenon/cuda/cluster.cuh"

namespace tenon::flash {

inline constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps;
inline constexpr uint32_t kQueries = 16;   // of a block: rows of a matrix product
inline constexpr uint32_t kAnchor = 1024;  // windows begin at multiples of it
// A block takes less time for so many than to fold what more make of them.
inline constexpr uint32_t kGranulesAlone = 2;
inline constexpr uint32_t kAmple = 256;  // positions of a split that are worth a block beside others
inline constexpr float kNothing = -INFINITY;

__host__ __device__ inline uint32_t queries_of_block(const GpuArgs& a) {
  const uint32_t most = a.rows_per_seq * a.group;
  return most < kQueries ? most : kQueries;
}
__host__ __device__ inline uint32_t tiles_of(const GpuArgs& a) {
  return (a.rows_per_seq * a.group + kQueries - 1) / kQueries;
}

// How the positions that a row sees are cut.
struct Cut {
  uint32_t start, size;
  __device__ bool operator==(const Cut& o) const { return start == o.start && size == o.size; }
  __device__ uint32_t count(uint32_t pos) const { return (pos - start) / size + 1; }
};
__device__ inline Cut cut(const GpuArgs& a, uint32_t pos) {
  const uint32_t start = first_seen(a, pos) / kAnchor * kAnchor, span = pos + 1 - start;
  if (a.of_many_rows != 0) {
    if (a.splits == 1) return {start, 1 << 30};
    const uint32_t step = a.granule * a.splits;
    return {start, max((span + step - 1) / step * a.granule, kAmple)};
  }
  const uint32_t alone = kGranulesAlone * a.granule;
  if (span <= alone * a.cluster) return {start, alone};
  const uint32_t step = a.granule * (span >= a.splits * kAmple ? a.splits : (a.splits + 1) / 2);
  return {start, (span + step - 1) / step * a.granule};
}

// What a block works on.
struct Work {
  uint32_t kv_head, tile, seq, slot;
  uint32_t first_row, rows;  // of the sequence in the step
  uint32_t query, queries;   // first of the block, of the block
  uint32_t old_len;
  const int32_t* pos;  // of the sequence's rows
  __device__ uint32_t row_of(const GpuArgs& a, uint32_t q) const { return (query + q) / a.group; }
  __device__ uint32_t head_of(const GpuArgs& a, uint32_t q) const { return kv_head * a.group + (query + q) % a.group; }
};

// One of the block's queries.
struct Query {
  uint32_t row, head;   // row: of the sequence
  uint32_t seen, past;  // it sees the positions in between
  uint32_t count;       // splits that it is cut into; 0: it does not belong to the pass
};

// Stores four dimensions of a query's result, of which sum is the softmax's.
__device__ inline void finish(const GpuArgs& a, const GpuPointers& p, const Work& w, const Query& q, uint32_t d,
                              float sum, const float (&value)[4]) {
  const uint32_t row = w.first_row + q.row;
  const float weight = 1 / sum;
  for (uint32_t i = 0; i < 4; ++i) p.out[row * a.out_row + q.head * a.kv.v.dim + d + i] = value[i] * weight;
}

// What a block has made of its split, in its shared memory.
template <uint32_t D>
struct Made {
  float2 sums[kQueries];  // maximum and sum
  float values[kQueries][D];
};

// Folds what some splits have made, in order. take(i, sums, value) reads split i's; 4 dimensions.
template <uint32_t kAtOnce, class Take>
__device__ __forceinline__ void fold(uint32_t count, float& top, float& sum, float (&value)[4], const Take& take) {
  top = kNothing, sum = 0;
  for (float& v : value) v = 0;
  for (uint32_t first = 0; first < count; first += kAtOnce) {
    float2 sums[kAtOnce];
    float4 values[kAtOnce];
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      take(min(first + k, count - 1), sums[k], values[k]);
      if (first + k >= count) sums[k] = {kNothing, 0};
    }
    float higher = top;
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) higher = fmaxf(higher, sums[k].x);
    if (higher == kNothing) continue;
    const float shrink = exp2_approx(top - higher);
    top = higher, sum *= shrink;
    for (float& v : value) v *= shrink;
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const float weight = exp2_approx(sums[k].x - top);
      sum += sums[k].y * weight;
      value[0] += values[k].x * weight, value[1] += values[k].y * weight;
      value[2] += values[k].z * weight, value[3] += values[k].w * weight;
    }
  }
}

// Scratch: v_dim floats for each query of each cluster of the grid, and behind them all the maxima and sums.
struct Partials {
  float* values;
  float2* sums;
  uint32_t clusters, queries, dim;
  __device__ Partials(const GpuArgs& a, float* scratch)
      : values(scratch), clusters(gridDim.z / a.cluster), queries(queries_of_block(a)), dim(a.kv.v.dim) {
    sums = reinterpret_cast<float2*>(scratch + uint64_t{gridDim.x} * gridDim.y * clusters * queries * dim);
  }
  __device__ uint64_t at(uint32_t cluster, uint32_t q) const {
    return ((uint64_t{blockIdx.y} * gridDim.x + blockIdx.x) * clusters + cluster) * queries + q;
  }
};

// The last of a row's clusters folds what all have made.
template <uint32_t D>
__device__ void combine(const GpuArgs& a, const GpuPointers& p, const Work& w, float* scratch) {
  const Partials partials(a, scratch);
#pragma unroll 1
  for (uint32_t i = threadIdx.x; i < w.queries * (D / 4); i += kThreads) {
    const uint32_t q = i / (D / 4), d = i % (D / 4) * 4, row = w.row_of(a, q);
    const uint32_t pos = static_cast<uint32_t>(w.pos[row]), count = cut(a, pos).count(pos);
    if (d >= a.kv.v.dim || count <= a.cluster) continue;
    float top, sum, value[4];
    fold<8>((count + a.cluster - 1) / a.cluster, top, sum, value, [&](uint32_t other, float2& sums, float4& values) {
      const uint64_t at = partials.at(other, q);
      sums = __ldcg(partials.sums + at);
      values = __ldcg(reinterpret_cast<const float4*>(partials.values + at * a.kv.v.dim + d));
    });
    const Query query{row, w.head_of(a, q), 0, 0, count};
    finish(a, p, w, query, d, sum, value);
  }
}

// True in the block that comes last of `most`, one of each cluster. What all stored before they met is visible to it.
__device__ inline bool is_last(uint32_t* counter, uint32_t most) {
  __shared__ uint32_t before;
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    if (before + 1 == most) *counter = 0;
  }
  __syncthreads();
  return before + 1 == most;
}

}  // namespace tenon::flash
