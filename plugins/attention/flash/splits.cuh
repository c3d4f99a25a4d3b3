// Decoding cuts the positions that a row sees into splits, each of which a team
// takes. Here is how, and what a team works on.
//
// Example: granules of 64 positions, splits = 2 * 132 / 8 = 33 -> 32 (whole clusters of 2), of a model with 8 KV heads
// on 132 multiprocessors; a step of few rows. A row at position 199 sees 200 positions, which are cut into splits of
// 128 positions: 2 splits. At position 383 it sees 384, in 2 splits of 192, which a cluster still folds by itself. At
// position 4095, a split has ceil(4096 / (64 * 16)) * 64 = 256 positions: 16 splits, because 32 would have fewer than
// kAmple positions each. At position 131071 it has 131072 / (64 * 32) * 64 = 4096: 32 splits.
#pragma once

#include "head.cuh"

namespace tenon::flash {

inline constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps;
inline constexpr uint32_t kQueries = 16;    // a team that is a block has so many: rows of a matrix product
inline constexpr uint32_t kFewQueries = 8;  // one that is a warp or reads codes has so many: columns of a product
inline constexpr uint32_t kDeepest = 12;    // see TeamShape
// A multiprocessor has so many blocks: each works while the others wait for keys and values. Codes
// bring more elements in the same time, and unpacking them needs more warps; rings of long keys by
// channel have room for as many as plain ones.
inline constexpr uint32_t kPlainBlocks = 2, kCodedBlocks = 3;
inline uint32_t team_blocks(const GpuArgs& a) {
  return a.kv.k.scale == 0 || (a.kv.k.group != 0 && head_dim(a) > kMostDim / 2) ? kPlainBlocks : kCodedBlocks;
}
// A row's first split begins at a multiple of kAnchor, or of kNearAnchor where the row reads a tail.
inline constexpr uint32_t kAnchor = 1024, kNearAnchor = 64;
// A team has at least so many granules: it takes less time for them than to fold what several teams make of them.
inline constexpr uint32_t kGranulesAlone = 2;
// A row is left to one cluster while its teams have no more granules than kGranulesOfCluster: more clusters would have to
// meet in memory. Where several sequences fill the GPU, their blocks would stand in line, too, so that the limit is
// kGranulesAmongSequences.
inline constexpr uint32_t kGranulesOfCluster = 4, kGranulesAmongSequences = 8;
// A split of so many positions is worth a block of its own where others have work, too.
inline constexpr uint32_t kAmple = 256;

__host__ __device__ inline uint32_t blocks_of_cluster(const GpuArgs& a) {
  return 1u << a.cluster_log2;
}
__host__ __device__ inline uint32_t most_queries(const GpuArgs& a) {
  return a.depth != 0 || a.kv.k.scale != 0 ? kFewQueries : kQueries;
}
__host__ __device__ inline uint32_t queries_of_team(const GpuArgs& a) {
  const uint32_t all = a.rows_per_seq * a.group, most = most_queries(a);
  return all < most ? all : most;
}
// Returns how many teams the queries of a sequence and a KV head take.
__host__ __device__ inline uint32_t teams_per_kv_head(const GpuArgs& a) {
  const uint32_t most = most_queries(a);
  return (a.rows_per_seq * a.group + most - 1) / most;
}

// The positions that a row sees are cut so: splits of `size` positions from `start` on.
struct Cut {
  uint32_t start, size;
  __device__ bool operator==(const Cut& o) const { return start == o.start && size == o.size; }
  // Returns how many splits a row has that sees the positions below `past`.
  __device__ uint32_t count(uint32_t past) const { return past > start ? (past - 1 - start) / size + 1 : 0; }
};
__host__ __device__ inline uint32_t anchor(const GpuArgs& a) {
  return a.joining == attention::kLeaves ? kNearAnchor : kAnchor;
}
__device__ inline uint32_t start_of_cut(const GpuArgs& a, uint32_t pos) {
  return a.first(pos) / anchor(a) * anchor(a);
}
// One split has all that a row sees.
__device__ inline Cut no_cut(const GpuArgs& a, uint32_t pos) {
  return {start_of_cut(a, pos), 1 << 30};
}
__device__ inline Cut cut(const GpuArgs& a, uint32_t pos) {
  const uint32_t start = start_of_cut(a, pos), past = a.past(pos);
  const uint32_t span = past > start ? past - start : 0;
  if (a.many_rows != 0) {
    if (a.splits == 1) return no_cut(a, pos);
    const uint32_t step = a.granule * a.splits;
    return {start, max((span + step - 1) / step * a.granule, kAmple)};
  }
  const bool in_cluster = span <= a.granules * a.granule * blocks_of_cluster(a);
  const uint32_t splits = in_cluster ? blocks_of_cluster(a) : span >= a.splits * kAmple ? a.splits : (a.splits + 1) / 2;
  const uint32_t step = a.granule * splits;
  return {start, max((span + step - 1) / step, kGranulesAlone) * a.granule};
}

// A team works on queries of one sequence and one KV head.
struct Work {
  uint32_t kv_head, seq, slot;
  uint32_t first_row, rows;  // the sequence has these rows in the step
  uint32_t query, queries;   // the team has so many of the sequence's queries, from this one on
  uint32_t old_len;          // the cache has so many tokens before the step
  const int32_t* pos;        // the sequence's rows have these positions
  uint32_t first_pos;        // pos[0]
  __device__ uint32_t pos_of(uint32_t row) const { return row == 0 ? first_pos : static_cast<uint32_t>(pos[row]); }
  // These return the sequence's row that the team's query q is of, and its query head.
  __device__ uint32_t row_of(const GpuArgs& a, uint32_t q) const { return __umulhi(2 * (query + q) + 1, a.per_head); }
  __device__ uint32_t head_of(const GpuArgs& a, uint32_t q) const { return kv_head * a.group + (query + q) % a.group; }
};

// This is one of the team's queries.
struct Query {
  uint32_t row, head;   // the row is that of the sequence
  uint32_t seen, past;  // it sees the positions in between
  uint32_t count;       // splits that it is cut into; 0: its splits are not those at hand
};

}  // namespace tenon::flash
