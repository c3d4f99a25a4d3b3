// Weights of 1 to 4, 6 and 8 bits lie so in a segment (packed.cuh) of a grouped format: the unsigned integers q alone,
// 64 k of a tile at a time. Their scales are in group_scales.cuh. Codes that stand for other numbers than integers, and
// integers of five bits, are in coded_weights.cuh.
//
// Fragments of integers are made without arithmetic: the bits of q, alone in the 16 bits of a half, are the denormal
// half q * 2^-24. The factor 2^24 comes in when a warp's sums are finished.
#pragma once

#include <concepts>
#include <cstdint>

#include "tenon/cuda/formats.cuh"

namespace tenon::cuda {

// These are the members of a layout of q. Example: Nibbles<8> has kBias = 8, kStaggered =
// true and kBytes = 16 rows * 64 k / 2 = 512.
template <class W>
concept GroupWeights = requires(W w, const W& loaded, uint32_t address, uint32_t n, uint32_t (&a)[4],
                                const uint8_t* from, uint32_t (&q)[2][8], uint8_t* to, const uint32_t (&row_q)[8]) {
  // If true, q are integers, as denormal halves in fragments; else fragments have the numbers that q stand for.
  { W::kIntegers } -> std::convertible_to<bool>;
  // It is subtracted from integers; else 0.
  { W::kBias } -> std::convertible_to<int>;
  // A number of a fragment times kUnit is what q stands for, before the bias.
  { W::kUnit } -> std::convertible_to<float>;
  // Returns the number that q stands for, less the bias.
  { W::value(n) } -> std::same_as<float>;
  // PackedFormat says what this is.
  { W::kStaggered } -> std::convertible_to<bool>;
  // 16 rows by 64 k take so many bytes.
  { W::kBytes } -> std::convertible_to<uint32_t>;
  // Loads the lane's q of 64 k from an address in shared memory.
  w.load(address);
  // fragments<kWith>(step, a) makes the A fragment of one of the four k-steps that were
  // loaded. Integers have the bits kWith, too.
  loaded.template fragments<0>(n, a);
  // unpack(from, block, lane, q) reads from device memory 8 q of row lane / 4 to q[0] and 8 of row lane / 4 + 8 to
  // q[1], from the first (block 0) or the second 32 k.
  W::unpack(from, n, n, q);
  // put(to, row, k, row_q) stores the 8 q of a row from k on, which is divisible by 8. Other k of the row may have the
  // bytes that it writes to, and one thread stores all of a row's 64 k. Where other rows have them, it writes
  // atomically.
  W::put(to, n, n, row_q);
};

// A product of one row of x with integers of at most 7 bits can be one of bytes (grouped_formats.cuh). These layouts
// make fragments for it: quartets(which, a) makes an A fragment of bytes of 64 k that were loaded (mma_bytes() of
// mma.cuh). Of 8 k the first quartet is k 0, 4, 1 and 5, the last one k 2, 6, 3 and 7. Registers 0 and 1 have the
// quartets of rows g and g + 8 of a lane's k in the first 32 k, registers 2 and 3 those in the second 32 k. Last
// quartets are kLastQuartet times too large.
enum class Quartet { kFirst, kLast };
template <class W>
concept QuartetWeights = GroupWeights<W> && W::kIntegers && requires(const W& loaded, Quartet which, uint32_t (&a)[4]) {
  { W::kLastQuartet } -> std::convertible_to<int>;
  loaded.quartets(which, a);
};

// Codes that choose out of 16 numbers can be multiplied so, too. A number is the sum of kLowerUnit times a byte that
// quartets<false>(which, a) finds and kUpperUnit times one of quartets<true>(). The first quartet is k 0, 1, 4 and 5, the
// last one k 2, 3, 6 and 7; registers are in the order of QuartetWeights.
template <class W>
concept BookQuartets = GroupWeights<W> && requires(const W& loaded, Quartet which, uint32_t (&a)[4]) {
  requires W::takes_quartets();
  { W::kLowerUnit } -> std::convertible_to<float>;
  { W::kUpperUnit } -> std::convertible_to<float>;
  loaded.template quartets<true>(which, a);
};

// Layouts of integers have this.
template <int Bias>
struct IntegerWeights {
  static constexpr bool kIntegers = true;
  static constexpr int kBias = Bias;
  static constexpr float kUnit = 1 / kDenormalStep;
  static __device__ float value(uint32_t q) { return static_cast<float>(q) - kBias; }
};

// Returns word & kMask | kWith. The compiler makes two instructions of the plain expression, since one has room for one
// constant.
template <uint32_t kMask, uint32_t kWith>
__device__ __forceinline__ uint32_t masked(uint32_t word) {
  if constexpr (kWith == 0) return word & kMask;
  constexpr uint32_t kAndOr = 0xea;
  uint32_t bits = 0;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(bits) : "r"(word), "n"(kMask), "n"(kWith), "n"(kAndOr));
  return bits;
}

// These have 1 to 4 bits. A loaded lane has a word of each 32 k and row, half of each byte for an integer: bits 0-3 are
// k0 of the first k-step, 4-7 k0 + 2, 8-15 the same of the second k-step, and the upper half of the word has k0 + 1 and
// k0 + 3. So two masks and a shift make half of an A fragment, whose k0 + 2 and k0 + 3 come out 16 times too large, and
// x is 16 times too small there. A mask makes a register of quartets.
//
// In memory a lane has a word for each bit of an integer: of 4 bits the four words as they are; of 2 bits one a row,
// with the second 32 k two bits above the first; of 1 bit one, with row g + 8 another two bits above row g, and the
// second 32 k one bit above the first. Of 3 bits it has rows g and g + 8 of the first 32 k, [lane][2], and then,
// [lane], row g of the second 32 k; row g + 8 of these is in the bits that the three leave free, the uppermost of each
// half of a byte: its bit 0 in the last word, bit 1 in the word of row g, bit 2 in that of row g + 8.
template <uint32_t Bits, int Bias>
struct HalfBytes : IntegerWeights<Bias> {
  static_assert(Bits >= 1 && Bits <= 4);
  static constexpr bool kStaggered = true;
  static constexpr int kLastQuartet = 16;
  static constexpr uint32_t kBytes = 128 * Bits;

  __device__ __forceinline__ void load(uint32_t address) {
    Stored stored;
    if constexpr (Bits == 4) {
      // One load of 16 bytes leaves the product of 5 to 8 rows three registers short, which costs 5 % of its time.
      const uint2 v = load_shared_8(address + at(0, lane_id())), w = load_shared_8(address + at(2, lane_id()));
      stored = {{v.x, v.y, w.x, w.y}};
    } else if constexpr (Bits == 1) {
      stored = {{load_shared_4(address + at(0, lane_id()))}};
    } else {
      const uint2 v = load_shared_8(address + at(0, lane_id()));
      stored.words[0] = v.x;
      stored.words[1] = v.y;
      if constexpr (Bits == 3) stored.words[2] = load_shared_4(address + at(2, lane_id()));
    }
    spread(stored, words_);
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kFirst = kMask * 0x00010001, kSecond = kFirst << 4;
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const uint32_t word = words_[2 * (step / 2) + row] >> 8 * (step % 2);
      a[row] = masked<kFirst, kWith>(word);
      a[row + 2] = masked<kSecond, kWith>(word);
    }
  }
  __device__ __forceinline__ void quartets(Quartet which, uint32_t (&a)[4]) const {
    constexpr uint32_t kFirst = kMask * 0x01010101;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) a[i] = words_[i] & (which == Quartet::kLast ? kFirst << 4 : kFirst);
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    Stored stored;
    for (uint32_t i = 0; i < Bits; ++i) stored.words[i] = *reinterpret_cast<const uint32_t*>(from + at(i, lane));
    uint32_t words[4];
    spread(stored, words);
    for (uint32_t i = 0; i < 16; ++i) q[i / 8][i % 8] = words[2 * block + i / 8] >> first_bit(i % 8) & kMask;
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    const uint32_t block = k / 32, second = row / 8, lane = lane_offset(row, k) / 16;
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; ++i) word |= (q[i] & kMask) << first_bit(i);
    if constexpr (Bits == 4) {
      set(to, 2 * block + second, lane, ~0U, word);
    } else if constexpr (Bits == 2) {
      set(to, second, lane, kAll << 2 * block, word << 2 * block);
    } else if constexpr (Bits == 1) {
      set(to, 0, lane, kAll << (2 * second + block), word << (2 * second + block));
    } else if (block == 0 || second == 0) {
      set(to, 2 * block + second, lane, kAll, word);
    } else {
      constexpr uint32_t kFree = 0x88888888;
      set(to, 2, lane, kFree, word << 3 & kFree);
      set(to, 0, lane, kFree, word << 2 & kFree);
      set(to, 1, lane, kFree, word << 1 & kFree);
    }
  }

 private:
  static constexpr uint32_t kMask = (1U << Bits) - 1, kAll = kMask * 0x11111111;
  // These are a lane's words in memory.
  struct Stored {
    uint32_t words[Bits];
  };

  // Returns the offset of a lane's word i.
  static __device__ __forceinline__ uint32_t at(uint32_t i, uint32_t lane) {
    if constexpr (Bits == 3) return i == 2 ? 256 + 4 * lane : 8 * lane + 4 * i;
    return 4 * (Bits * lane + i);
  }
  // Returns the first bit in its word of the i-th of 8 k.
  static __device__ uint32_t first_bit(uint32_t i) { return i / 4 * 8 + i % 2 * 16 + i % 4 / 2 * 4; }
  static __device__ __forceinline__ void spread(const Stored& stored, uint32_t (&words)[4]) {
    const auto& s = stored.words;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {  // 2 * block + (0: row g, 1: row g + 8)
      if constexpr (Bits == 4) {
        words[i] = s[i];
      } else if constexpr (Bits == 2) {
        words[i] = s[i % 2] >> 2 * (i / 2);
      } else if constexpr (Bits == 1) {
        words[i] = s[0] >> (2 * (i % 2) + i / 2);
      } else {
        words[i] = i < 3 ? s[i] : (s[2] >> 3 & 0x11111111) | (s[0] >> 2 & 0x22222222) | (s[1] >> 1 & 0x44444444);
      }
    }
  }
  // Sets some bits of a word. Other threads may set its other bits.
  static __device__ void set(uint8_t* to, uint32_t i, uint32_t lane, uint32_t mask, uint32_t bits) {
    auto* word = reinterpret_cast<uint32_t*>(to + at(i, lane));
    if constexpr (Bits == 4) {
      *word = bits;
    } else {
      atomicAnd(word, ~mask);
      atomicOr(word, bits);
    }
  }

  uint32_t words_[4];  // [32 k][row g, row g + 8]
};
template <int Bias>
using Nibbles = HalfBytes<4, Bias>;

// These have 6 bits: the lower four as Nibbles, then the upper two, [lane][a u32 a block of 32 k]. Of the u32,
// bits 4-5 are (row g, k0), 6-7 (row g, k0 + 2), 0-3 the same of the next k-step, 8-15 the same of row g + 8,
// and the upper half has k0 + 1 and k0 + 3.
template <int Bias>
struct Sixes : IntegerWeights<Bias> {
  static constexpr bool kStaggered = true;
  static constexpr uint32_t kLower = Nibbles<0>::kBytes, kBytes = kLower + 256;

  __device__ __forceinline__ void load(uint32_t address) {
    lower_.load(address);
    upper_ = load_shared_8(address + kLower + 8 * lane_id());
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kFirst = 0x00300030, kSecond = 0x03000300;  // where the upper two bits belong
    lower_.template fragments<kWith>(step, a);
    const uint32_t u = step < 2 ? upper_.x : upper_.y;
    if (step % 2 == 0) {
      a[0] |= u & kFirst;
      a[1] |= u >> 8 & kFirst;
      a[2] |= u << 2 & kSecond;
      a[3] |= u >> 6 & kSecond;
    } else {
      a[0] |= u << 4 & kFirst;
      a[1] |= u >> 4 & kFirst;
      a[2] |= u << 6 & kSecond;
      a[3] |= u >> 2 & kSecond;
    }
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    Nibbles<0>::unpack(from, block, lane, q);
    const uint32_t u = *reinterpret_cast<const uint32_t*>(from + kLower + lane * 8 + block * 4);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, j = i % 4;
      q[row][i % 8] |= (u >> (8 * row + j % 2 * 16 + upper_bit(i % 8)) & 3) << 4;
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    Nibbles<0>::put(to, row, k, q);
    to += kLower + lane_offset(row, k) / 2 + k / 32 * 4 + row / 8;
    for (uint32_t odd = 0; odd < 2; ++odd) {
      uint32_t byte = 0;
      for (uint32_t i = odd; i < 8; i += 2) byte |= (q[i] >> 4) << upper_bit(i);
      to[2 * odd] = static_cast<uint8_t>(byte);
    }
  }

 private:
  // Returns the place in their byte of the upper two bits of the i-th of 8 k.
  static __device__ uint32_t upper_bit(uint32_t i) { return 4 - i / 4 * 4 + i % 4 / 2 * 2; }

  Nibbles<0> lower_;
  uint2 upper_;
};

// These have 8 bits: [32 k][lane][k-step][4 bytes of row g, 4 bytes of row g + 8].
template <int Bias>
struct Bytes : IntegerWeights<Bias> {
  static constexpr bool kStaggered = false;
  static constexpr uint32_t kBytes = 1024;

  __device__ __forceinline__ void load(uint32_t address) {
    words_[0] = load_shared(address + 16 * lane_id());
    words_[1] = load_shared(address + 512 + 16 * lane_id());
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      a[row] = first_bytes<kWith>(word(step, row));
      a[row + 2] = last_bytes<kWith>(word(step, row));
    }
  }
  // Returns the lane's four bytes of a k-step of row g (0) or g + 8 (1).
  __device__ __forceinline__ uint32_t word(uint32_t step, uint32_t row) const {
    const uint4& w = words_[step / 2];
    return step % 2 == 0 ? (row == 0 ? w.x : w.y) : (row == 0 ? w.z : w.w);
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    for (uint32_t i = 0; i < 16; ++i) q[i / 4 % 2][i / 8 * 4 + i % 4] = from[block * 512 + lane * 16 + i];
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    to += k / 32 * 512 + lane_offset(row, k) + row / 8 * 4;
    for (uint32_t i = 0; i < 8; ++i) to[i / 4 * 8 + i % 4] = static_cast<uint8_t>(q[i]);
  }

 private:
  uint4 words_[2];  // by 32 k
};

static_assert(QuartetWeights<HalfBytes<1, 0>> && QuartetWeights<HalfBytes<2, 1>> && QuartetWeights<HalfBytes<3, 0>> &&
              QuartetWeights<Nibbles<8>> && GroupWeights<Sixes<32>> && GroupWeights<Bytes<128>>);

}  // namespace tenon::cuda
