// These are matvec_kernel's phases in order, as matvec.cuh describes them; its inner loop stands in the kernel. All are
// inlined, since the variables that they share live in registers: the machine code is that of one function. It depends
// even on the order in which the kernel computes variables: compare a change by its counts (tests/speed/kernels.csv).
#pragma once

#include "tenon/cuda/matvec_block.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda::detail {

template <PackedFormat F, bool kDigits>
struct OneRow {
  using X = SharedRow<F>;
  using Sink = SharedRowSink<F>;
};
template <PackedFormat F>
struct OneRow<F, true> {
  using X = SharedDigits<F>;
  using Sink = SharedDigitSink<F>;
};

// A kernel is compiled for a format and these choices, which matvec.cuh explains.
struct MatvecVariant {
  int tiles;             // a warp multiplies so many together
  int row_blocks;        // x has so many; 1 if it is shared
  bool shared;           // x is one row, which lies in shared memory; else x was prepared before
  bool routed = false;   // the rows have experts
  bool paired = true;    // x is paired, else unpaired
  bool digits = false;   // x is digits; it is shared then
  bool ordered = false;  // columns have an order of their own; x is shared then

  // A kernel has the choices as a number, since nvcc compiles no kernel whose template argument is a struct.
  constexpr uint32_t code() const {
    return static_cast<uint32_t>(tiles) | static_cast<uint32_t>(row_blocks) << 8 | uint32_t{shared} << 16 |
           uint32_t{routed} << 17 | uint32_t{paired} << 18 | uint32_t{digits} << 19 | uint32_t{ordered} << 20;
  }
  static constexpr MatvecVariant of(uint32_t code) {
    const auto is_set = [&](uint32_t bit) { return (code >> bit & 1) != 0; };
    return {.tiles = static_cast<int>(code & 0xff),
            .row_blocks = static_cast<int>(code >> 8 & 0xff),
            .shared = is_set(16),
            .routed = is_set(17),
            .paired = is_set(18),
            .digits = is_set(19),
            .ordered = is_set(20)};
  }
};
template <PackedFormat F, MatvecVariant kVariant>
struct MatvecShape {
  using Format = F;
  using Row = OneRow<F, kVariant.digits>;
  using X = std::conditional_t<kVariant.shared, typename Row::X, GlobalRows<F, kVariant.row_blocks, kVariant.paired>>;
  static_assert(Multiplies<F, X, kVariant.tiles, kVariant.row_blocks>);
  static constexpr int kTiles = kVariant.tiles, kRowBlocks = kVariant.row_blocks;
  static constexpr bool kShared = kVariant.shared, kRouted = kVariant.routed, kPaired = kVariant.paired,
                        kDigits = kVariant.digits, kOrdered = kVariant.ordered;
  static constexpr uint32_t kRows = X::kRows;                       // rows of x
  static constexpr uint32_t kOutputs = kTiles * kTileRows * kRows;  // a tile pair has so many
  using Ring = WarpRing<F::kSegmentBytes, kTiles>;
  using Feed = WeightFeed<F, kTiles>;
  using Rows = BlockRows<kRouted, kShared>;
  using Output = ThreadOutput<kRows>;
  // A warp has for each tile and row block of a tile pair the sums of a fragment (16 rows of weights, the rows of x).
  using Sums = float[kTiles][kRowBlocks][kSumsOf<F, X>];
};

// Every phase of a block knows these.
template <class S>
struct MatvecBlock {
  const MatvecArgs& a;
  const MatvecPointers& p;
  uint8_t* memory;  // shared memory, in the layout `at`
  uint32_t warp, lane;
  uint32_t segments;     // a tile has so many
  uint32_t tiles;        // the matrix has so many
  uint32_t first, last;  // the block's tiles, last excluded
  MatvecLayout at;

  __device__ __forceinline__ MatvecBlock(const MatvecArgs& args, const MatvecPointers& pointers, uint8_t* shared)
      : a(args),
        p(pointers),
        memory(shared),
        warp(warp_id()),
        lane(lane_id()),
        segments(segments_of<typename S::Format>(args.k)),
        tiles(args.map.tiles()),
        first(tiles * blockIdx.x / gridDim.x),
        last(tiles * (blockIdx.x + 1) / gridDim.x),
        at(matvec_layout<typename S::Format, S::kTiles, S::kShared>(args.k, S::kRows, args.stages)) {}

  // Makes the warp's ring, (stages, kTiles segments), which is empty.
  __device__ __forceinline__ typename S::Feed make_feed() const {
    using Ring = typename S::Ring;
    return {Ring(shared_address(memory + at.barriers) + Barrier::kBytes * a.stages * warp,
                 shared_address(memory) + Ring::kStageBytes * a.stages * warp, a.stages),
            SegmentWalk<typename S::Format, S::kTiles>(first, last, segments, warp), segments};
  }
  __device__ __forceinline__ RowSource x_source() const {
    return {S::kRouted && S::kShared ? p.x + blockIdx.y * a.x_stride : p.x, p.norm, a.k, segments,
            S::kOrdered ? p.order : nullptr};
  }
};

// The warps' sums of a tile pair meet in one of two places, in turns. kWriters of the warps add them up; from pair to
// pair these are others. Only they wait until all sums are there: another warp may be two pairs ahead. A place is
// filled again when its writers have taken the sums.
template <class S>
class PairPlaces {
 public:
  __device__ __forceinline__ explicit PairPlaces(const MatvecBlock<S>& b) : b_(b) {}
  // One thread calls it before the first pair.
  __device__ __forceinline__ void init() const {
    taken(0).init(kWriters);
    taken(1).init(kWriters);
  }
  __device__ __forceinline__ void wait_until_taken(uint32_t pair) const {
    if (kSomeWait && pair >= 2) taken(pair).wait((pair / 2 - 1) % 2);
  }
  // The warp's sums are there. All wait for the first pair, since they find the norm's factor then.
  __device__ __forceinline__ void meet(uint32_t pair) const {
    if (!kSomeWait || pair == 0) return __syncthreads();
    const uint32_t barrier = 1 + pair % 2;
    writes(pair) ? named_sync(barrier, kMatvecThreads) : named_arrive(barrier, kMatvecThreads);
  }
  __device__ __forceinline__ bool writes(uint32_t pair) const { return (b_.warp - pair) % kMatvecWarps < kWriters; }
  // Each writer calls it when it has the sums of a pair.
  __device__ __forceinline__ void take(uint32_t pair) const {
    if constexpr (!kSomeWait) return;
    __syncwarp();
    if (b_.lane == 0) taken(pair).arrive();
  }

 private:
  static constexpr uint32_t kWriters = (S::kOutputs + 31) / 32;
  static constexpr bool kSomeWait = kWriters < kMatvecWarps;
  __device__ __forceinline__ Barrier taken(uint32_t pair) const {
    return Barrier(shared_address(b_.memory + b_.at.taken) + pair % 2 * Barrier::kBytes);
  }

  const MatvecBlock<S>& b_;
};

// Before the wait: brings the norm's weights, (k) f32, to where x will be prepared, makes barriers and the format's
// table.
template <class S>
__device__ __forceinline__ void keep_constants(const MatvecBlock<S>& b, const RowSource& source, uint8_t* x_memory) {
  using F = typename S::Format;
  if (S::kShared && b.p.norm != nullptr) keep_norm<F>(source, b.warp, x_memory);
  if (threadIdx.x == 0) PairPlaces<S>(b).init();
  if constexpr (kMakesTable<F> && !kSparse<F> && !S::kDigits) {
    make_table<F>();
    __syncthreads();
  }
}

// A block multiplies x by these.
struct BlockMatrices {
  const uint8_t* weights;
  const float* scales;  // one a packed row; nullptr where the format has none
  uint32_t segments;    // segments of a tile that are multiplied; 0 for rows without an expert
};
// After the wait: if the product is routed, `matrices` become those of the expert of the block's rows, and the ring is
// primed with them; the step itself may have chosen the experts, so their weights are known only now. Returns false if
// the block has no rows: its row is padding, or there are fewer groups of rows.
template <class S>
__device__ __forceinline__ bool choose_matrices(const MatvecBlock<S>& b, const typename S::Rows& rows,
                                                typename S::Feed& feed, BlockMatrices& matrices) {
  if constexpr (S::kRouted) {
    const int32_t expert = rows.expert(b.a.experts);
    if (rows[0] >= min(*b.p.live, b.a.rows)) return false;
    if (expert < 0) {
      matrices.segments = 0;
    } else {
      matrices.weights += static_cast<uint32_t>(expert) * (b.tiles * feed.tile_bytes());
      if constexpr (S::Format::kRowScales) {
        matrices.scales += static_cast<uint32_t>(expert) * (b.tiles * kTileRows);
      }
      feed.prime(matrices.weights, b.a.stages);
    }
  }
  return true;
}

// x is prepared from this, or is this if it was prepared before.
template <class S>
struct XToPrepare {
  const RowSource& source;
  uint8_t* memory;          // (1, k), in shared memory
  const uint8_t* prepared;  // (kRows, k) in device memory, as `rows` says
  const PreparedRows<typename S::Format>& rows;
};
// Returns x. One row is prepared in shared memory, where each warp does the k that it will multiply itself: `share`
// gets the sums of these. Several rows are prepared already.
template <class S>
__device__ __forceinline__ typename S::X prepare_x(const MatvecBlock<S>& b, const XToPrepare<S>& x, ShareSums& share) {
  using F = typename S::Format;
  if constexpr (S::kShared) {
    auto* sums = reinterpret_cast<float*>(b.memory + b.at.sums);  // [group]
    share = prepare_share<F>(x.source, b.warp, x.memory, typename S::Row::Sink{x.memory, sums});
    return typename S::X(x.memory, sums);
  } else {
    return typename S::X(x.prepared, x.rows);
  }
}

// The 16 warps leave their sums here, and find here what they need to finish them.
template <class S>
struct Reduction {
  float* partials;          // [pair % 2][warp][tile of the pair][row][16 rows of the tile], in shared memory
  float* squares;           // [warp] sums of x * x, in shared memory
  const uint8_t* prepared;  // as XToPrepare has it
  const PreparedRows<typename S::Format>& rows;
};
// Each warp leaves its sums of a tile pair: acc becomes (kTiles, kRows, 16 rows of weights) in shared memory. `pair`
// counts the block's pairs. After the first one `share` is that of the whole warp.
template <class S>
__device__ __forceinline__ void reduce(const MatvecBlock<S>& b, uint32_t pair, const Reduction<S>& to, ShareSums& share,
                                       const typename S::Sums& acc) {
  using F = typename S::Format;
  if (S::kShared && pair == 0) {
    if (F::kTotal) share.total = warp_sum(share.total);
    if (b.p.norm != nullptr) share.square = warp_sum(share.square);
    if (b.lane == 0) to.squares[b.warp] = share.square;
  }
  const PairPlaces<S> places(b);
  places.wait_until_taken(pair);
  float* own = to.partials + (pair % 2 * kMatvecWarps + b.warp) * S::kOutputs;
  // These are [row][warp]; a row in shared memory has none.
  const auto* infos = reinterpret_cast<const RowInfo*>(to.prepared + to.rows.info());
  if constexpr (S::kDigits) {
    leave_digits<F, typename S::X>(acc, share, own);
  } else if constexpr (S::kPaired) {
    leave_paired<F, typename S::X>(acc, share, infos + b.warp, own);
  } else {
    leave_unpaired<F>(acc, infos + b.warp, own);
  }
  places.meet(pair);
}

// These rows of y are computed.
template <class S>
struct LiveOutputs {
  const typename S::Rows& rows;
  uint32_t last, live;  // the block's last tile, excluded, and the step's live rows
  __device__ __forceinline__ bool has(const typename S::Output& o) const {
    return o.output < S::kOutputs && o.packed_row < last * kTileRows && rows[o.row] < live;
  }
};
// Returns the sum of what the warps left of a thread's output of a pair. Some
// threads have no output; they get another's.
template <class S>
__device__ __forceinline__ float sum_of_pair(const float* partials, uint32_t pair, const typename S::Output& o) {
  return sum_of_warps<S::kOutputs>(partials + pair % 2 * kMatvecWarps * S::kOutputs + min(o.output, S::kOutputs - 1));
}
// Writes v, the thread's output, after SiLU if there is that. Whole warps call it, for the shuffle.
template <class S>
__device__ __forceinline__ void write(const MatvecArgs& a, const MatvecPointers& p, const typename S::Output& o,
                                      float v, const LiveOutputs<S>& live) {
  if (a.silu != 0) v = silu_multiplied(v);
  const uint32_t column = a.map.column(o.packed_row);
  const bool gate = a.silu == 0 || o.packed_row % kTileRows < 8;
  if (live.has(o) && gate && column != UINT32_MAX) p.y[live.rows[o.row] * a.y_stride + column] = v;
}

}  // namespace tenon::cuda::detail
