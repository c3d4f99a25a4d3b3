// One kernel does the attention of steps with at most sixteen rows a sequence: flash decoding (the Flash-Decoding note
// of Dao et al., 2023). Its naive twins are exact.cuh, which computes the formula in f32, and
// AttentionHost::expected() (conformance/attention_expected.cc), which does so in f64.
//
// A team takes one KV head, up to sixteen queries (the query heads of that KV head, for one or several rows of a
// sequence; eight where the cache has codes) and one split of the positions (splits.cuh). It is a block, whose four
// warps walk the split in tiles of 16 tokens, two in a turn; every warp has a ring of K and V tiles of its own, filled
// by asynchronous copies, so the loop has no block-wide barrier. Where sequences are many, nothing is split, and each
// warp is a team of its own, of up to eight queries. The phases:
//
//   prime the ring      older keys and values, before the wait if they are stable (decode_team.cuh)
//   prepare heads       norm, rope and conversion of queries; what the step appends (decode_heads.cuh)
//   attend              scores, softmax, values, tile after tile (decode_attend.cuh; decode_warp.cuh for up to eight
//                       queries)
//   fold                the warps of a cluster leave their shares in the shared memory of the block that folds them; if
//                       a row has more splits than that, they go through scratch, and the last of the row's blocks
//                       folds all (decode_fold.cuh)
//
// A row's splits follow from its own position alone: a row has the same bits alone, among drafts and in a batch of
// few rows. Five sequences of one row and more have fewer splits; a step of more rows has blocks enough without splits,
// or with few. Rows of a sequence whose cuts differ (their positions lie on both sides of a change of the split's size)
// are taken one after the other.
#include <algorithm>
#include <type_traits>

#include "../common/last_block.cuh"
#include "cuda_ops.h"
#include "decode_attend.cuh"
#include "decode_fold.cuh"
#include "decode_heads.cuh"
#include "decode_warp.cuh"
#include "tenon/cuda/overlap.cuh"

namespace tenon::flash {
namespace {

// Loads here, and not where the value is used first.
__device__ __forceinline__ int32_t load_now(const int32_t* p) {
  int32_t x;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}
// Lets L1 have what will be loaded soon.
__device__ __forceinline__ void touch(const int32_t* p) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(p));
}

template <DecodingTeam Team>
using StateOf =
    std::conditional_t<Team::Shape::kMostQueries == kFewQueries, WarpState<Team::kDim>, DecodeState<Team::kDim>>;

// This is what a block has done before.
struct Progress {
  bool worked = false;  // it has attended to a split
  uint32_t taken = 0;   // it has taken so many runs of rows
  uint32_t met = 0;     // it has met others of its cluster so many times
};

// The team attends to its split, if its queries have so many (`count`), and its cluster folds what all of its teams made
// of theirs.
template <DecodingTeam Team>
__device__ __forceinline__ void attend_and_fold(const Team& team, uint32_t count, Progress& progress) {
  const bool attends = team.split < count;
  if (!attends && count == 1) return cuda::wait();
  const Meeting<Team> meeting(team, count, progress.met);
  const bool apart = Team::Shape::shares_apart(team.a);
  if (apart) meeting.open();
  StateOf<Team> state;
  if (attends) {
    prepare_heads(team, progress.worked);
    attend(team, state);
  } else {
    cuda::wait();
  }
  cuda::wait_copies<0>();
  if (!apart) meeting.open();
  meeting.enter();
  if (attends) meeting.leave(team, state);
  meeting.meet();
  fold_shares(team, meeting);
  progress.worked |= attends;
  if (meeting.has_others()) ++progress.met;
}
// Does the same where a warp is the team, and its split all that its queries see.
template <DecodingTeam Team>
__device__ __forceinline__ void attend_alone(const Team& team, Progress& progress) {
  prepare_heads(team, progress.worked);
  StateOf<Team> state;
  attend(team, state);
  finish_alone(team, state);
  progress.worked = true;
}

// Finds what a team works on, by its number along x; false: there is nothing.
template <class Shape>
__device__ __forceinline__ bool find_work(const GpuArgs& a, const GpuPointers& p, uint32_t number, Work& w) {
  w.kv_head = number % a.kv.heads;
  w.seq = blockIdx.y;
  w.query = number / a.kv.heads * Shape::kMostQueries;
  const int32_t* pos = p.pos + w.kv_head * a.copied_rows;
  // Loads that do not depend on each other are issued together, and with them those that will most likely come next: a
  // sequence mostly has the slot and the row of its own number.
  const auto live = static_cast<uint32_t>(load_now(reinterpret_cast<const int32_t*>(p.live) + kLiveSeqs));
  const int32_t slot = load_now(p.seq_slot + w.seq), first_row = load_now(p.seq_row + w.seq),
                end_row = load_now(p.seq_row + w.seq + 1), likely_pos = load_now(pos + w.seq),
                likely_len = load_now(p.kv_len + w.seq);
  touch(p.pages + size_t{w.seq} * a.kv.columns);
  if (w.seq >= live || slot < 0) return false;
  w.slot = static_cast<uint32_t>(slot);
  w.first_row = static_cast<uint32_t>(first_row);
  w.rows = static_cast<uint32_t>(end_row) - w.first_row;
  if (w.rows > a.rows_per_seq || w.query >= w.rows * a.group) return false;
  w.queries = min(Shape::kMostQueries, w.rows * a.group - w.query);
  w.old_len = static_cast<uint32_t>(w.slot == w.seq ? likely_len : p.kv_len[w.slot]);
  w.pos = pos + w.first_row;
  w.first_pos = static_cast<uint32_t>(w.first_row == w.seq ? likely_pos : w.pos[0]);
  return true;
}

// The grid has teams of KV heads and of queries along x, sequences along y and splits along z, of which a block takes
// every gridDim.z-th. Each (x, y) has a counter, which is zero between launches.
template <cuda::HalfType E, uint32_t D, class Bytes, uint32_t kDepth>
__global__ void __launch_bounds__(kThreads, TeamShape<D, Bytes, kDepth>::kBlocks)
    decode_kernel(const __grid_constant__ GpuArgs a, const __grid_constant__ GpuPointers p, float* scratch,
                  uint32_t* counters) {
  using Team = DecodeTeam<E, D, Bytes, kDepth>;
  using Shape = TeamShape<D, Bytes, kDepth>;
  extern __shared__ __align__(128) char all_teams[];
  __shared__ Query all_queries[Shape::kTeams][Shape::kMostQueries];
  __shared__ uint64_t met;
  static_assert(sizeof all_queries + sizeof met + sizeof(uint32_t) <= kStaticBytes);
  cuda::trigger();
  if constexpr (cuda::kHasClusters && !Shape::kWarpTeams) {
    if (threadIdx.x == 0) {
      cuda::Barrier(cuda::shared_address(&met)).init(1);
      cuda::publish_barriers();
    }
  }

  if (a.copied_rows != 0) cuda::wait();
  const uint32_t number = threadIdx.x / (32 * Shape::kWarpsOfTeam);
  Work w{};
  if (!find_work<Shape>(a, p, blockIdx.x * Shape::kTeams + number, w)) return cuda::wait();
  const TeamMemory memory{all_queries[number], all_teams + (Shape::kWarpTeams ? number * Shape::team_bytes(a) : 0),
                          scratch, &met};

  // ---- splits, one after the other, and of each the rows with the same cut, one run of rows after the other ----
  Progress progress;
  const uint32_t end = w.row_of(a, w.queries - 1) + 1;
  const auto cut_of = [&](uint32_t row) {
    const uint32_t pos = w.pos_of(row);
    return Shape::kWarpTeams ? no_cut(a, pos) : cut(a, pos);
  };
  for (uint32_t split = blockIdx.z; split < a.most_splits; split += gridDim.z) {
    uint32_t most = 0;  // splits of any row that has one here
    const uint32_t first_of_cluster = split >> a.cluster_log2 << a.cluster_log2;
    for (uint32_t row = w.row_of(a, 0), next = row; row < end; row = next) {
      const Cut c = cut_of(row);
      do ++next;
      while (next < end && cut_of(next) == c);
      const uint32_t count = c.count(a.past(w.pos_of(next - 1)));
      if (first_of_cluster >= count) continue;
      most = max(most, count);
      if (progress.taken++ > 0) Team::sync();
      Team team(a, p, w, memory);
      team.take(c, split, row, next - 1);
      if constexpr (Shape::kWarpTeams) {
        attend_alone(team, progress);
      } else {
        attend_and_fold(team, count, progress);
      }
    }
    // ---- rows of several clusters ----
    if constexpr (Shape::kWarpTeams) {
      break;
    } else {
      if (most == 0) break;
      if (most <= blocks_of_cluster(a)) continue;
      const uint32_t blocks = (((most - 1) >> a.cluster_log2) + 1) << a.cluster_log2;
      if (attention::is_last(counters + blockIdx.y * gridDim.x + blockIdx.x, blocks)) combine<Team>(a, p, w, scratch);
    }
  }
  cuda::wait();
}

template <cuda::HalfType E, uint32_t D, class Bytes, uint32_t kDepth>
void launch(GpuArgs& a, const cuda::Launch& l) {
  using Shape = TeamShape<D, Bytes, kDepth>;
  a.whole_tiles = WholeTiles<D>::fits(a.kv);
  // Up to 48 KB need no leave (Launch asks for it), but the kernel's static shared memory counts there as well.
  constexpr uint32_t kPlainBytes = 48 << 10;
  uint32_t shared_bytes = Shape::shared_bytes(a);
  if (shared_bytes + kStaticBytes > kPlainBytes) shared_bytes = std::max(shared_bytes, kPlainBytes + 16);
  l(&decode_kernel<E, D, Bytes, kDepth>,
    {.blocks = {(a.kv.heads * teams_per_kv_head(a) + Shape::kTeams - 1) / Shape::kTeams, a.seqs, a.split_blocks},
     .threads = {kThreads},
     .shared_bytes = shared_bytes,
     .cluster = {1, 1, blocks_of_cluster(a)}},
    a, pointers(a, l), l.scratch<float>(), l.zeroed<uint32_t>());
}

}  // namespace

uint32_t decode_shared_bytes(uint32_t dim) {
  return with_dim<64, 128, 256>(dim, [&]<uint32_t D>() { return TeamShape<D, void, 0>::shared_bytes({}); });
}
uint64_t decode_scratch_bytes(const GpuArgs& a) {
  return uint64_t{a.kv.heads} * teams_per_kv_head(a) * a.seqs * (a.most_splits >> a.cluster_log2) * queries_of_team(a) *
         (a.kv.v.dim + 2) * sizeof(float);
}
uint64_t decode_zeroed_bytes(const GpuArgs& a) {
  return uint64_t{a.kv.heads} * teams_per_kv_head(a) * a.seqs * sizeof(uint32_t);
}

namespace {

// Returns the most splits that cut() makes of up to so many positions.
uint64_t most_splits(const GpuArgs& a, uint64_t span) {
  const auto pieces = [&](uint64_t of) { return (span + of - 1) / of; };
  if (a.many_rows != 0) return std::min<uint64_t>(a.splits, pieces(kAmple));
  const uint64_t least = pieces(uint64_t{kGranulesAlone} * a.granule);
  if (span <= uint64_t{a.granules} * a.granule * blocks_of_cluster(a)) {
    return std::min<uint64_t>(blocks_of_cluster(a), least);
  }
  return std::min<uint64_t>(span >= uint64_t{a.splits} * kAmple ? a.splits : (a.splits + 1) / 2, least);
}

}  // namespace

// In a step of few rows, the splits of all KV heads are two blocks for every multiprocessor, or three of codes: each
// works while the others wait for their keys and values. So are those of all sequences in one of many rows, unless each
// warp is a team and has the ring that its multiprocessor has room for: blocks that find no room would begin when
// others end. Larger clusters would not fill the GPU.
void set_splits(GpuArgs& a, uint32_t units, uint32_t arch, uint32_t granule) {
  constexpr uint32_t kPairs = 1, kFirstWithClusters = 90;
  const uint32_t blocks = team_blocks(a);
  a.depth = 0;
  const uint32_t unsplit = a.kv.heads * teams_per_kv_head(a) * a.seqs;
  a.granule = granule;
  a.many_rows = a.rows > kSteadyRows;
  const bool many_single = a.single != 0 && std::min(a.rows, a.seqs) > kSteadySequences;
  a.granules = many_single ? kGranulesAmongSequences : kGranulesOfCluster;
  if (a.many_rows != 0 && head_dim(a) <= 128 && unsplit > blocks * units) {
    a.depth = kDeepest;
    const uint32_t warps = a.kv.heads * teams_per_kv_head(a) * a.seqs;
    const uint32_t blocks_of_unit = (warps + kWarps * units - 1) / (kWarps * units);
    if (blocks_of_unit > 1) a.depth = blocks_of_unit == 2 ? kDeepest / 2 : kDeepest / 4;
  }
  a.cluster_log2 = arch >= kFirstWithClusters && a.many_rows == 0 ? kPairs : 0;
  const uint32_t cluster = blocks_of_cluster(a);
  a.per_head = ((1u << 31) + a.group - 1) / a.group;
  const uint32_t wanted = a.depth != 0 ? 1 : blocks * units / (a.many_rows != 0 ? unsplit : a.kv.heads);
  a.splits = std::max(1u, wanted / cluster) * cluster;
  const uint64_t span = a.window == 0 ? a.kv_len : std::min<uint64_t>(a.kv_len, uint64_t{a.window} + anchor(a));
  const uint64_t most = most_splits(a, span);
  a.most_splits = static_cast<uint32_t>((most + cluster - 1) / cluster * cluster);
  // There are as many blocks as there is room for: more would stand in line, most for splits that short sequences lack.
  const uint32_t room = blocks * units / unsplit / cluster * cluster;
  a.split_blocks = a.many_rows != 0 ? a.most_splits : std::clamp(room, cluster, a.most_splits);
}

void decode(const GpuArgs& recorded, const cuda::Launch& l) {
  GpuArgs a = recorded;
  a.prefetch = l.stable(kKeyPlane) && l.stable(kValuePlane) && l.stable(kPages);
  if (a.kv.k.scale != 0) a.prefetch = a.prefetch != 0 && l.stable(kKeyScales) && l.stable(kValueScales);
  with_cache(a.kv.k, [&]<class E, class Bytes>(E, std::type_identity<Bytes>) {
    with_dim<64, 128, 256>(head_dim(a), [&]<uint32_t D>() {
      if constexpr (D <= 128) {
        if (a.depth == kDeepest) return launch<E, D, Bytes, kDeepest>(a, l);
        if (a.depth == kDeepest / 2) return launch<E, D, Bytes, kDeepest / 2>(a, l);
        if (a.depth == kDeepest / 4) return launch<E, D, Bytes, kDeepest / 4>(a, l);
      }
      launch<E, D, Bytes, 0>(a, l);
    });
  });
}

}  // namespace tenon::flash
