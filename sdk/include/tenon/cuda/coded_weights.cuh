// More layouts of weights for grouped formats (group_weights.cuh): integers of 1, 2, 3 and 5 bits, small floats, and codes of
// 4 bits that choose out of 16 numbers.
#pragma once

#include <cuda_fp16.h>

#include "tenon/cuda/group_weights.cuh"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::cuda {

// A plane of 1, 2 or 4 bits of each code, [lane][Bits u32]: of a k-step a lane has 8 Bits bits in a word, or 16 for 4 bits.
// In either half of a word, and of a k-step alone, bits 0.. are (row g, k0), bits 4.. (row g, k0 + 2), bits 8.. and 12.. the
// same of row g + 8, and the upper half has k0 + 1 and k0 + 3; k-steps of a word lie Bits bits apart. So a shift and two
// masks make two registers of an A fragment, k0 + 2 and k0 + 3 in it 16 times too large (Nibbles is the plane of 4 bits).
template <uint32_t Bits>
struct BitPlane {
  static_assert(Bits == 1 || Bits == 2 || Bits == 4);
  static constexpr uint32_t kBytes = 128 * Bits;
  static constexpr uint32_t kSteps = 4 / Bits;  // k-steps of a word

  __device__ __forceinline__ void load(uint32_t address) {
    address += 4 * Bits * lane_id();
    if constexpr (Bits == 4) {
      const uint4 words = load_shared(address);
      words_[0] = words.x;
      words_[1] = words.y;
      words_[2] = words.z;
      words_[3] = words.w;
    } else if constexpr (Bits == 2) {
      const uint2 words = load_shared_8(address);
      words_[0] = words.x;
      words_[1] = words.y;
    } else {
      words_[0] = load_shared_4(address);
    }
  }
  // Adds the plane to fragments, as the bits of codes from kAt on.
  template <uint32_t kAt>
  __device__ __forceinline__ void add(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kFirst = ((1U << Bits) - 1) * 0x00010001 << kAt, kSecond = kFirst << 4;
    const uint32_t word = words_[step / kSteps];
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const int down = static_cast<int>(step % kSteps * Bits + 8 * row) - static_cast<int>(kAt);
      const uint32_t bits = down >= 0 ? word >> down : word << -down;
      a[row] |= bits & kFirst;
      a[row + 2] |= bits & kSecond;
    }
  }

  // As GroupWeights says, but for the bits of codes from `at` on alone.
  static __device__ void add_unpacked(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t at,
                                      uint32_t (&q)[2][8]) {
    const auto* words = reinterpret_cast<const uint32_t*>(from + 4 * Bits * lane);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, k = i % 8, step = 2 * block + k / 4;
      const uint32_t bits = words[step / kSteps] >> (step % kSteps * Bits + place(row, k));
      q[row][k] |= (bits & ((1U << Bits) - 1)) << at;
    }
  }
  // Bytes of several rows meet in no byte, but those of several k-steps do: other bits of a byte stay as they are.
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, uint32_t at, const uint32_t (&q)[8]) {
    to += lane_offset(row, k) / 4 * Bits;
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t step = k / 32 * 2 + i / 4, bit = step % kSteps * Bits + place(row / 8, i);
      uint8_t& byte = to[step / kSteps * 4 + bit / 8];
      const uint32_t mask = ((1U << Bits) - 1) << bit % 8;
      byte = static_cast<uint8_t>((byte & ~mask) | ((q[i] >> at << bit % 8) & mask));
    }
  }

 private:
  // The place in a word of the i-th of 8 k, of row g (0) or g + 8 (1).
  static __device__ uint32_t place(uint32_t row, uint32_t i) { return 8 * row + i % 2 * 16 + i % 4 / 2 * 4; }

  uint32_t words_[Bits];
};

// Integers of 1 to 6 bits as planes of 4, 2 and 1 bits, as many as it takes: [the lowest bits, the widest plane] first.
template <uint32_t Bits, int Bias = 0>
struct PlaneWeights : IntegerWeights<Bias> {
  static_assert(Bits >= 1 && Bits <= 6);  // 16 times too large they are still denormal halves, with room for kWith
  static constexpr uint32_t kLowest = Bits >= 4 ? 4 : Bits >= 2 ? 2 : 1, kUpper = Bits - kLowest;
  using Lowest = BitPlane<kLowest>;
  using Upper = BitPlane<kUpper == 0 ? 1 : kUpper>;
  static constexpr bool kStaggered = true;
  static constexpr uint32_t kBytes = Lowest::kBytes + (kUpper == 0 ? 0 : Upper::kBytes);

  __device__ __forceinline__ void load(uint32_t address) {
    lowest_.load(address);
    if constexpr (kUpper != 0) upper_.load(address + Lowest::kBytes);
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
#pragma unroll
    for (uint32_t& pair : a) pair = kWith;
    lowest_.template add<0>(step, a);
    if constexpr (kUpper != 0) upper_.template add<kLowest>(step, a);
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    for (uint32_t i = 0; i < 16; ++i) q[i / 8][i % 8] = 0;
    Lowest::add_unpacked(from, block, lane, 0, q);
    if constexpr (kUpper != 0) Upper::add_unpacked(from + Lowest::kBytes, block, lane, kLowest, q);
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    Lowest::put(to, row, k, 0, q);
    if constexpr (kUpper != 0) Upper::put(to + Lowest::kBytes, row, k, kLowest, q);
  }

 private:
  Lowest lowest_;
  Upper upper_;
};

// Small floats (sdk/small_floats.h): Codes lays out their codes. A code's bits, shifted, are a half that is the value / kUnit.
template <class Codes, class SmallFloat>
struct FloatWeights : Codes {
  static constexpr bool kIntegers = false, kStaggered = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = SmallFloat::kUnit;
  static __device__ float value(uint32_t q) { return SmallFloat::value(q); }

  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kMagnitude = SmallFloat::kHalfMask * 0x00010001, kSign = 0x80008000;
    Codes::template fragments<0>(step, a);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t up = Codes::kStaggered && i >= 2 ? 4 : 0;  // bits that the codes are too far up
      a[i] = (a[i] << (SmallFloat::kShift - up) & kMagnitude) | (a[i] << (SmallFloat::kSignShift - up) & kSign);
    }
  }
};

// Codes of 4 bits of a Book: 16 numbers Book::value(code), which products round to fp16. [lane][a u32 a k-step], of which
// bits 0-3 and 4-7 are (row g, k0) and (row g, k0 + 1), 8-15 the same of row g + 8, and the upper half has k0 + 2 and
// k0 + 3. The bytes of the numbers are looked up by permutations of bytes, which take eight codes of 3 bits: four codes at
// a time, and both halves of the book where its upper one is not the lower one negated.
template <class Book>
struct BookWeights {
  static constexpr bool kIntegers = false, kStaggered = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = 1;
  static constexpr uint32_t kBytes = 512;
  static __device__ float value(uint32_t q) { return sdk::half_to_float(sdk::float_to_half(Book::value(q))); }

  __device__ __forceinline__ void load(uint32_t address) { words_ = load_shared(address + 16 * lane_id()); }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    const uint32_t word[4] = {words_.x, words_.y, words_.z, words_.w};  // by k-step
    const uint32_t index = word[step] & 0x77777777, upper = word[step] >> 3 & 0x11111111;
    look_up(index, upper, a[0], a[1]);
    look_up(index >> 16, upper >> 16, a[2], a[3]);
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const uint2 words = *reinterpret_cast<const uint2*>(from + lane * 16 + block * 8);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, j = i % 4, word = i / 4 % 2 == 0 ? words.x : words.y;
      q[row][i % 8] = word >> (j / 2 * 16 + 8 * row + j % 2 * 4) & 15;
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    to += lane_offset(row, k) + k / 32 * 8 + row / 8;
    for (uint32_t i = 0; i < 8; i += 2) {
      to[i / 4 * 4 + i % 4] = static_cast<uint8_t>((q[i] & 15) | (q[i + 1] & 15) << 4);
    }
  }

 private:
  static constexpr uint32_t half(uint32_t q) { return sdk::float_to_half(Book::value(q)); }
  // Byte `byte` of the halves of four codes.
  static constexpr uint32_t table(uint32_t first, uint32_t byte) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 4; ++i) word |= (half(first + i) >> (8 * byte) & 255) << (8 * i);
    return word;
  }
  static constexpr bool negated() {
    for (uint32_t q = 0; q < 8; ++q) {
      if (half(q + 8) != (half(q) ^ 0x8000)) return false;
    }
    return true;
  }
  static constexpr bool kNegated = negated();

  // Byte kByte of the halves of four codes.
  template <uint32_t kByte>
  static __device__ __forceinline__ uint32_t bytes(uint32_t index, uint32_t upper) {
    constexpr uint32_t k0 = table(0, kByte), k4 = table(4, kByte), k8 = table(8, kByte), k12 = table(12, kByte);
    if constexpr ((k0 | k4 | k8 | k12) == 0) {
      return 0;
    } else if constexpr (kNegated) {
      const uint32_t found = __byte_perm(k0, k4, index);
      return kByte == 0 ? found : found | __byte_perm(0x8000, 0, upper);
    } else {
      const uint32_t low = __byte_perm(k0, k4, index), high = __byte_perm(k8, k12, index);
      const uint32_t chosen = __byte_perm(0xff00, 0, upper);
      return (low & ~chosen) | (high & chosen);
    }
  }
  // index: four codes without their upper bit, upper: that bit, 4 bits each.
  static __device__ __forceinline__ void look_up(uint32_t index, uint32_t upper, uint32_t& first, uint32_t& second) {
    const uint32_t low = bytes<0>(index, upper), high = bytes<1>(index, upper);
    first = __byte_perm(low, high, 0x5140);
    second = __byte_perm(low, high, 0x7362);
  }

  uint4 words_;
};

static_assert(GroupWeights<PlaneWeights<3>> && GroupWeights<FloatWeights<Bytes<0>, sdk::SmallFloat<4, 3>>>);

}  // namespace tenon::cuda
