// A cluster takes a row. Entries whose numbers differ by a multiple of 4096 (kMostClusterBlocks * kClusterThreads) are
// a class; a thread has one, or several where the cluster is small.
//   1. Each thread finds the greatest entry of each of its classes. The k-th largest of those 4096 is a floor: k
//      entries at least are no less, and few more, since the largest fall into different classes. (Half of k more are
//      let through if that saves looking closer.)
//   2. Entries down to the floor are gathered; there are rarely more than a block's shared memory holds. Where there are
//      few rows, threads have kept their entries in registers, else they read them again.
//   3. They are sorted, and cut after the ties of the k-th.
// Without a floor (k is 0 or large), or with too many ties, the whole cluster sorts them in memory.
#include <bit>

#include "op.h"
#include "plugin.h"
#include "tenon/cuda/candidates.cuh"

namespace tenon::top_k {
namespace {

using cuda::kClusterThreads, cuda::kClusterWarps, cuda::kMostClusterBlocks;

constexpr uint32_t kMostOwn = kMostClusterBlocks;  // a thread has so many classes at most
constexpr uint32_t kHeld = 32;                     // a thread that keeps its entries has so many at most
constexpr uint32_t kMostFloor = 1024;              // k above this has no floor
constexpr uint32_t kFew = 2048;                    // so many keys are sorted in shared memory
constexpr uint32_t kBinBits = 10, kBins = 1 << kBinBits;

struct Pointers {
  const TopK::Record* record;
  float* logit;
  int32_t *id, *count;
  uint64_t* keys;  // [rows][room]
  uint64_t room;
};

struct Shared {
  uint32_t most[kMostOwn][kClusterThreads];  // each class has this largest, as rising bits; 0: none is in
  uint32_t bins[kBins];
  uint32_t low[kClusterWarps], high[kClusterWarps], scan[kClusterWarps];
  uint32_t bin, above, in_bin;  // the k-th lies here
  uint32_t count, placed;       // the block has gathered so many keys
  uint64_t keys[kFew];
};

// This is the range [low, high], in bins of 2^shift.
struct BinnedRange {
  uint32_t low, high, shift;
};
// Finds the bin that holds the k-th largest, if `above` values are larger than the whole range. Returns false if there
// are fewer than k.
__device__ bool find_bin(const uint32_t (&value)[kMostClusterBlocks], const BinnedRange& range, uint32_t k,
                         uint32_t above, Shared& s) {
  const auto [low, high, shift] = range;
  static_assert(kBins == 2 * kClusterThreads);
  s.bins[2 * threadIdx.x] = s.bins[2 * threadIdx.x + 1] = 0;
  __syncthreads();
  for (const uint32_t v : value) {
    if (v >= low && v <= high) atomicAdd(&s.bins[(v - low) >> shift], 1);
  }
  __syncthreads();
  const uint32_t upper = kBins - 1 - 2 * threadIdx.x;  // this thread has upper and upper - 1
  const uint32_t n = s.bins[upper], both = n + s.bins[upper - 1];
  const uint32_t before = above + cuda::block_scan(both, s.scan).before;
  if (before < k && before + both >= k) {
    const bool first = before + n >= k;
    s.bin = first ? upper : upper - 1;
    s.above = first ? before : before + n;
    s.in_bin = first ? n : both - n;
  }
  __syncthreads();
  return s.in_bin != 0;
}

// Loads entries that are `stride` apart, all at once; those that are not there are out.
template <uint32_t N>
__device__ __forceinline__ void load_entries(const cuda::CandidateRow& row, uint32_t first, uint32_t stride,
                                             float (&logit)[N]) {
#pragma unroll
  for (uint32_t e = 0; e < N; ++e) {
    logit[e] = first + e * stride < row.n ? row.logit[first + e * stride] : cuda::kOut;
  }
}

// A thread's entries, if it keeps them; the candidates are dense then.
template <bool kHolds>
struct Held {};
template <>
struct Held<true> {
  float logit[kHeld];
};

// Fills s.most. A thread's n-th entry is of its class n % (the classes that it has).
template <bool kHolds>
__device__ void find_most(const cuda::CandidateRow& row, Shared& s, Held<kHolds>& held) {
  const uint32_t classes = kMostClusterBlocks / gridDim.x, stride = gridDim.x * kClusterThreads;
  const uint32_t own = blockIdx.x * kClusterThreads + threadIdx.x;
  uint32_t most[kMostOwn] = {};
  const auto look_at = [&](uint32_t e, float logit) {
    if (logit > cuda::kOut) most[e % kMostOwn] = max(most[e % kMostOwn], sdk::cpu::rising_bits(logit));
  };
  if constexpr (kHolds) {
    load_entries(row, own, stride, held.logit);
#pragma unroll
    for (uint32_t e = 0; e < kHeld; ++e) look_at(e, held.logit[e]);
  } else {
    constexpr uint32_t kAtOnce = 2 * kMostOwn;
    for (uint32_t first = own; first < row.n; first += kAtOnce * stride) {
      float logit[kAtOnce];
      load_entries(row, first, stride, logit);
#pragma unroll
      for (uint32_t e = 0; e < kAtOnce; ++e) look_at(e, logit[e]);
    }
  }
#pragma unroll
  for (uint32_t half = kMostOwn / 2; half > 0; half /= 2) {
    if (classes > half) break;
#pragma unroll
    for (uint32_t c = 0; c < half; ++c) most[c] = max(most[c], most[c + half]);
  }
#pragma unroll
  for (uint32_t c = 0; c < kMostOwn; ++c) {
    if (c < classes) s.most[c][threadIdx.x] = most[c];
  }
}

// Returns rising bits that k or more entries reach, 0 if fewer are known to: the k-th largest of all classes' greatest,
// or somewhat less. Every block gets the same.
__device__ uint32_t find_floor(uint32_t k, Shared& s) {
  const auto cluster = cuda::this_cluster();
  uint32_t value[kMostClusterBlocks], low = ~0u, high = 0;
  for (uint32_t r = 0; r < kMostClusterBlocks; ++r) {
    const uint32_t block = r % cluster.num_blocks(), own = r / cluster.num_blocks();
    value[r] = cluster.map_shared_rank(s.most, block)[own][threadIdx.x];
    high = max(high, value[r]);
    if (value[r] != 0) low = min(low, value[r]);
  }
  low = __reduce_min_sync(cuda::kAllLanes, low);
  high = __reduce_max_sync(cuda::kAllLanes, high);
  if (threadIdx.x % cuda::kWarp == 0) {
    s.low[threadIdx.x / cuda::kWarp] = low;
    s.high[threadIdx.x / cuda::kWarp] = high;
  }
  if (threadIdx.x == 0) s.in_bin = 0;
  __syncthreads();
  for (uint32_t w = 0; w < kClusterWarps; ++w) {
    low = min(low, s.low[w]);
    high = max(high, s.high[w]);
  }
  if (high == 0) return 0;
  for (uint32_t above = 0;; above = s.above) {
    const uint32_t bits = 32 - __clz(high - low), shift = bits > kBinBits ? bits - kBinBits : 0;
    if (!find_bin(value, {low, high, shift}, k, above, s)) return 0;
    low += s.bin << shift;
    if (shift == 0 || s.above + s.in_bin <= k + k / 2) return low;
    high = min(high, low + ((1u << shift) - 1));
  }
}

// Sorts keys, the largest first, by the threads [0, threads) that call it. room is a power of two. meet(stride) is
// called where keys that are `stride` apart or less have been exchanged, or will be next.
template <class Meet>
__device__ void sort_falling(uint64_t* keys, uint32_t room, uint32_t thread, uint32_t threads, Meet meet) {
  for (uint32_t size = 2; size <= room; size *= 2) {
    for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
      for (uint32_t t = thread; t < room / 2; t += threads) {
        const uint32_t i = 2 * t - (t & (stride - 1));
        const uint64_t a = keys[i], b = keys[i + stride];
        if ((a < b) == ((i & size) == 0)) {
          keys[i] = b;
          keys[i + stride] = a;
        }
      }
      meet(stride > 1 ? stride : size);
    }
  }
}

// Returns how many of n falling keys are among the k largest or tie with the last of them.
__device__ uint32_t cut(const uint64_t* keys, uint32_t n, uint32_t k) {
  if (k == 0 || n <= k) return n;
  const uint64_t last = keys[k - 1] >> 32;
  uint32_t begin = k, end = n;
  while (begin < end) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (keys[middle] >> 32 == last) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

struct FallingKeys {
  const uint64_t* keys;
  uint32_t n;
};
struct Workers {
  uint32_t thread, threads;  // this thread is one of so many
};
// This is a row, with where it comes from and goes to.
struct RowWork {
  const cuda::CandidateInput& in;
  const cuda::CandidateRow& row;
  const Pointers& p;
};
__device__ void write_row(const RowWork& work, const FallingKeys& kept, const Workers& workers) {
  const auto& [in, row, p] = work;
  const auto [keys, n] = kept;
  const auto [thread, threads] = workers;
  const size_t first = size_t{row.row} * in.g.width;
  for (uint32_t i = thread; i < n; i += threads) {
    p.logit[first + i] = sdk::cpu::value_of_key(keys[i]);
    p.id[first + i] = sdk::cpu::id_of_key(keys[i]);
  }
  if (thread == 0) p.count[row.row] = static_cast<int32_t>(n);
}

// Calls put(key) for every entry at the floor or above. If they are not held, of the thread's classes those are read
// again that reach the floor.
template <bool kHolds, class Put>
__device__ void gather(const cuda::CandidateRow& row, uint32_t floor, const Shared& s, const Held<kHolds>& held,
                       Put put) {
  const uint32_t classes = kMostClusterBlocks / gridDim.x, stride = gridDim.x * kClusterThreads;
  const uint32_t own = blockIdx.x * kClusterThreads + threadIdx.x;
  const auto look_at = [&](uint32_t i, float logit) {
    if (logit > cuda::kOut && sdk::cpu::rising_bits(logit) >= floor) {
      put(sdk::cpu::candidate_key(logit, kHolds ? static_cast<int32_t>(i) : row.id_of(i)));
    }
  };
  if constexpr (kHolds) {
#pragma unroll
    for (uint32_t e = 0; e < kHeld; ++e) look_at(own + e * stride, held.logit[e]);
    return;
  }
  uint32_t reached = 0;  // it has a bit for each of kMostOwn entries that follow each other
#pragma unroll
  for (uint32_t e = 0; e < kMostOwn; ++e) {
    const uint32_t most = s.most[e % classes][threadIdx.x];
    reached |= most > 0 && most >= floor ? 1U << e : 0;
  }
  for (; reached != 0; reached &= reached - 1) {
    constexpr uint32_t kAtOnce = 8;
    const uint32_t next = kMostOwn * stride;
    for (uint32_t first = own + (__ffs(static_cast<int>(reached)) - 1) * stride; first < row.n;
         first += kAtOnce * next) {
      float logit[kAtOnce];
      load_entries(row, first, next, logit);
#pragma unroll
      for (uint32_t e = 0; e < kAtOnce; ++e) look_at(first + e * next, logit[e]);
    }
  }
}

__device__ uint32_t room_for(uint32_t n) {
  return n <= 2 ? 2 : 1u << (32 - __clz(n - 1));
}

// These entries reach down to a floor.
struct Reached {
  uint32_t floor;
  uint32_t n, before;  // the whole row has n, and the blocks before this one have `before`
};

// Sorts and writes few keys, by the first block; the others are done once they have left it theirs.
__device__ void finish_few(const RowWork& work, const Reached& reached, Shared& s) {
  const auto cluster = cuda::this_cluster();
  const uint32_t n = reached.n, room = room_for(n);
  if (cluster.block_rank() == 0) {
    for (uint32_t i = n + threadIdx.x; i < room; i += kClusterThreads) s.keys[i] = 0;
  } else {
    uint64_t* to = cluster.map_shared_rank(s.keys, 0) + reached.before;
    for (uint32_t i = threadIdx.x; i < s.count; i += kClusterThreads) to[i] = s.keys[i];
  }
  cluster.sync();
  if (cluster.block_rank() != 0) return;
  // Strides up to a warp's width stay among the 2 * 32 keys of one warp.
  sort_falling(s.keys, room, threadIdx.x, kClusterThreads, [](uint32_t stride) {
    if (stride > cuda::kWarp) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  });
  __syncthreads();
  write_row(work, {s.keys, cut(s.keys, n, work.p.record[work.row.slot].k)}, {threadIdx.x, kClusterThreads});
}

// Sorts and writes any number of keys, by the whole cluster.
template <bool kHolds>
__device__ void finish_many(const RowWork& work, const Reached& reached, Shared& s, const Held<kHolds>& held) {
  const auto& [in, row, p] = work;
  const auto [floor, n, before] = reached;
  const auto cluster = cuda::this_cluster();
  const uint32_t thread = cluster.block_rank() * kClusterThreads + threadIdx.x;
  const uint32_t threads = cluster.num_blocks() * kClusterThreads, room = room_for(n);
  uint64_t* keys = p.keys + row.row * p.room;
  gather(row, floor, s, held, [&](uint64_t key) { keys[before + atomicAdd(&s.placed, 1)] = key; });
  for (uint32_t i = n + thread; i < room; i += threads) keys[i] = 0;
  cluster.sync();
  sort_falling(keys, room, thread, threads, [&](uint32_t) { cluster.sync(); });
  write_row(work, {keys, cut(keys, n, p.record[row.slot].k)}, {thread, threads});
}

template <bool kHolds>
__global__ void __launch_bounds__(kClusterThreads, kHolds ? 1 : 2) keep_kernel(cuda::CandidateInput in, Pointers p) {
  __shared__ Shared s;
  Held<kHolds> held;
  cuda::CandidateRow row;
  if (!cuda::open(in, row)) return;
  const auto cluster = cuda::this_cluster();
  const uint32_t k = p.record[row.slot].k;
  if (threadIdx.x == 0) s.count = s.placed = 0;
  find_most(row, s, held);
  cluster.sync();
  const uint32_t floor = k > 0 && k <= kMostFloor ? find_floor(k, s) : 0;
  gather(row, floor, s, held, [&](uint64_t key) {
    const uint32_t place = atomicAdd(&s.count, 1);
    if (place < kFew) s.keys[place] = key;
  });
  cluster.sync();
  uint32_t n = 0, before = 0;
  for (uint32_t r = 0; r < cluster.num_blocks(); ++r) {
    if (r == cluster.block_rank()) before = n;
    n += *cluster.map_shared_rank(&s.count, r);
  }
  if (n <= kFew) {
    finish_few({in, row, p}, {floor, n, before}, s);
  } else {
    finish_many({in, row, p}, {floor, n, before}, s, held);
  }
}

cuda::Grid grid_of(const cuda::CandidateGrid& g) {
  return cuda::cluster_grid(&keep_kernel<false>, g);
}
// Blocks that hold entries have a multiprocessor each, and those of a cluster are neighbours: more would take turns.
bool holds(const cuda::CandidateGrid& g) {
  constexpr uint32_t kMostHolding = 64;
  const uint32_t blocks = grid_of(g).blocks.x;
  return g.dense() && blocks * g.rows <= kMostHolding && g.width <= kHeld * blocks * kClusterThreads;
}

void keep(const cuda::CandidateGrid& g, const cuda::Launch& l) {
  const Pointers p{l.ptr<const TopK::Record>(kParams), l.ptr<float>(kKeptLogit), l.ptr<int32_t>(kKeptId),
                   l.ptr<int32_t>(kKeptCount),         l.scratch<uint64_t>(),    std::bit_ceil(g.width)};
  cuda::Grid grid = grid_of(g);
  if (!holds(g)) return l(&keep_kernel<false>, grid, cuda::CandidateInput(g, l), p);
  grid.shared_bytes = cuda::kLargeBlockBytes;  // so that nothing fits beside a block's registers (block_size.h)
  l(&keep_kernel<true>, grid, cuda::CandidateInput(g, l), p);
}

}  // namespace

void TopK::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const sdk::cpu::CandidateOp op = sorted_op(c, s.params, r);
  cuda::emit<keep>(r,
                   {.name = "keep_largest",
                    .operands = op.operands,
                    .chunks = {},
                    .cost = op.cost(2, false),
                    .scratch_bytes = op.grid.rows * uint64_t{std::bit_ceil(op.grid.width)} * sizeof(uint64_t),
                    .blocks = holds(op.grid) ? uint32_t{TENON_BLOCKS_WHOLE} : 0},
                   op.grid);
}

}  // namespace tenon::top_k

TENON_PLUGIN(tenon::top_k::TopK);
