// This multiplies packed weights (packed.cuh) with up to 1024 rows of x, on sm_90a: weights are read once, as they are
// stored, and become halves in registers; x is one half a value, each row scaled by a power of two that keeps it in
// range. RMSNorm comes before, and bias, SiLU-multiply and residual after.
//
// Blocks work in pairs, which are clusters. A pair multiplies panels of weights by all rows of x; each of its blocks has
// half of a panel's tiles, and each of a block's warpgroups four of those. The panels' stages along K (kStageK) are
// shared out evenly among the pairs, so a panel's may lie with several: the pair that has its first stage finishes it.
// The others leave their sums in the op's scratch memory and say so in its flags; they have them early, since a panel's
// later stages are the first that a pair multiplies. Sums are added in the pairs' order, so equal launches give equal
// bits. Where rows and columns are few, pairs have panels of their own, and cluster_gemm.cuh multiplies.
//
// Where panels are few and rows many, one pair would finish long after the others. So there each panel has a team of
// pairs, and each of these, once all have left their sums, finishes some of the rows.
//
// Products may be linked (tenon/sdk/linked_rows.h): one leaves y as the other multiplies it or, where a norm stands
// between them, leaves rows for that beside y, so that nothing has to prepare x.
//
// The rows of x are one band, or several from 129 rows on. A band has at most 256 rows, and pairs of its own multiply
// it (TileGemm::bands()). Bands without live rows take no pairs.
//
// Four more warps of a block keep rings in shared memory full: three one of weights, begun before the wait, the
// fourth one of x. A single warp would need longer to ask for a stage of weights, tile by tile, than memory needs to
// bring it. Each block of a pair reads half of x from L2 and writes it into the shared memory of both: what comes
// through L2 would be the limit otherwise.
#pragma once

#include <algorithm>
#include <string_view>

#include "tenon/cuda/cluster_gemm.cuh"

namespace tenon::cuda {

inline constexpr uint32_t kTileGemmSince = 9;  // it pays from so many rows on
// Says whether matvec.cuh multiplies so few rows, too, and its blocks have a pair of tiles at most: their sums are done
// sooner than blocks would hand them to each other.
inline bool has_few_tiles(const MatvecArgs& a) {
  return a.rows <= kMatvecRows && a.map.tiles() <= 2 * a.blocks;
}

namespace detail {

inline constexpr uint32_t kGroupThreads = 128;

// It adds up what pairs have of a panel's sums, and finishes them.
template <PackedFormat F, int N>
class PanelSums : PanelTurns<TileGemmBlock<F, N>> {
  using Turns = PanelTurns<TileGemmBlock<F, N>>;
  using Turns::b_, Turns::sum_, Turns::warp_;

 public:
  using Block = TileGemmBlock<F, N>;
  using Shape = TileGemmShape<N>;
  __device__ __forceinline__ PanelSums(const Block& b, RowNumbers<N>& numbers)
      : Turns(b), numbers_(b, numbers), shared_(numbers), rows_before_(b.band * N) {}
  using Turns::multiply;

  // It is called after the wait, when there are rows; before, finish() does nothing.
  __device__ __forceinline__ void begin() {
    const uint32_t live = min(*b_.p.live, b_.a.rows);
    live_ = live - min(live, rows_before_);
    numbers_.prefetch();
  }
  // It is called before finish(), by all threads that multiply.
  __device__ __forceinline__ void find_numbers() const {
    numbers_.find(live_);
    named_sync(kSumBarrier, Shape::kMultiplying);
  }

  // Leaves the sums for the pair that finishes the panel.
  __device__ __forceinline__ void leave() const {
    leave_sums();
    if (threadIdx.x == 0) raise_flag(b_.p.flags + blockIdx.x * kMostTeam);
  }
  // Adds what others have left.
  __device__ __forceinline__ void gather(uint32_t panel) {
    uint32_t after = b_.pair + 1;
    while (after < b_.pairs && b_.shares.begin(after) < (panel + 1) * b_.stages_of_panel) ++after;
    if (after == b_.pair + 1) return;
    for (uint32_t next = b_.pair + 1 + threadIdx.x; next < after; next += Shape::kMultiplying) {
      uint32_t* flag = b_.p.flags + b_.block_of(next) * kMostTeam;
      wait_for_flag(flag);
      *flag = 0;
    }
    named_sync(kSumBarrier, Shape::kMultiplying);
    if constexpr (kGathered > 1) {
      for (uint32_t next = b_.pair + 1; next < after; next += kGathered) add_copied(next, min(after - next, kGathered));
    } else {
      for (uint32_t next = b_.pair + 1; next < after; ++next) add_left(b_.block_of(next));
    }
  }
  // Makes y of the sums.
  __device__ __forceinline__ void finish(uint32_t panel) {
    FinishedRows<F, N, N / 8>(b_, numbers_, shared_, {0, N, live_}).finish(panel, sum_);
  }

  // ---- where a team of pairs shares a panel, each of its pairs finishes some of the rows ----
  // Leaves the sums for the team, and waits for those of the others.
  __device__ __forceinline__ void meet_team() const {
    leave_sums();
    uint32_t* const flags = b_.p.flags;
    const uint32_t other = threadIdx.x, first = b_.pair - b_.part;
    if (other < b_.team) raise_flag(flags + blockIdx.x * kMostTeam + other);
    if (other < b_.team) {
      uint32_t* const flag = flags + b_.block_of(first + other) * kMostTeam + b_.part;
      wait_for_flag(flag);
      *flag = 0;
    }
    named_sync(kSumBarrier, Shape::kMultiplying);
  }
  // Adds up the sums of the pair's own rows, and makes y of them.
  __device__ __forceinline__ void finish_share(uint32_t panel) {
    constexpr uint32_t kGroups = Shape::kGroupsAtOnce;
    const uint32_t end = (b_.part + 1) * kRowGroups / b_.team;
#pragma unroll 1
    for (uint32_t group = b_.part * kRowGroups / b_.team; group < end; group += kGroups) {
      float sums[4 * kGroups] = {};
      for (uint32_t part = 0; part < b_.team && live_ > 0; part += kPartsAtOnce) {
        add_parts<kGroups>(part, group, end, sums);
      }
      FinishedRows<F, N, kGroups>(b_, numbers_, shared_, {8 * group, 8 * end, live_}).finish(panel, sums);
    }
  }

 private:
  static constexpr uint32_t kRowGroups = N / 8;  // groups of eight rows
  static constexpr uint32_t kGathered = Block::Layout::kGathered;

  __device__ __forceinline__ float4* left_by(uint32_t block) const {
    return b_.p.sums + (size_t{block} * (kPanelTiles / 4) + warp_ / 4) * kRowGroups * kGroupThreads +
           threadIdx.x % kGroupThreads;
  }
  // Leaves four sums of each group of rows; what is said afterwards of a flag is true of all threads.
  __device__ __forceinline__ void leave_sums() const {
    float4* to = left_by(blockIdx.x);
#pragma unroll
    for (uint32_t i = 0; i < kRowGroups; ++i) {
      __stcg(to + i * kGroupThreads, float4{sum_[4 * i], sum_[4 * i + 1], sum_[4 * i + 2], sum_[4 * i + 3]});
    }
    named_sync(kSumBarrier, Shape::kMultiplying);
  }
  __device__ __forceinline__ void add_left(uint32_t block) {
    const float4* from = left_by(block);
#pragma unroll
    for (uint32_t i = 0; i < kRowGroups; ++i) {
      const float4 v = __ldcg(from + i * kGroupThreads);
      sum_[4 * i] += v.x;
      sum_[4 * i + 1] += v.y;
      sum_[4 * i + 2] += v.z;
      sum_[4 * i + 3] += v.w;
    }
  }
  // Adds what so many pairs from `first` on have left. A thread copies its sums of all of them to shared memory at one
  // time, since it has no registers for them: one after the other, each would be waited for.
  __device__ __forceinline__ void add_copied(uint32_t first, uint32_t pairs) {
    constexpr uint32_t kStride = 16 * Shape::kMultiplying;  // from a thread's four sums to its next four
    const uint32_t own = b_.base + Block::Layout::kSums + 16 * threadIdx.x;
    uint32_t at = own;
#pragma unroll 1
    for (uint32_t next = first; next < first + pairs; ++next) {
      const float4* from = left_by(b_.block_of(next));
#pragma unroll
      for (uint32_t i = 0; i < kRowGroups; ++i, at += kStride) copy_async(at, from + i * kGroupThreads);
    }
    commit_copies();
    wait_copies<0>();
    const uint32_t end = at;
#pragma unroll 1
    for (at = own; at < end;) {
#pragma unroll
      for (uint32_t i = 0; i < kRowGroups; ++i, at += kStride) {
        const uint4 v = load_shared(at);
        sum_[4 * i] += __uint_as_float(v.x);
        sum_[4 * i + 1] += __uint_as_float(v.y);
        sum_[4 * i + 2] += __uint_as_float(v.z);
        sum_[4 * i + 3] += __uint_as_float(v.w);
      }
    }
  }
  // Adds what kPartsAtOnce pairs of the team have left, or as many as there are; all is loaded before the first sum.
  static constexpr uint32_t kPartsAtOnce = 4;
  template <uint32_t kGroups>
  __device__ __forceinline__ void add_parts(uint32_t first, uint32_t group, uint32_t end,
                                            float (&sums)[4 * kGroups]) const {
    float4 left[kPartsAtOnce][kGroups];
#pragma unroll
    for (uint32_t i = 0; i < kPartsAtOnce; ++i) {
      const float4* from = left_by(b_.block_of(b_.pair - b_.part + min(first + i, b_.team - 1)));
#pragma unroll
      for (uint32_t j = 0; j < kGroups; ++j) left[i][j] = __ldcg(from + min(group + j, end - 1) * kGroupThreads);
    }
#pragma unroll
    for (uint32_t i = 0; i < kPartsAtOnce; ++i) {
      if (first + i >= b_.team) break;
#pragma unroll
      for (uint32_t j = 0; j < kGroups; ++j) {
        sums[4 * j] += left[i][j].x;
        sums[4 * j + 1] += left[i][j].y;
        sums[4 * j + 2] += left[i][j].z;
        sums[4 * j + 3] += left[i][j].w;
      }
    }
  }
  const NumbersOfRows<Block> numbers_;
  RowNumbers<N>& shared_;
  uint32_t rows_before_, live_ = 0;  // live_: live rows of the band
};

}  // namespace detail

// If kTeams, the panels are so few that each has a team of pairs, all of which finish it.
template <PackedFormat F, int N, bool kTeams>
__global__ void __launch_bounds__(detail::TileGemmShape<N>::kThreads, 1)
    tile_gemm_kernel(const __grid_constant__ MatvecArgs a, const __grid_constant__ TileGemmPointers p, uint32_t bands) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ detail::RowNumbers<N> numbers;
  trigger();
  make_table<F>();
  const detail::TileGemmBlock<F, N> block(a, p, bands, kTeams, memory);
  const uint32_t warp = warp_id();
  using Shape = detail::TileGemmShape<N>;
  if (warp >= detail::kPanelTiles) {
    if constexpr (Shape::kMovesRegisters) warpgroup::keep_registers<Shape::kKept>();
    detail::fill_rings(block, warp);
  } else {
    if constexpr (Shape::kMovesRegisters) warpgroup::take_registers<Shape::kTaken>();
    this_cluster().wait();
    detail::PanelSums<F, N> sums(block, numbers);
    uint32_t rehearses = Shape::kRehearses ? 1 : 0;
    if constexpr (!Shape::kRehearses) {
      wait();
      sums.begin();
    }
    for (uint32_t s = block.first; rehearses != 0 || s < block.last;) {
      // The compiler may not know which turn is the rehearsal, for which it would make instructions of its own.
      if constexpr (Shape::kRehearses) asm volatile("" : "+r"(rehearses));
      const uint32_t panel = s / block.stages_of_panel;
      const bool finishes = kTeams || s % block.stages_of_panel == 0;
      if (rehearses == 0) {
        s = sums.multiply(s);
        if (finishes) sums.find_numbers();
        if constexpr (kTeams) {
          sums.meet_team();
        } else {
          if (finishes) sums.gather(panel);
          if (!finishes) sums.leave();
        }
      }
      if constexpr (kTeams) {
        sums.finish_share(panel);
      } else {
        if (finishes || rehearses != 0) sums.finish(panel);
      }
      if (rehearses != 0) {
        wait();
        sums.begin();
        rehearses = 0;
      }
    }
  }
  this_cluster().sync();  // the other block's last arrivals are at barriers of this one
#endif
}

// This launches a product. It has the members of Matvec; MatvecArgs::prepared is always 1.
template <PackedFormat F>
class TileGemm {
 public:
  static constexpr const char* kName = "tile_gemm";
  // Says whether a plugin built for `targets` has the kernels for a GPU of that architecture.
  static constexpr bool fits(std::string_view targets, uint32_t arch) {
    constexpr uint32_t kHopper = 90;
    return arch == kHopper && targets.find("sm_90a") != std::string_view::npos;
  }
  static constexpr uint32_t direct_classes(const MatvecArgs&) { return 0; }
  static uint32_t prepared_classes(const MatvecArgs&) { return TENON_BLOCKS_WHOLE; }
  static uint64_t prepared_bytes(const MatvecArgs& a) { return halves(a).bytes(); }
  static uint64_t scratch_bytes(const MatvecArgs& a) {
    if (a.own_panels != 0) return 0;
    return with_rows(a,
                     [&]<int N>() { return uint64_t{grid(a)} * N * detail::kPanelTiles * kTileRows * sizeof(float); });
  }
  static uint64_t zeroed_bytes(const MatvecArgs& a) {
    return a.own_panels != 0 ? 0 : grid(a) * detail::kMostTeam * sizeof(uint32_t);
  }
  // Says whether each pair may have a panel of its own. Most have one, and none has two, so that none is late.
  static bool has_own_panels(const MatvecArgs& a) {
    const uint32_t blocks = cluster_grid(a).blocks.x;
    return a.rows <= kClusterRows && a.silu == 0 && detail::stages_of<F>(a.k) >= detail::PartSumsLayout::kParts &&
           blocks <= a.blocks && blocks >= a.blocks - a.blocks / 4;
  }
  // Says whether x of a product may come tiled, and y of one may be left so.
  static bool takes_tiled(const MatvecArgs& a) {
    return has_whole_bands(a) && a.k % kStageK<F> == 0 && halves(a).rows == sdk::tiled_band_rows(a.rows);
  }
  static bool leaves_tiled(const MatvecArgs& a) { return has_whole_bands(a) && a.silu != 0; }
  static bool takes_normed(const MatvecArgs& a) { return takes_tiled(a) && a.rows <= detail::kNormedRows; }
  // Says whether the product may leave rows for a norm beside y. Those in f16 take their scale from an addend.
  static bool leaves_normed(const MatvecArgs& a, bool has_addend) {
    return has_whole_bands(a) && a.rows <= detail::kNormedRows && a.silu == 0 &&
           a.map.columns % sdk::octet_of_sums_columns(a.rows) == 0 &&
           (has_addend || !std::is_same_v<typename F::Half, __half>);
  }

  static void prepare(const MatvecArgs& a, const MatvecPointers& p, const Launch& launch) {
    const detail::PreparedHalves to = halves(a);
    const uint32_t k = to.blocks * detail::kPreparedK, rows = to.rows * to.bands;
    if (rows > kTileGemmBand) {
      return launch(&prepare_many_halves_kernel<F>,
                    {.blocks = {rows / detail::kPreparedRows}, .threads = {detail::kMostPrepareThreads}}, a, p, to);
    }
    // Few rows are soonest done by large blocks; for many rows several blocks should be on a multiprocessor at once.
    const uint32_t most = std::clamp(a.blocks * detail::kMostPrepareThreads / rows, detail::kLeastPrepareThreads,
                                     detail::kMostPrepareThreads);
    launch(&prepare_halves_kernel<F>,
           {.blocks = {rows},
            .threads = {std::min(most, k / 8 + 31) / 32 * 32},
            .shared_bytes = F::kScaled ? k * sizeof(float) : 0},
           a, p, to);
  }
  static void multiply(const MatvecArgs& a, const MatvecPointers& p, BlockSize, const Launch& launch) {
    if (a.own_panels != 0) return launch(cluster_kernel(), cluster_grid(a), a, TileGemmPointers{p, nullptr, nullptr});
    with_rows(a, [&]<int N>() {
      const TileGemmPointers all{p, launch.scratch<float4>(), launch.zeroed<uint32_t>()};
      const auto kernel = [&] {
        if constexpr (detail::has_teams(N)) {
          if (teams(a) != 0) return &tile_gemm_kernel<Form, N, true>;
        }
        return &tile_gemm_kernel<Form, N, false>;
      }();
      launch(kernel,
             {.blocks = {grid(a)},
              .threads = {detail::TileGemmShape<N>::kThreads},
              .shared_bytes = detail::TileGemmLayout<Form, N>::kBytes,
              .cluster = {detail::kClusterBlocks}},
             a, all, bands(a));
    });
  }

 private:
  using Form = FormOfTiles<F>;
  static auto cluster_kernel() { return &cluster_gemm_kernel<Form>; }
  static Grid cluster_grid(const MatvecArgs& a) {
    const uint32_t panels = (a.map.tiles() + detail::kClusterTiles - 1) / detail::kClusterTiles;
    return {.blocks = {panels * detail::kClusterBlocks},
            .threads = {detail::TileGemmShape<kClusterRows>::kThreads},
            .shared_bytes = detail::ClusterBlock<Form>::Layout::kBytes,
            .cluster = {detail::kClusterBlocks}};
  }
  static bool has_whole_bands(const MatvecArgs& a) { return halves(a).rows * bands(a) == a.rows; }
  static uint32_t panels(const MatvecArgs& a) { return detail::panels_of(a.map.tiles()); }
  // 129 to 256 rows are one band where every pair has a panel, and else two: what
  // pairs of a panel leave to each other is half.
  static uint32_t bands(const MatvecArgs& a) {
    if (a.rows > kTileGemmBand) return (a.rows + kTileGemmBand - 1) / kTileGemmBand;
    return a.rows > kTileGemmBand / 2 && panels(a) < a.blocks / detail::kClusterBlocks ? 2 : 1;
  }
  // Calls f with how many rows a band has.
  template <class Fn>
  static auto with_rows(const MatvecArgs& a, const Fn& f) {
    const uint32_t band = a.rows <= kTileGemmBand && bands(a) == 2 ? (a.rows + 1) / 2 : a.rows;
    if (band <= 16) return f.template operator()<16>();
    if (band <= 32) return f.template operator()<32>();
    if (band <= 48) return f.template operator()<48>();
    if (band <= 64) return f.template operator()<64>();
    if (band <= 96) return f.template operator()<96>();
    if (band <= 128) return f.template operator()<128>();
    if (band <= 192) return f.template operator()<192>();
    return f.template operator()<kTileGemmBand>();
  }
  static detail::PreparedHalves halves(const MatvecArgs& a) {
    return with_rows(a, [&]<int N>() { return detail::prepared_halves<F>(a.k, N, bands(a)); });
  }
  // The blocks of the bands lie side by side, so that weights come from memory once and from L2 then.
  static uint32_t side_by_side(const MatvecArgs& a) { return detail::kClusterBlocks * bands(a); }
  static uint32_t pairs(const MatvecArgs& a) {
    return std::min(a.blocks / side_by_side(a), panels(a) * detail::stages_of<F>(a.k));
  }
  // Returns how many pairs of a band multiply in teams. 0: they do not. A few pairs are better left out than a panel
  // finished by one of those that share it.
  static uint32_t teams(const MatvecArgs& a) {
    constexpr uint32_t kMostLeftOut = 8;  // an eighth
    const uint32_t all = pairs(a), team = detail::most_team(panels(a), detail::stages_of<F>(a.k), all),
                   multiplying = team * panels(a);
    const bool pays = team > 1 && all - multiplying <= all / kMostLeftOut;
    return pays && detail::has_teams(halves(a).rows) ? multiplying : 0;
  }
  static uint32_t grid(const MatvecArgs& a) {
    const uint32_t in_teams = teams(a);
    return (in_teams != 0 ? in_teams : pairs(a)) * side_by_side(a);
  }
};

}  // namespace tenon::cuda
