// A format says how weights lie in a segment (packed.cuh), and how a warp multiplies segments by x. The concept
// PackedFormat lists its members. The three formats here have one scale a row or none; those of grouped_formats.cuh
// have a scale for each group of weights. docs/glossary.md has the words.
//
// A tile is multiplied so: acc (16 rows of weights, columns of B) += weights (16 rows, k) B (k, columns). x is
// f32 and tensor cores take halves, so a row of x is two columns of B, x = high + low; a matrix of B, 8 columns, has 4
// rows of x and is called a row block. Where x is unpaired, rounded to one half a value, a row block has 8 rows. The
// concept PreparedX says what a format sees of x.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "tenon/cuda/mma.cuh"
#include "tenon/cuda/packed.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda {

// A warp's sums need this about its share of a row of x (row_prologue.cuh).
struct RowInfo {
  float unscale;  // undoes kScaled
  float total;    // the sum of the scaled share, if kTotal
};

// A lane has this of the product of a tile and a row of x: the sums of packed rows g (low) and g + 8 (high).
struct RowPair {
  float low, high;  // the sums of row g = lane / 4 of the tile, and of row g + 8
};

// These are the members of a format. It also has a put() of its own, by which a scheme's load kernel stores weights.
//
// Example: HalfFormat<__nv_bfloat16> has Half = __nv_bfloat16, kBlocks = 1, kSegmentK = 32, kSegmentBytes = 16 rows *
// 32 k * 2 bytes = 1024, kAcc = 4 (an mma's sums), kGroup = 0, kSpread = 1, and kScaled, kTotal, kRowScales and
// kStaggered are false. Int4Format<64> has Half = __half, kBlocks = 4, kSegmentK = 128, kSegmentBytes = 1152, kAcc = 4,
// kGroup = 64, kSpread = 2, and kScaled and kStaggered are true.
template <class F>
concept PackedFormat = requires(const uint8_t* segment, uint32_t n, float (&weights)[2][8], float sum, RowInfo row) {
  // Each value of x is split into two numbers of this type. If it is void, x stays f32.
  typename F::Half;
  // A segment has kBlocks blocks of 32 k, which are kSegmentK = 32 * kBlocks, in kSegmentBytes bytes.
  { F::kBlocks } -> std::convertible_to<uint32_t>;
  { F::kSegmentK } -> std::convertible_to<uint32_t>;
  { F::kSegmentBytes } -> std::convertible_to<uint32_t>;
  // A lane keeps so many sums for a tile and a row block of paired x.
  { F::kAcc } -> std::convertible_to<uint32_t>;
  // This many k share a scale, and are a group. A format with kNeedsSums needs the sum of x over each group. 0 means no
  // groups.
  { F::kGroup } -> std::convertible_to<uint32_t>;
  // This many groups of one row of x lie side by side in columns of B and are scaled at once.
  { F::kSpread } -> std::convertible_to<uint32_t>;
  // If true, x is first scaled by a power of two, so that its greatest magnitude is near 2^14.
  { F::kScaled } -> std::convertible_to<bool>;
  // If true, finish() needs the sum over all of x (RowInfo::total).
  { F::kTotal } -> std::convertible_to<bool>;
  // If true, each row has a scale in a second store, by packed row. Products multiply the row's finished sum by it.
  { F::kRowScales } -> std::convertible_to<bool>;
  // If true, the last two of each 4 k have weights that are 16 times too large, so x has to be 16 times too small
  // there.
  { F::kStaggered } -> std::convertible_to<bool>;
  // Makes a warp's sum, but for the row's scale, from what partial() gave.
  { F::finish(sum, row) } -> std::same_as<float>;
  // expand(segment, block, lane, weights) writes 8 weights of row lane / 4 to weights[0] and 8 of row lane / 4 + 8 to
  // weights[1], as plain numbers, from k = 32 * block + 8 * (lane % 4) on. The row's scale is not applied. The segment is in
  // device memory.
  F::expand(segment, n, n, weights);
};

// A format multiplies prepared rows of x that have these members (row_sources.cuh). seek() chooses a segment; the
// functions after it are about that segment.
template <class X>
concept PreparedX = requires(X& x, uint32_t segment, uint32_t block, int row_block, int row, uint32_t k) {
  // There are kRows rows of x. kSpreads: groups of k lie side by side in columns of B (PackedFormat's kSpread).
  { X::kRows } -> std::convertible_to<int>;
  { X::kSpreads } -> std::convertible_to<bool>;
  // If true, a row is two columns of B, its high and its low parts; else it is one column.
  { X::kPaired } -> std::convertible_to<bool>;
  x.seek(segment);
  // Returns the lane's fragment of B for the 32 k of a block and a row block: two k-steps of two registers. For a
  // format that is kSparse it is the fragment that mma_sparse() takes.
  { x.fragment(block, row_block) } -> std::same_as<uint4>;
  // Returns the sum of x over a group of k, in steps of 2^-24. If x is paired, it is that of row 4 * row_block + lane %
  // 4. If x is unpaired, float2 has the sums of row 8 * row_block + 2 * (lane % 4) and of the next row.
  { x.sum(block, row_block) } -> std::same_as<std::conditional_t<X::kPaired, float, float2>>;
  // Returns the values k and k + 1 of a row in f32, for formats whose Half is void.
  { x.pair(row, k) } -> std::same_as<float2>;
};

// A single row of x may instead be integers of three digits of base 256, each from -128 to 127, which products of bytes
// multiply exactly (row_prologue.cuh). A format with kTakesDigits multiplies such a row, too.
template <class X>
concept DigitRow = requires(X& x, uint32_t segment, uint32_t bundle, uint32_t group) {
  { X::kRows } -> std::convertible_to<int>;
  x.seek(segment);
  // Returns the lane's fragments of B for 64 k of the segment, as quartets (group_weights.cuh): x, y: the first
  // quartets of the first and of the second 32 k; z, w: the last quartets. Column c has digit c % 4 of the row; digits
  // begin with the lowest, and the fourth may be anything. Groups that lie side by side (kSpread) have their k in
  // columns 4 * (group % kSpread) and on, and zeros in the others. If they do not, columns 4 to 7 are zero.
  { x.digits(bundle) } -> std::same_as<uint4>;
  // Returns the sum over a group.
  { x.sum(group) } -> std::same_as<float>;
};
template <class F>
inline constexpr bool kTakesDigits = false;
template <class F>
  requires requires { F::kTakesDigits; }
inline constexpr bool kTakesDigits<F> = F::kTakesDigits;
// If true, its quartets have pairs of neighbours (group_weights.cuh).
template <class F>
inline constexpr bool kQuartetsOfPairs = false;
template <class F>
  requires requires { F::kQuartetsOfPairs; }
inline constexpr bool kQuartetsOfPairs<F> = F::kQuartetsOfPairs;

// A lane keeps so many sums for a tile and a row block. If x is unpaired, sum 2 * h + c belongs to row g + 8 * h of the
// tile and to row 2 * (lane % 4) + c of the row block.
template <class F, class X>
inline constexpr uint32_t kSumsOf = 4;
template <class F, PreparedX X>
  requires X::kPaired
inline constexpr uint32_t kSumsOf<F, X> = F::kAcc;

// F can multiply x: kTiles tiles by kRowBlocks row blocks.
template <class F, class X, int kTiles, int kRowBlocks>
concept Multiplies = PackedFormat<F> && (PreparedX<X> || (DigitRow<X> && kTakesDigits<F>)) &&
                     requires(float (&acc)[kTiles][kRowBlocks][kSumsOf<F, X>], const uint32_t (&segment)[kTiles], X& x,
                              const float (&sums)[DigitRow<X> ? 4 : F::kAcc]) {
                       // Computes acc[tile][row block] += weights * x, for the first tiles, of which there may be fewer
                       // than kTiles. segment[tile] is an address in shared memory.
                       F::template multiply<kTiles>(acc, segment, x);
                       F::template multiply<1>(acc, segment, x);
                       // If x is paired, returns the sums of row 4 * row_block + lane % 4 of x. If x is a single row,
                       // only lanes with lane % 4 == 0 have them.
                       { F::template partial<X>(sums) } -> std::same_as<RowPair>;
                     };

// Weights or formats may look up in a table in shared memory what codes stand for: they have kTableBytes, and a
// make_table() that all threads of a block call before they wait for each other. These are 0 and nothing for the
// others. A format that has other shared memory of its own counts that among kTableBytes. Products of digits have no
// table.
template <class T>
inline constexpr uint32_t kTableBytes = 0;
template <class T>
  requires requires { T::kTableBytes; }
inline constexpr uint32_t kTableBytes<T> = T::kTableBytes;
template <class T>
inline constexpr bool kMakesTable = kTableBytes<T> != 0 && requires { T::make_table(); };
template <class T>
__device__ __forceinline__ void make_table() {
  if constexpr (kMakesTable<T>) T::make_table();
}

// A format in which two of each four weights are zero may have kSparse: sparse tensor cores then skip the zeros
// (mma_sparse). Its tables serve only the products that multiply the zeros too.
template <class F>
inline constexpr bool kSparse = requires { F::kSparse; };
template <class F>
inline constexpr uint32_t kMatvecTableBytes = kSparse<F> ? 0 : kTableBytes<F>;

// If true, the format needs the sums of x over each kGroup k.
template <class F>
inline constexpr bool kNeedsSums = false;
template <class F>
  requires requires { F::kNeedsSums; }
inline constexpr bool kNeedsSums<F> = F::kNeedsSums;
// If true, columns may be in an order of their own (RowSource::order of row_prologue.cuh).
template <class F>
inline constexpr bool kTakesOrder = false;
template <class F>
  requires requires { F::kTakesOrder; }
inline constexpr bool kTakesOrder<F> = F::kTakesOrder;

// A site has so many stores: the packed weights, and the rows' scales if there are any.
template <PackedFormat F>
inline constexpr uint32_t kStores = F::kRowScales ? 2 : 1;

// Code divides by this: it is kGroup, or 1 where there are no groups.
template <PackedFormat F>
inline constexpr uint32_t kGroupDivisor = F::kGroup == 0 ? 1 : F::kGroup;

inline constexpr float kDenormalStep = 1.0F / (1 << 24);  // a half with the bits u is u * 2^-24

// Multiplies one of the two k-steps that a fragment of x has.
template <HalfType Half>
__device__ __forceinline__ void mma_step(float (&c)[4], const uint32_t (&a)[4], const uint4& x, int step) {
  step == 0 ? mma<Half>(c, a, x.x, x.y) : mma<Half>(c, a, x.z, x.w);
}

// Returns the offset of the 16 bytes of the lane that holds (row, k) of a block of 32 k.
__host__ __device__ inline uint32_t lane_offset(uint32_t row, uint32_t k) {
  return (row % 8 * 4 + k % 32 / 8) * 16;
}

// Returns 0, which the compiler does not know, so that a constant plus this stays in a register. An instruction has
// room for one constant; ptxas would load a second one into a register at each use.
__device__ __forceinline__ uint32_t unknown_zero() {
  uint32_t lane = 0, multiprocessor = 0;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  return (lane + multiprocessor) >> 16;
}
// These make two halves of bytes 0 and 1 of a word, or of bytes 2 and 3. A byte u becomes the bits of a denormal half,
// which is exactly u * 2^-24 and costs no subtraction. The bits kWith are added.
template <uint32_t kWith = 0>
__device__ __forceinline__ uint32_t first_bytes(uint32_t word) {
  return __byte_perm(word, kWith, kWith == 0 ? 0x7170 : 0x7170 + unknown_zero());
}
template <uint32_t kWith = 0>
__device__ __forceinline__ uint32_t last_bytes(uint32_t word) {
  return __byte_perm(word, kWith, kWith == 0 ? 0x7372 : 0x7372 + unknown_zero());
}

// Weights in bf16 or fp16 lie as [k-step][lane][a0..a3].
template <HalfType H, uint32_t Blocks = 1>
struct HalfFormat {
  using Half = H;
  static constexpr uint32_t kBlocks = Blocks, kSegmentK = 32 * Blocks, kSegmentBytes = 1024 * Blocks;
  static constexpr uint32_t kAcc = 4, kGroup = 0, kSpread = 1;
  static constexpr bool kScaled = std::is_same_v<H, __half>, kTotal = false, kRowScales = false, kStaggered = false;

  template <int kPresent, int kTiles, int kRowBlocks, PreparedX X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][kRowBlocks][kAcc],
                                                  const uint32_t (&segment)[kTiles], X& x) {
#pragma unroll
    for (uint32_t step = 0; step < 2 * Blocks; ++step) {
#pragma unroll
      for (int t = 0; t < kPresent; ++t) {
        const uint4 w = load_shared(segment[t] + 512 * step + 16 * lane_id());
        const uint32_t a[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int n = 0; n < kRowBlocks; ++n) mma_step<H>(acc[t][n], a, x.fragment(step / 2, n), step % 2);
      }
    }
  }
  template <PreparedX X>
  static __device__ __forceinline__ RowPair partial(const float (&acc)[kAcc]) {
    return {acc[0] + acc[1], acc[2] + acc[3]};
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo& row) { return sum * row.unscale; }

  // Returns the offset in a segment of the weights k..k+3 of a row; the last two are 8 bytes on. k is divisible by 4.
  static __host__ __device__ uint32_t quad_offset(uint32_t row, uint32_t k) {
    return (k % kSegmentK / 32 * 2 + k % 8 / 4) * 512 + lane_offset(row, k) + row / 8 * 4;
  }
  static __device__ void put(uint8_t* quad, const float (&w)[4]) {
    reinterpret_cast<uint32_t*>(quad)[0] = to_halves<H>(w[0], w[1]);
    reinterpret_cast<uint32_t*>(quad)[2] = to_halves<H>(w[2], w[3]);
  }
  static __device__ void expand(const uint8_t* segment, uint32_t block, uint32_t lane, float (&weights)[2][8]) {
    for (uint32_t step = 0; step < 2; ++step) {
      const uint4 w = *reinterpret_cast<const uint4*>(segment + (2 * block + step) * 512 + lane * 16);
      const uint32_t a[4] = {w.x, w.y, w.z, w.w};
      for (uint32_t i = 0; i < 4; ++i) {  // a0, a2 are of row g, a1, a3 of row g + 8
        weights[i % 2][4 * step + i / 2 * 2] = from_half<H>(a[i] & 0xffff);
        weights[i % 2][4 * step + i / 2 * 2 + 1] = from_half<H>(a[i] >> 16);
      }
    }
  }
};

// This format is int8, stored as w + 128: [32 k][lane][k-step][4 bytes of row g, 4
// bytes of row g + 8]. The rows have scales.
template <uint32_t Blocks = 2>
struct Int8Format {
  using Half = __half;
  static constexpr uint32_t kBlocks = Blocks, kSegmentK = 32 * Blocks, kSegmentBytes = 512 * Blocks;
  static constexpr uint32_t kAcc = 4, kGroup = 0, kSpread = 1;
  static constexpr bool kScaled = true, kTotal = true, kRowScales = true, kStaggered = false;
  static constexpr float kOffset = 128;

  template <int kPresent, int kTiles, int kRowBlocks, PreparedX X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][kRowBlocks][kAcc],
                                                  const uint32_t (&segment)[kTiles], X& x) {
#pragma unroll
    for (uint32_t b = 0; b < Blocks; ++b) {
      uint4 w[kPresent];  // by tile
#pragma unroll
      for (int t = 0; t < kPresent; ++t) w[t] = load_shared(segment[t] + 512 * b + 16 * lane_id());
#pragma unroll
      for (int i = 0; i < 2 * kPresent; ++i) {
        const int step = i / kPresent, t = i % kPresent;
        const uint32_t low = step == 0 ? w[t].x : w[t].z, high = step == 0 ? w[t].y : w[t].w;
        const uint32_t a[4] = {first_bytes<>(low), first_bytes<>(high), last_bytes<>(low), last_bytes<>(high)};
#pragma unroll
        for (int n = 0; n < kRowBlocks; ++n) mma_step<Half>(acc[t][n], a, x.fragment(b, n), step);
      }
    }
  }
  template <PreparedX X>
  static __device__ __forceinline__ RowPair partial(const float (&acc)[kAcc]) {
    return {acc[0] + acc[1], acc[2] + acc[3]};
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo& row) {
    return (sum / kDenormalStep - kOffset * row.total) * row.unscale;
  }

  // Returns the offset in a segment of the weights k..k+3 of a row; k is divisible by 4.
  static __host__ __device__ uint32_t quad_offset(uint32_t row, uint32_t k) {
    return k % kSegmentK / 32 * 512 + lane_offset(row, k) + k % 8 / 4 * 8 + row / 8 * 4;
  }
  // Stores four q of a row, each from -128 to 127.
  static __device__ void put(uint8_t* quad, const int (&q)[4]) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(q[i] + 128) << 8 * i;
    *reinterpret_cast<uint32_t*>(quad) = word;
  }
  static __device__ void expand(const uint8_t* segment, uint32_t block, uint32_t lane, float (&weights)[2][8]) {
    for (uint32_t i = 0; i < 16; ++i) {
      weights[i / 4 % 2][i / 8 * 4 + i % 4] = static_cast<float>(int{segment[block * 512 + lane * 16 + i]} - 128);
    }
  }
};

// This format is fp32, multiplied in fp32: [8 k][lane][2 k of row g, 2 k of row g + 8].
struct F32Format {
  using Half = void;
  static constexpr uint32_t kBlocks = 1, kSegmentK = 32, kSegmentBytes = 2048, kAcc = 8, kGroup = 0, kSpread = 1;
  static constexpr bool kScaled = false, kTotal = false, kRowScales = false, kStaggered = false;

  template <int kPresent, int kTiles, int kRowBlocks, PreparedX X>
  static __device__ __forceinline__ void multiply(float (&acc)[kTiles][kRowBlocks][kAcc],
                                                  const uint32_t (&segment)[kTiles], X& x) {
#pragma unroll
    for (int t = 0; t < kPresent; ++t) multiply_tile(acc[t], segment[t], x);
  }
  // The axes are acc[row block][2 * (row % 4) + (0: row g, 1: row g + 8)].
  template <int kRowBlocks, PreparedX X>
  static __device__ __forceinline__ void multiply_tile(float (&acc)[kRowBlocks][kAcc], uint32_t segment, X& x) {
#pragma unroll 1  // registers
    for (uint32_t octet = 0; octet < 4; ++octet) {
      const uint4 w = load_shared(segment + 512 * octet + 16 * lane_id());
#pragma unroll
      for (int r = 0; r < 4 * kRowBlocks && r < X::kRows; ++r) {
        const float2 v = x.pair(r, 8 * octet + 2 * (lane_id() % 4));
        float(&to)[kAcc] = acc[r / 4];
        to[r % 4 * 2] = fmaf(__uint_as_float(w.y), v.y, fmaf(__uint_as_float(w.x), v.x, to[r % 4 * 2]));
        to[r % 4 * 2 + 1] = fmaf(__uint_as_float(w.w), v.y, fmaf(__uint_as_float(w.z), v.x, to[r % 4 * 2 + 1]));
      }
    }
  }
  // A lane has 2 of each 8 k, so the four lanes of a row add theirs.
  template <PreparedX X>
  static __device__ __forceinline__ RowPair partial(const float (&acc)[kAcc]) {
    float low, high;
#pragma unroll
    for (uint32_t i = 0; i < kAcc; ++i) {
      const float v = row_sum(acc[i]);
      if (i / 2 == lane_id() % 4) (i % 2 == 0 ? low : high) = v;
    }
    return {low, high};
  }
  static __device__ __forceinline__ float finish(float sum, const RowInfo&) { return sum; }

  // Returns the offset in a segment of the weights k..k+3 of a row; the last two are 16 bytes on. k is divisible by 4.
  static __host__ __device__ uint32_t quad_offset(uint32_t row, uint32_t k) {
    return k % kSegmentK / 8 * 512 + (row % 8 * 4 + k % 8 / 2) * 16 + row / 8 * 8;
  }
  static __device__ void put(uint8_t* quad, const float (&w)[4]) {
    *reinterpret_cast<float2*>(quad) = {w[0], w[1]};
    *reinterpret_cast<float2*>(quad + 16) = {w[2], w[3]};
  }
  static __device__ void expand(const uint8_t* segment, uint32_t, uint32_t lane, float (&weights)[2][8]) {
    for (uint32_t pair = 0; pair < 4; ++pair) {
      const auto w = *reinterpret_cast<const float4*>(segment + lane % 4 * 512 + (lane / 4 * 4 + pair) * 16);
      weights[0][2 * pair] = w.x;
      weights[0][2 * pair + 1] = w.y;
      weights[1][2 * pair] = w.z;
      weights[1][2 * pair + 1] = w.w;
    }
  }
};

static_assert(PackedFormat<HalfFormat<__half>> && PackedFormat<Int8Format<>> && PackedFormat<F32Format>);

}  // namespace tenon::cuda
