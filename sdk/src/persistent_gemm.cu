// One block a multiprocessor walks over tiles of the product (128 rows, 256 columns). Two blocks make a cluster: their
// tiles lie one below the other, so each brings half of the weights for both.
//
//   producer       one thread: copies 128 bytes a row of x (128 rows) and of w (256 rows) to a ring of four stages
//   two consumers  a warpgroup each: multiplies 64 rows by 256 columns and finishes them
//
// A consumer that finishes a tile leaves the tensor cores to the other one, which is some stages behind. What it makes
// goes through shared memory to the copy engine, which stores it meanwhile.
// Before silu a tile has 128 columns of the gate and the same 128 of up, so that a thread has both of an element; or
// 112 and 112, where blocks are busy for a greater part of their last turn then.
//
// Example: 256 rows by 2 * 14336 columns are 112 tiles of a cluster, of which 66 are multiplied at one time: the second
// turn has 46. Of narrower tiles there are 128.
#include <algorithm>
#include <string_view>

#include "tenon/cuda/barrier.cuh"
#include "tenon/cuda/cluster.cuh"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/persistent_gemm.h"
#include "tenon/cuda/shared_memory.cuh"
#include "tenon/cuda/tensor_map.h"
#include "tenon/cuda/tiled_rows.cuh"
#include "tenon/cuda/warpgroup.cuh"

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177  // nothing but the kernels for sm_90a refer to some of this
#endif

namespace tenon::cuda::detail {
namespace {

using warpgroup::kSwizzledRowBytes;
using warpgroup::kSwizzlePeriod;

constexpr uint32_t kClusterBlocks = 2;
constexpr uint32_t kRows = 128, kStages = 4;
constexpr uint32_t kConsumers = 2, kWarpgroupThreads = 128, kThreads = (kConsumers + 1) * kWarpgroupThreads;
constexpr uint32_t kConsumerRows = kRows / kConsumers, kBandRows = kClusterBlocks * kRows;
constexpr uint32_t kXBytes = kRows * kSwizzledRowBytes;

constexpr uint32_t kWideColumns = 256, kNarrowColumns = 224;  // a tile has so many of w
// A kernel is compiled for what is multiplied, a half or int8_t, and for tiles.
template <class T, bool kBeforeSilu, uint32_t kTileColumns = kWideColumns>
struct Shape {
  using In = T;
  static constexpr bool kSilu = kBeforeSilu;
  static constexpr uint32_t kColumns = kTileColumns;
  static constexpr uint32_t kPanel = kSilu ? kColumns / 2 : kColumns;  // and makes so many of y
  static constexpr uint32_t kSums = kColumns / 2;                      // a thread has so many
  static constexpr uint32_t kBoxColumns = kColumns / kClusterBlocks;   // a block brings w of so many for both
  static constexpr uint32_t kBoxBytes = kBoxColumns * kSwizzledRowBytes;
  static constexpr uint32_t kStageBytes = kXBytes + kClusterBlocks * kBoxBytes;
};

// A slice of a result has 128 bytes of each row of a consumer. Each consumer has room for two of them.
constexpr uint32_t kSliceBytes = kConsumerRows * kSwizzledRowBytes, kSlices = 2;
constexpr uint32_t kHalvesOfSlice = kSwizzledRowBytes / 2, kFloatsOfSlice = kSwizzledRowBytes / 4;
constexpr uint32_t kPiecesOfSums = kFloatsOfSlice / 8;  // of 8 columns

enum NamedBarrier { kConsumerBarrier = 1 };

struct Maps {
  CUtensorMap x, w, y;
};

// Shared memory has the stages' x and w, the results, and barriers.
template <class S>
struct Layout {
  static constexpr uint32_t kResultAt = kStages * S::kStageBytes;
  static constexpr uint32_t kBarriersAt = kResultAt + kConsumers * kSlices * kSliceBytes;
  static constexpr uint32_t kAlignment = 1024;  // the swizzle needs it
  static constexpr uint32_t kSharedBytes = kBarriersAt + 2 * kStages * Barrier::kBytes + kAlignment;

  uint32_t base;
  __device__ uint32_t x(uint32_t stage) const { return base + stage * S::kStageBytes; }
  __device__ uint32_t w(uint32_t stage) const { return x(stage) + kXBytes; }
  __device__ uint32_t slice(uint32_t consumer, uint32_t i) const {
    return base + kResultAt + (consumer * kSlices + i) * kSliceBytes;
  }
  __device__ Barrier full(uint32_t stage) const { return Barrier(base + kBarriersAt + stage * Barrier::kBytes); }
  __device__ Barrier empty(uint32_t stage) const {
    return Barrier(base + kBarriersAt + (kStages + stage) * Barrier::kBytes);
  }
};

// The place in the ring goes on from tile to tile.
struct Ring {
  uint32_t stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Returns how many tiles clusters have: bands of 256 rows by panels of columns of y.
uint32_t cluster_tiles(const PersistentGemm& a, uint32_t panel) {
  return (a.rows + kBandRows - 1) / kBandRows * ((a.columns + panel - 1) / panel);
}

// A cluster takes every so many-th tile. Those that are taken at one time share rows and panels, which L2 then keeps.
class Walk {
 public:
  __device__ Walk(const PersistentGemm& a, uint32_t panel, uint32_t live)
      : bands_((min(live, a.rows) + kBandRows - 1) / kBandRows), panels_((a.columns + panel - 1) / panel) {}
  __device__ uint32_t tiles() const { return bands_ * panels_; }
  struct Tile {
    uint32_t band, panel;
  };
  __device__ Tile at(uint32_t i) const {
    constexpr uint32_t kTogether = 8;
    const uint32_t group = i / (kTogether * panels_), in_group = i - group * kTogether * panels_;
    const uint32_t bands = min(kTogether, bands_ - group * kTogether);
    return {group * kTogether + in_group % bands, in_group / bands};
  }

 private:
  uint32_t bands_, panels_;
};

template <class S>
struct BlockWork {
  const PersistentGemm& a;
  const PersistentGemmPointers& p;
  const Maps& maps;
  const Layout<S>& s;
  const Walk& walk;
  uint32_t rank;  // the block has this one in its cluster
  __device__ uint32_t first_tile() const { return blockIdx.x / kClusterBlocks; }
  __device__ uint32_t clusters() const { return gridDim.x / kClusterBlocks; }
  __device__ uint32_t first_row(const Walk::Tile& tile) const { return tile.band * kBandRows + rank * kRows; }
};

template <class S>
inline constexpr uint32_t kStepK = kSwizzledRowBytes / sizeof(typename S::In);
template <class S>
__device__ uint32_t steps(const BlockWork<S>& b) {
  return (b.a.k + kStepK<S> - 1) / kStepK<S>;
}

template <class S>
__device__ void produce(const BlockWork<S>& b) {
  Ring ring;
  for (uint32_t i = b.first_tile(); i < b.walk.tiles(); i += b.clusters()) {
    const Walk::Tile tile = b.walk.at(i);
    // One block brings the gate, the other one up; or each half of the panel.
    const uint32_t box = tile.panel * S::kPanel + b.rank * (S::kSilu ? b.a.columns : S::kBoxColumns);
    const auto row = static_cast<int32_t>(b.first_row(tile)), box_row = static_cast<int32_t>(box);
    for (uint32_t step = 0; step < steps(b); ++step) {
      const auto k = static_cast<int32_t>(step * kStepK<S>);
      const Barrier full = b.s.full(ring.stage);
      b.s.empty(ring.stage).wait(ring.parity ^ 1);
      full.arrive_expecting(S::kStageBytes);
      full.copy_box(b.s.x(ring.stage), &b.maps.x, {k, row, 0, 0});
      full.copy_box_to_cluster(b.s.w(ring.stage) + b.rank * S::kBoxBytes, &b.maps.w, {k, box_row, 0, 0},
                               (1U << kClusterBlocks) - 1);
      ring.next();
    }
  }
  // A block stays until the other one has given back the last stages that this one's copies go to.
  for (uint32_t i = 0; i < kStages; ++i) {
    b.s.empty(ring.stage).wait(ring.parity ^ 1);
    ring.next();
  }
}

template <class S>
class Consumer {
 public:
  __device__ Consumer(const BlockWork<S>& b)
      : b_(b), number_(threadIdx.x / kWarpgroupThreads - 1), thread_(threadIdx.x % kWarpgroupThreads) {
    for (uint32_t rank = 0; rank < kClusterBlocks; ++rank) empty_[rank] = b.s.empty(0).in_cluster(rank);
  }
  __device__ void run() {
    for (uint32_t i = b_.first_tile(); i < b_.walk.tiles(); i += b_.clusters()) {
      Sums d;
      multiply(d);
      const Walk::Tile tile = b_.walk.at(i);
      first_row_ = b_.first_row(tile) + number_ * kConsumerRows;
      first_column_ = tile.panel * S::kPanel;
      if constexpr (kCodes) find_scales();
      if constexpr (S::kSilu) {
        leave_silu(d);
      } else {
        leave_sums(d);
      }
    }
    if (thread_ == 0) wait_boxes<0>();
  }

 private:
  using In = typename S::In;
  static constexpr bool kCodes = std::is_same_v<In, int8_t>;
  // Lane 4 g + t of warp w has of every 8 columns the sums of columns 2 t and 2 t + 1, of row 16 w + g and then of row 16
  // w + g + 8.
  using Sums = std::conditional_t<kCodes, int32_t, float>[S::kSums];
  using Half = std::conditional_t<kCodes, __half, In>;  // y after silu has these

  __device__ __forceinline__ void multiply(Sums& d) {
    const uint32_t count = steps(b_);
    uint32_t before = 0;
    for (uint32_t step = 0; step < count; ++step) {
      b_.s.full(ring_.stage).wait(ring_.parity);
      const uint64_t x = warpgroup::describe_swizzled(b_.s.x(ring_.stage) + number_ * kSliceBytes, 0),
                     w = warpgroup::describe_swizzled(b_.s.w(ring_.stage), 0);
      warpgroup::begin();
      constexpr uint32_t kProductBytes = 32;  // a product takes so many of a row
#pragma unroll
      for (uint32_t at = 0; at < kSwizzledRowBytes; at += kProductBytes) {
        const uint64_t from_x = warpgroup::described_at(x, at), from_w = warpgroup::described_at(w, at);
        if constexpr (kCodes) {
          warpgroup::multiply_shared(d, from_x, from_w, step + at != 0);
        } else {
          warpgroup::multiply_shared<In>(d, from_x, from_w, step + at != 0);
        }
      }
      warpgroup::commit();
      if (step != 0) {
        warpgroup::wait<1>();
        give_back(before);
      }
      before = ring_.stage;
      ring_.next();
    }
    warpgroup::wait<0>();
    warpgroup::hold(d);
    give_back(before);
  }
  __device__ __forceinline__ void give_back(uint32_t stage) const {
    if (lane() < kClusterBlocks) {
      Barrier::arrive_in_cluster((lane() == 0 ? empty_[0] : empty_[1]) + stage * Barrier::kBytes);
    }
  }

  __device__ __forceinline__ uint32_t lane() const { return thread_ % 32; }
  __device__ __forceinline__ uint32_t warp() const { return thread_ / 32; }

  // Finds the scales of the two rows that the thread has. Rows past the last one are not stored.
  __device__ __forceinline__ void find_scales() {
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t row = first_row_ + warp() * 16 + lane() / 4 + half * 8;
      x_scale_[half] = row < b_.a.rows ? b_.p.x_scales[row] : 0;
    }
  }
  // The thread has two numbers of row g, and two of row g + 8, of every 8 columns.
  struct Numbers {
    float v[4];
  };
  // Returns those of the i-th 8 columns, which are `column` of w.
  __device__ __forceinline__ Numbers numbers(const Sums& d, uint32_t i, uint32_t column) const {
    if constexpr (kCodes) {
      column += lane() % 4 * 2;
      float2 scale = {0, 0}, bias = {0, 0};
      if (column < b_.a.columns * (S::kSilu ? 2 : 1)) {
        scale = *reinterpret_cast<const float2*>(b_.p.w_scales + column);
        if (b_.p.bias != nullptr) bias = *reinterpret_cast<const float2*>(b_.p.bias + column);
      }
      return {{static_cast<float>(d[4 * i]) * (x_scale_[0] * scale.x) + bias.x,
               static_cast<float>(d[4 * i + 1]) * (x_scale_[0] * scale.y) + bias.y,
               static_cast<float>(d[4 * i + 2]) * (x_scale_[1] * scale.x) + bias.x,
               static_cast<float>(d[4 * i + 3]) * (x_scale_[1] * scale.y) + bias.y}};
    } else {
      return {{d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]}};
    }
  }

  // Waits until the slice that is written next is no longer on its way to y.
  __device__ __forceinline__ void begin_slice() const {
    if (thread_ == 0) wait_boxes_read<kSlices - 1>();
    named_sync(kConsumerBarrier + number_, kWarpgroupThreads);
  }
  // Sends a slice, whose first column in y is `column`, on its way.
  __device__ __forceinline__ void end_slice(uint32_t i, uint32_t column) const {
    fence_async();
    named_sync(kConsumerBarrier + number_, kWarpgroupThreads);
    if (thread_ != 0) return;
    const uint32_t from = b_.s.slice(number_, i);
    store_box(&b_.maps.y, from, {static_cast<int32_t>(column), static_cast<int32_t>(first_row_), 0, 0});
    commit_boxes();
  }

  // A thread has these addends of a slice: of each 8 columns two for the row g, two for the row g + 8.
  struct Addends {
    float2 v[kPiecesOfSums][2];
  };
  __device__ __forceinline__ Addends load_addends(uint32_t slice) const {
    Addends a{};
    if (b_.p.addend == nullptr) return a;
    const uint32_t row = first_row_ + warp() * 16 + lane() / 4;
    const uint32_t column = first_column_ + slice * kFloatsOfSlice + lane() % 4 * 2;
#pragma unroll
    for (uint32_t j = 0; j < kPiecesOfSums; ++j) {
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        if (row + half * 8 >= b_.a.rows || column + j * 8 >= b_.a.columns) continue;
        const float* from = b_.p.addend + size_t{row + half * 8} * b_.a.columns + column + j * 8;
        a.v[j][half] = *reinterpret_cast<const float2*>(from);
      }
    }
    return a;
  }
  __device__ __forceinline__ void leave_sums(const Sums& d) const {
    constexpr uint32_t kSlicesOfSums = S::kColumns / kFloatsOfSlice;
    Addends next = load_addends(0);
#pragma unroll
    for (uint32_t slice = 0; slice < kSlicesOfSums; ++slice) {
      const Addends addends = next;
      if (slice + 1 < kSlicesOfSums) next = load_addends(slice + 1);
      begin_slice();
#pragma unroll
      for (uint32_t j = 0; j < kPiecesOfSums; ++j) {
        const uint32_t i = slice * kPiecesOfSums + j;
        const Numbers n = numbers(d, i, first_column_ + i * 8);
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t row = warp() * 16 + lane() / 4 + half * 8;
          const uint32_t piece = (j * 2 + lane() % 4 / 2) ^ row % kSwizzlePeriod;
          const float2 addend = addends.v[j][half];
          store_shared_8(b_.s.slice(number_, slice % kSlices) + row * kSwizzledRowBytes + piece * 16 + lane() % 2 * 8,
                         make_float2(n.v[2 * half] + addend.x, n.v[2 * half + 1] + addend.y));
        }
      }
      end_slice(slice % kSlices, first_column_ + slice * kFloatsOfSlice);
    }
  }

  __device__ __forceinline__ void leave_silu(const Sums& d) const {
    // A lane says where a row of 8 columns of one of four matrices goes.
    const uint32_t row = warp() * 16 + lane() % 16, second = lane() / 16;
    constexpr uint32_t kPieces = kHalvesOfSlice / 8, kUp = S::kPanel / 8;
    constexpr uint32_t kSlicesOfSilu = (S::kPanel + kHalvesOfSlice - 1) / kHalvesOfSlice;
#pragma unroll
    for (uint32_t slice = 0; slice < kSlicesOfSilu; ++slice) {
      const uint32_t first = std::min(slice * kPieces, kUp - kPieces);  // the last slice may repeat some of another
      begin_slice();
      const uint32_t to = b_.s.slice(number_, slice % kSlices) + row * kSwizzledRowBytes;
#pragma unroll
      for (uint32_t j = 0; j < kPieces; j += 2) {
        uint32_t words[4];
#pragma unroll
        for (uint32_t e = 0; e < 2; ++e) {
          const uint32_t i = first + j + e, column = first_column_ + i * 8;
          const Numbers gate = numbers(d, i, column), up = numbers(d, i + kUp, b_.a.columns + column);
#pragma unroll
          for (uint32_t half = 0; half < 2; ++half) {
            words[2 * e + half] = to_halves<Half>(silu_mul(gate.v[2 * half], up.v[2 * half]),
                                                  silu_mul(gate.v[2 * half + 1], up.v[2 * half + 1]));
          }
        }
        store_matrices(to + ((j + second) ^ row % kSwizzlePeriod) * 16, words);
      }
      end_slice(slice % kSlices, first_column_ + first * 8);
    }
  }
  // The quick functions are off by far less than half a step of a half.
  static __device__ __forceinline__ float silu_mul(float gate, float up) {
    return saturated<Half>(__fdividef(gate, 1.0f + __expf(-gate)) * up);
  }

  const BlockWork<S>& b_;
  uint32_t number_, thread_;
  uint32_t empty_[kClusterBlocks];  // the first stage's barriers are here, by rank
  Ring ring_;
  uint32_t first_row_ = 0, first_column_ = 0;  // the consumer's part of a tile begins here in y
  float x_scale_[2] = {};
};

template <class S>
__global__ void __launch_bounds__(kThreads, 1)
    persistent_gemm_kernel(const __grid_constant__ PersistentGemm a, const __grid_constant__ PersistentGemmPointers p,
                           const __grid_constant__ Maps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char smem[];
  constexpr uint32_t kAlignment = Layout<S>::kAlignment;
  const Layout<S> s{(shared_address(smem) + kAlignment - 1) / kAlignment * kAlignment};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) {
      s.full(i).init(1);
      s.empty(i).init(kConsumers * kWarpgroupThreads / 32 * kClusterBlocks);
    }
    publish_barriers();
  }
  this_cluster().sync();
  wait();
  const Walk walk(a, S::kPanel, *p.live);
  const BlockWork<S> block{a, p, maps, s, walk, this_cluster().block_rank()};
  if (threadIdx.x < kWarpgroupThreads) {
    warpgroup::keep_registers<40>();
    if (threadIdx.x == 0) produce(block);
  } else {
    warpgroup::take_registers<232>();
    Consumer<S>(block).run();
  }
#endif
}

template <class S>
void launch_as(const PersistentGemm& a, const PersistentGemmPointers& p, const Launch& launch) {
  const auto map = [](tenon_format format, const void* base, const MatrixShape& matrix, uint32_t box_rows) {
    return make_tensor_map(format, base, map_of_matrix(format, matrix, box_rows));
  };
  const tenon_format y_format = !S::kSilu ? TENON_F32 : a.format == TENON_BF16 ? TENON_BF16 : TENON_F16;
  Maps maps{};
  maps.x = map(a.format, p.x, {a.rows, a.k}, kRows);
  maps.w = map(a.format, p.w, {a.w_rows, a.k}, S::kBoxColumns);
  maps.y = map(y_format, p.y, {a.rows, a.columns}, kConsumerRows);
  const uint32_t clusters = std::min(a.blocks / kClusterBlocks, cluster_tiles(a, S::kPanel));
  launch(&persistent_gemm_kernel<S>,
         {.blocks = {clusters * kClusterBlocks},
          .threads = {kThreads},
          .shared_bytes = Layout<S>::kSharedBytes,
          .cluster = {kClusterBlocks}},
         a, p, maps);
}

// Returns the share of the multiplications of so many blocks that is wanted.
double busy(const PersistentGemm& a, uint32_t panel, uint32_t blocks) {
  const uint32_t at_once = blocks / kClusterBlocks, turns = (cluster_tiles(a, panel) + at_once - 1) / at_once;
  return static_cast<double>(a.rows) * a.columns / (static_cast<double>(kBandRows) * panel * turns * at_once);
}
bool takes_narrow(const PersistentGemm& a, uint32_t blocks) {
  constexpr double kPays = 1.04;  // narrower tiles bring x for fewer sums
  return a.silu != 0 && a.format != TENON_I8 &&
         busy(a, kNarrowColumns / 2, blocks) > kPays * busy(a, kWideColumns / 2, blocks);
}

template <class Half>
void launch_halves(const PersistentGemm& a, const PersistentGemmPointers& p, const Launch& launch) {
  takes_narrow(a, a.blocks) ? launch_as<Shape<Half, true, kNarrowColumns>>(a, p, launch)
                            : launch_as<Shape<Half, true>>(a, p, launch);
}

}  // namespace

void run_persistent_gemm(const PersistentGemm& a, const PersistentGemmPointers& p, const Launch& launch) {
  if (a.format == TENON_I8) {
    return a.silu != 0 ? launch_as<Shape<int8_t, true>>(a, p, launch) : launch_as<Shape<int8_t, false>>(a, p, launch);
  }
  a.format == TENON_F16 ? launch_halves<__half>(a, p, launch) : launch_halves<__nv_bfloat16>(a, p, launch);
}

uint32_t persistent_gemm_blocks(const PersistentGemm& a, double least_busy) {
  constexpr int kHopper = 9;
  if (std::string_view(TENON_GEMM_TARGETS).find("sm_90a") == std::string_view::npos) return 0;
  int device = 0, units = 0, major = 0;
  TENON_CUDA_CHECK(cudaGetDevice(&device));
  TENON_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TENON_CUDA_CHECK(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device));
  if (major != kHopper) return 0;
  const auto blocks = static_cast<uint32_t>(units);
  const uint32_t columns = takes_narrow(a, blocks) ? kNarrowColumns : kWideColumns;
  return busy(a, a.silu != 0 ? columns / 2 : columns, blocks) >= least_busy ? blocks : 0;
}

}  // namespace tenon::cuda::detail
