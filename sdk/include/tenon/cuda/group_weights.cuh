// Weights of 4, 6 and 8 bits lie so in a segment (packed.cuh) of a grouped format: the unsigned integers q alone, 64 k of
// a tile at a time. Their scales are in group_scales.cuh. Codes that stand for other numbers than integers, and integers of
// other widths, are in coded_weights.cuh.
//
// Fragments of integers are made without arithmetic: the bits of q, alone in the 16 bits of a half, are the denormal half
// q * 2^-24. The factor 2^24 comes in when a warp's sums are finished.
#pragma once

#include <concepts>
#include <cstdint>

#include "tenon/cuda/formats.cuh"

namespace tenon::cuda {

// These are the members of a layout of q. Example: Nibbles<8> has kBias = 8, kStaggered = true and kBytes = 16 rows * 64 k / 2 = 512.
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
  // fragments<kWith>(step, a) makes the A fragment of one of the four k-steps that were loaded. Integers have the bits kWith,
  // too.
  loaded.template fragments<0>(n, a);
  // unpack(from, block, lane, q) reads from device memory 8 q of row lane / 4 to q[0] and 8 of row lane / 4 + 8 to q[1], from
  // the first (block 0) or the second 32 k.
  W::unpack(from, n, n, q);
  // put(to, row, k, row_q) stores the 8 q of a row from k on, which is divisible by 8. No other row has the bytes that it
  // writes to, but other k of the row may.
  W::put(to, n, n, row_q);
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

// These have 4 bits: [lane][a u32 a k-step]. Of the u32, bits 0-3 are (row g, k0), 4-7 (row g, k0 + 2), 8-15 the same of row g + 8,
// and the upper half has k0 + 1 and k0 + 3. Two masks and a shift make an A fragment of it; k0 + 2 and k0 + 3 come out
// 16 times too large, and x is 16 times too small there.
template <int Bias>
struct Nibbles : IntegerWeights<Bias> {
  static constexpr bool kStaggered = true;
  static constexpr uint32_t kBytes = 512;

  __device__ __forceinline__ void load(uint32_t address) { words_ = load_shared(address + 16 * lane_id()); }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kFirst = 0x000f000f, kSecond = 0x00f000f0;
    const uint32_t word[4] = {words_.x, words_.y, words_.z, words_.w};  // by k-step
    const uint32_t low = word[step], high = low >> 8;                   // rows g and g + 8
    a[0] = masked<kFirst, kWith>(low);
    a[1] = masked<kFirst, kWith>(high);
    a[2] = masked<kSecond, kWith>(low);
    a[3] = masked<kSecond, kWith>(high);
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const uint2 words = *reinterpret_cast<const uint2*>(from + lane * 16 + block * 8);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, j = i % 4, word = i / 4 % 2 == 0 ? words.x : words.y;
      q[row][i % 8] = word >> (8 * row + j % 2 * 16 + j / 2 * 4) & 15;
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    to += lane_offset(row, k) + k / 32 * 8 + row / 8;
    for (uint32_t step = 0; step < 2; ++step) {
      for (uint32_t odd = 0; odd < 2; ++odd) {
        to[4 * step + 2 * odd] = static_cast<uint8_t>((q[4 * step + odd] & 15) | (q[4 * step + odd + 2] & 15) << 4);
      }
    }
  }

 private:
  uint4 words_;
};

// These have 6 bits: the lower four as Nibbles, then the upper two, [lane][a u32 a block of 32 k]. Of the u32, bits 4-5 are
// (row g, k0), 6-7 (row g, k0 + 2), 0-3 the same of the next k-step, 8-15 the same of row g + 8, and the upper half has
// k0 + 1 and k0 + 3.
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
    const uint4& w = words_[step / 2];
    const uint32_t low = step % 2 == 0 ? w.x : w.z, high = step % 2 == 0 ? w.y : w.w;  // rows g and g + 8
    a[0] = first_bytes<kWith>(low);
    a[1] = first_bytes<kWith>(high);
    a[2] = last_bytes<kWith>(low);
    a[3] = last_bytes<kWith>(high);
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

static_assert(GroupWeights<Nibbles<8>> && GroupWeights<Sixes<32>> && GroupWeights<Bytes<128>>);

}  // namespace tenon::cuda
