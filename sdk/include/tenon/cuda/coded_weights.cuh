// More layouts of weights for grouped formats (group_weights.cuh): integers of 1, 2, 3 and 5 bits, small floats of 8 and of 6
// bits, and codes of 4 bits that choose out of 16 numbers.
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
  static_assert(!Codes::kStaggered);
  static constexpr bool kIntegers = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = SmallFloat::kUnit;
  static __device__ float value(uint32_t q) { return SmallFloat::value(q); }

  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kMagnitude = SmallFloat::kHalfMask * 0x00010001, kSign = 0x80008000;
    Codes::template fragments<0>(step, a);
#pragma unroll
    for (uint32_t& pair : a) {
      pair = (pair << SmallFloat::kShift & kMagnitude) | (pair << SmallFloat::kSignShift & kSign);
    }
  }
};

// Small floats of 6 bits as two planes, so that a shift and a mask of either put their bits where a half has them: of each
// code the lower four bits, [lane][32 k][row g, row g + 8] u32, then its sign and the bit below that, [lane][row g, row g + 8]
// u32. Both halves of a word are alike, for k0 and k0 + 2 of its k-steps and for k0 + 1 and k0 + 3.
template <class SmallFloat>
struct SixBitFloats {
  static_assert(SmallFloat::kBits == 6);
  static constexpr bool kIntegers = false, kStaggered = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = SmallFloat::kUnit;
  static constexpr uint32_t kLower = 512, kBytes = kLower + 256;
  static __device__ float value(uint32_t q) { return SmallFloat::value(q); }

  // The words of a row that have its codes of a k-step.
  struct Words {
    uint32_t lower, upper;
  };
  // Two codes as the two halves of a register, which have the numbers / kUnit.
  // step: of 64 k; second: k0 + 2 and k0 + 3.
  static constexpr __host__ __device__ uint32_t halves(const Words& w, uint32_t step, uint32_t second) {
    constexpr uint32_t kBoth = 0x00010001, kNibble = (15U << kPlace) * kBoth,
                       kPair = (1U << (kPlace + 4) | 0x8000U) * kBoth;
    return (rotated(w.lower, kPlace - lower_place(step, second)) & kNibble) |
           (rotated(w.upper, kPlace + 4 - upper_place(step, second)) & kPair);
  }
  // Adds a code to words that are zero there. odd: k0 + 1 or k0 + 3.
  static constexpr __host__ __device__ void add(Words& w, uint32_t step, uint32_t second, uint32_t odd, uint32_t q) {
    const uint32_t place = 16 * odd + upper_place(step, second);
    w.lower |= (q & 15) << (16 * odd + lower_place(step, second));
    w.upper |= rotated(q >> 4 & 1, place) | rotated(q >> 5 & 1, place + kToSign);
  }

  __device__ __forceinline__ void load(uint32_t address) {
    lower_ = load_shared(address + 16 * lane_id());
    upper_ = load_shared_8(address + kLower + 8 * lane_id());
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    const Words g = {step < 2 ? lower_.x : lower_.z, upper_.x}, g8 = {step < 2 ? lower_.y : lower_.w, upper_.y};
#pragma unroll
    for (uint32_t second = 0; second < 2; ++second) {
      a[2 * second] = halves(g, step, second);
      a[2 * second + 1] = halves(g8, step, second);
    }
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const auto* lower = reinterpret_cast<const uint32_t*>(from + 16 * lane + 8 * block);
    const auto* upper = reinterpret_cast<const uint32_t*>(from + kLower + 8 * lane);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, step = 2 * block + i / 4 % 2;
      const uint32_t half = halves({lower[row], upper[row]}, step, i / 2 % 2) >> (16 * (i % 2));
      q[row][i % 8] = (half >> kPlace & 31) | (half >> 10 & 32);
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    const uint32_t block = k / 32;
    Words added{};
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      Words all{};
      add(all, 2 * block + i / 4, i / 2 % 2, i % 2, 63);
      taken |= all.upper;
      add(added, 2 * block + i / 4, i / 2 % 2, i % 2, q[i]);
    }
    *reinterpret_cast<uint32_t*>(to + lane_offset(row, k) + 8 * block + row / 8 * 4) = added.lower;
    uint32_t& upper = *reinterpret_cast<uint32_t*>(to + kLower + lane_offset(row, k) / 2 + row / 8 * 4);
    upper = (upper & ~taken) | added.upper;
  }

 private:
  // A half has the lower four bits from here on, then the fifth, and the sign at the top.
  static constexpr uint32_t kPlace = SmallFloat::kShift, kToSign = 15 - (kPlace + 4);
  static_assert(kToSign == 3 || kToSign == 4);

  static constexpr __host__ __device__ uint32_t rotated(uint32_t word, uint32_t left) {
    return left % 32 == 0 ? word : word << left % 32 | word >> (32 - left % 32);
  }
  // Where a half of a word has the lower bits of a code, and the first of its upper two, which are kToSign apart: such
  // pairs fill a word, of which the last may go on in the next half.
  static constexpr __host__ __device__ uint32_t lower_place(uint32_t step, uint32_t second) {
    return 8 * (step % 2) + 4 * second;
  }
  static constexpr __host__ __device__ uint32_t upper_place(uint32_t step, uint32_t second) {
    const uint32_t n = 2 * step + second;
    return kToSign == 3 ? 2 * n : n + n / 4 * 4;
  }

  uint4 lower_;
  uint2 upper_;
};

// Codes of 4 bits of a Book: 16 numbers Book::value(code), which products round to fp16. [lane][a u32 a k-step], of which
// bits 0-3 and 4-7 are (row g, k0) and (row g, k0 + 1), 8-15 the same of row g + 8, and the upper half has k0 + 2 and
// k0 + 3. So each byte is two codes of a register of an A fragment, and is looked up in a table of all bytes in shared
// memory. Sixteen copies of it lie side by side, one for two lanes, so that few lanes wait for each other.
template <class Book>
struct BookWeights {
  static constexpr bool kIntegers = false, kStaggered = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = 1;
  static constexpr uint32_t kBytes = 512, kCopies = 16, kTableBytes = 256 * kCopies * 4;
  static __device__ float value(uint32_t q) { return sdk::half_to_float(sdk::float_to_half(Book::value(q))); }

  // By all threads of a block, which then wait for each other.
  static __device__ void make_table() {
    for (uint32_t i = threadIdx.x; i < 256 * kCopies / 4; i += blockDim.x) {
      const uint32_t codes = i / (kCopies / 4), word = half(codes % 16) | half(codes / 16) << 16;
      reinterpret_cast<uint4*>(table())[i] = {word, word, word, word};
    }
  }
  __device__ __forceinline__ void load(uint32_t address) { words_ = load_shared(address + 16 * lane_id()); }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kEntry = 4 * kCopies, kOffsets = 255 * kEntry;   // kEntry: bytes of a byte's copies
    const uint32_t word[4] = {words_.x, words_.y, words_.z, words_.w};  // by k-step
    const uint32_t w = word[step], own = lane_id() % kCopies * 4;
    const uint32_t offset[4] = {w * kEntry, w / 256 * kEntry, w / 65536 * kEntry, w / 16777216 * kEntry};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      a[i] = *reinterpret_cast<const uint32_t*>(table() + ((offset[i] & kOffsets) | own));
    }
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
  // Comparisons, since registers cannot be indexed.
  static __device__ uint32_t half(uint32_t q) {
    uint32_t bits = 0;
#pragma unroll
    for (uint32_t code = 0; code < 16; ++code) bits = q == code ? sdk::float_to_half(Book::value(code)) : bits;
    return bits;
  }
  // The block's: [byte][copy] two halves.
  static __device__ __forceinline__ uint8_t* table() {
    __shared__ __align__(16) uint8_t bytes[kTableBytes];
    return bytes;
  }

  uint4 words_;
};

static_assert(GroupWeights<PlaneWeights<3>> && GroupWeights<FloatWeights<Bytes<0>, sdk::SmallFloat<4, 3>>> &&
              GroupWeights<SixBitFloats<sdk::SmallFloat<3, 2>>>);

}  // namespace tenon::cuda
