// These are more layouts of weights for grouped formats (group_weights.cuh): integers of 1, 2, 3 and 5 bits, small floats of 8 and of 6
// bits, and codes of 4 bits that choose out of 16 numbers.
#pragma once

#include <cuda_fp16.h>

#include "tenon/cuda/group_weights.cuh"
#include "tenon/cuda/mma.cuh"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::cuda {

// This is a plane of 1, 2 or 4 bits of each code, [lane][Bits u32]: of a k-step a lane has 8 Bits bits in a word, or 16 for 4 bits.
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

  // Does what GroupWeights says of unpack(), but for the bits of codes from `at` on alone.
  static __device__ void add_unpacked(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t at,
                                      uint32_t (&q)[2][8]) {
    const auto* words = reinterpret_cast<const uint32_t*>(from + 4 * Bits * lane);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, k = i % 8, step = 2 * block + k / 4;
      const uint32_t bits = words[step / kSteps] >> (step % kSteps * Bits + first_bit(row, k));
      q[row][k] |= (bits & ((1U << Bits) - 1)) << at;
    }
  }
  // Bytes of several rows meet in no byte, but those of several k-steps do: other bits of a byte stay as they are.
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, uint32_t at, const uint32_t (&q)[8]) {
    to += lane_offset(row, k) / 4 * Bits;
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t step = k / 32 * 2 + i / 4, bit = step % kSteps * Bits + first_bit(row / 8, i);
      uint8_t& byte = to[step / kSteps * 4 + bit / 8];
      const uint32_t mask = ((1U << Bits) - 1) << bit % 8;
      byte = static_cast<uint8_t>((byte & ~mask) | ((q[i] >> at << bit % 8) & mask));
    }
  }

 private:
  // Returns the first bit in a word of the i-th of 8 k, of row g (0) or g + 8 (1).
  static __device__ uint32_t first_bit(uint32_t row, uint32_t i) { return 8 * row + i % 2 * 16 + i % 4 / 2 * 4; }

  uint32_t words_[Bits];
};

// These are integers of 1 to 6 bits as planes of 4, 2 and 1 bits, as many as it takes, the lowest bits first.
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

// This lays out integers of 3 bits. A row has 8 pairs of a lane's codes in 64 k, pair n = 2 * k-step + (0: k0 and k0 + 1, 1: k0 + 2 and k0 + 3),
// each in the lower and the upper half of a word: [lane][row g, row g + 8] u32, of whose halves bits 3n have the pairs 0 to 4,
// then [lane] u32, of whose halves the lower bytes are row g's and the upper ones row g + 8's: bits 0 and 3 have the pairs 5
// and 6, and bits 6 and 7 the lower bits of pair 7, whose third bit is bit 15 of the row's own word. So a mask, and of every
// third pair a shift, makes a register of an A fragment, and a multiplication brings the integer down to the lowest bits.
template <int Bias = 0>
struct ThreeBits : IntegerWeights<Bias> {
  static constexpr bool kStaggered = false;
  static constexpr uint32_t kShared = 256, kBytes = kShared + 128;

  __device__ __forceinline__ void load(uint32_t address) {
    own_ = load_shared_8(address + 8 * lane_id());
    shared_ = load_shared_4(address + kShared + 4 * lane_id());
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = i % 2, own = row == 0 ? own_.x : own_.y, shared = shared_ >> 8 * row;
      switch (2 * step + i / 2) {
        case 0:
          a[i] = lowered<0, kWith>(masked<kPair, kWith>(own));
          break;
        case 1:
          a[i] = lowered<3, kWith>(masked<kPair << 3, kWith>(own));
          break;
        case 2:
          a[i] = lowered<6, kWith>(masked<kPair << 6, kWith>(own));
          break;
        case 3:
          a[i] = lowered<0, kWith>(masked<kPair, kWith>(own >> 9));
          break;
        case 4:
          a[i] = lowered<3, kWith>(masked<kPair << 3, kWith>(own >> 9));
          break;
        case 5:
          a[i] = lowered<0, kWith>(masked<kPair, kWith>(shared));
          break;
        case 6:
          a[i] = lowered<3, kWith>(masked<kPair << 3, kWith>(shared));
          break;
        default:
          a[i] = lowered<6, kWith>(masked<0x00c000c0, kWith>(shared) | (own >> 7 & 0x01000100));
      }
    }
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const auto* own = reinterpret_cast<const uint32_t*>(from + 8 * lane);
    const uint32_t shared = *reinterpret_cast<const uint32_t*>(from + kShared + 4 * lane);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, n = pair(block, i % 8), half = own[row] >> 16 * (i % 2),
                     byte = shared >> (16 * (i % 2) + 8 * row);
      q[row][i % 8] = n < 5 ? half >> 3 * n & 7 : n < 7 ? byte >> 3 * (n - 5) & 7 : (byte >> 6 & 3) | (half >> 13 & 4);
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    const uint32_t lane = lane_offset(row, k) / 16;
    uint32_t& own = *reinterpret_cast<uint32_t*>(to + 8 * lane + row / 8 * 4);
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t n = pair(k / 32, i), odd = i % 2;
      uint8_t& byte = to[kShared + 4 * lane + 2 * odd + row / 8];
      if (n < 5) {
        set(own, 16 * odd + 3 * n, 7, q[i]);
      } else {
        set(byte, 3 * (n - 5), n < 7 ? 7 : 3, q[i]);
        if (n == 7) set(own, 16 * odd + 15, 1, q[i] >> 2);
      }
    }
  }

 private:
  static constexpr uint32_t kPair = 0x00070007;

  // Both halves' integers are 2^kUp times too large: they are denormal or, with kWith, above 1024, and come out so.
  template <uint32_t kUp, uint32_t kWith>
  static __device__ __forceinline__ uint32_t lowered(uint32_t bits) {
    static_assert(kWith == 0 || kWith == detail::kThousand);
    if constexpr (kUp == 0) return bits;
    const __half2 down = __float2half2_rn(1.0F / (1 << kUp)), rest = __float2half2_rn(1024 - 1024.0F / (1 << kUp));
    const __half2 halves = detail::as_halves(bits);
    return detail::as_bits(kWith == 0 ? __hmul2(halves, down) : __hfma2(halves, down, rest));
  }
  // Returns the number of the pair that the i-th of 8 k is in.
  static __device__ uint32_t pair(uint32_t block, uint32_t i) { return 4 * block + i / 2; }
  template <class Word>
  static __device__ void set(Word& word, uint32_t bit, uint32_t mask, uint32_t q) {
    word = static_cast<Word>((word & ~(mask << bit)) | (q & mask) << bit);
  }

  uint2 own_;  // x: row g; y: row g + 8
  uint32_t shared_;
};

// This is the layout of unsigned integers of kBits bits; those of 7 bits are bytes.
template <uint32_t kBits>
using UnsignedWeights = std::conditional_t<
    (kBits > 6), Bytes<0>,
    std::conditional_t<
        kBits == 6, Sixes<0>,
        std::conditional_t<kBits == 4, Nibbles<0>,
                           std::conditional_t<kBits == 3, ThreeBits<0>, PlaneWeights<(kBits > 6 ? 1 : kBits)>>>>>;

// This makes weights of small floats (sdk/small_floats.h): Codes lays out their codes. A code's bits, shifted, are a half that is the value / kUnit.
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

// Small floats of 6 bits are two planes, so that a shift and a mask of either put their bits where a half has them: of
// a code the lower four bits, [lane][32 k][row g, row g + 8] u32, then its sign and the bit below that, [lane][row g,
// row g + 8] u32. Both halves of a word are alike, for k0 and k0 + 2 of its k-steps and for k0 + 1 and k0 + 3.
template <class SmallFloat>
struct SixBitFloats {
  static_assert(SmallFloat::kBits == 6);
  static constexpr bool kIntegers = false, kStaggered = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = SmallFloat::kUnit;
  static constexpr uint32_t kLower = 512, kBytes = kLower + 256;
  static __device__ float value(uint32_t q) { return SmallFloat::value(q); }

  // These words of a row have its codes of a k-step.
  struct Words {
    uint32_t lower, upper;
  };
  // Returns two codes as the two halves of a register, which have the numbers / kUnit.
  // `step` is one of 64 k; `second` means k0 + 2 and k0 + 3.
  static constexpr __host__ __device__ uint32_t halves(const Words& w, uint32_t step, uint32_t second) {
    constexpr uint32_t kBoth = 0x00010001, kNibble = (15U << kFirstBit) * kBoth,
                       kPair = (1U << (kFirstBit + 4) | 0x8000U) * kBoth;
    return (rotated(w.lower, kFirstBit - lower_bit(step, second)) & kNibble) |
           (rotated(w.upper, kFirstBit + 4 - upper_bit(step, second)) & kPair);
  }
  // Adds a code to words that are zero there. `odd` means k0 + 1 or k0 + 3.
  static constexpr __host__ __device__ void add(Words& w, uint32_t step, uint32_t second, uint32_t odd, uint32_t q) {
    const uint32_t bit = 16 * odd + upper_bit(step, second);
    w.lower |= (q & 15) << (16 * odd + lower_bit(step, second));
    w.upper |= rotated(q >> 4 & 1, bit) | rotated(q >> 5 & 1, bit + kToSign);
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
      q[row][i % 8] = (half >> kFirstBit & 31) | (half >> 10 & 32);
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
  // A half has the lower four bits from kFirstBit on, then the fifth, and the sign at the top.
  static constexpr uint32_t kFirstBit = SmallFloat::kShift, kToSign = 15 - (kFirstBit + 4);
  static_assert(kToSign == 3 || kToSign == 4);

  static constexpr __host__ __device__ uint32_t rotated(uint32_t word, uint32_t left) {
    return left % 32 == 0 ? word : word << left % 32 | word >> (32 - left % 32);
  }
  // These say at which bit of a half of a word the lower bits of a code begin, and where the first of its upper two is. The upper
  // two are kToSign apart: such pairs fill a word, of which the last may go on in the next half.
  static constexpr __host__ __device__ uint32_t lower_bit(uint32_t step, uint32_t second) {
    return 8 * (step % 2) + 4 * second;
  }
  static constexpr __host__ __device__ uint32_t upper_bit(uint32_t step, uint32_t second) {
    const uint32_t n = 2 * step + second;
    return kToSign == 3 ? 2 * n : n + n / 4 * 4;
  }

  uint4 lower_;
  uint2 upper_;
};

// This lays out codes of 4 bits of a Book: 16 numbers Book::value(code), which products round to fp16. The order is [lane][a u32 a
// k-step]; of the u32, bits 0-3 and 4-7 are (row g, k0) and (row g, k0 + 1), 8-15 the same of row g + 8, and the upper half has
// k0 + 2 and k0 + 3. So each byte is two codes of a register of an A fragment. Every other k-step looks them up in a table of all bytes in
// shared memory, of which sixteen copies lie side by side, one for two lanes, so that few lanes wait for each other; the others
// permute bytes, so that shared memory and arithmetic have as much to do.
template <class Book>
struct BookWeights {
  static constexpr bool kIntegers = false, kStaggered = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = 1;
  static constexpr uint32_t kBytes = 512, kCopies = 16, kTableBytes = 256 * kCopies * 4;
  static __device__ float value(uint32_t q) { return sdk::half_to_float(sdk::float_to_half(Book::value(q))); }

  // All threads of a block call it, and then wait for each other.
  static __device__ void make_table() {
    for (uint32_t i = threadIdx.x; i < 256 * kCopies / 4; i += blockDim.x) {
      uint32_t of_bytes[4];
      permute(i / (kCopies / 4), of_bytes);
      reinterpret_cast<uint4*>(table())[i] = {of_bytes[0], of_bytes[0], of_bytes[0], of_bytes[0]};
    }
  }
  __device__ __forceinline__ void load(uint32_t address) { words_ = load_shared(address + 16 * lane_id()); }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    const uint32_t word[4] = {words_.x, words_.y, words_.z, words_.w};  // by k-step
    step % 2 == 0 ? look_up(word[step], a) : permute(word[step], a);
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
  // A byte gives two registers of an A fragment, from the table.
  static __device__ __forceinline__ void look_up(uint32_t word, uint32_t (&a)[4]) {
    constexpr uint32_t kEntry = 4 * kCopies, kByte = 0x4440;  // kEntry: bytes of a byte's copies
    const uint32_t own = shared_address(table()) + lane_id() % kCopies * 4;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) a[i] = load_shared_4(__byte_perm(word, 0, kByte + i) * kEntry + own);
  }
  // Does the same without the table. A permutation of bytes looks up four codes of 3 bits, and bit 3 chooses between two of them.
  static __device__ __forceinline__ void permute(uint32_t word, uint32_t (&a)[4]) {
    const uint32_t in_upper = word << 4;  // bits 3 of even codes go where odd ones have theirs: at the top of bytes
    const uint32_t choice[2] = {permuted_bytes(word, in_upper, 0x9d8c), permuted_bytes(word, in_upper, 0xbfae)};
    const uint32_t codes = word & 0x77777777;
    constexpr Halves kHalves = halves();
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t four = codes >> 16 * i;
      uint32_t bytes[2] = {};  // the lower bytes of four halves, the upper ones
#pragma unroll
      for (uint32_t part = 0; part < 2; ++part) {
        const uint32_t(&of)[4] = kHalves.bytes[part];
        if ((of[0] | of[1] | of[2] | of[3]) == 0) continue;
        const uint32_t first = permuted_bytes(of[0], of[1], four), last = permuted_bytes(of[2], of[3], four);
        bytes[part] = (first & ~choice[i]) | (last & choice[i]);
      }
      a[2 * i] = __byte_perm(bytes[0], bytes[1], 0x5140);
      a[2 * i + 1] = __byte_perm(bytes[0], bytes[1], 0x7362);
    }
  }
  // These are the lower bytes of the 16 numbers as halves, four a word, and the upper ones.
  struct Halves {
    uint32_t bytes[2][4];
  };
  static constexpr __host__ __device__ Halves halves() {
    Halves all{};
    for (uint32_t code = 0; code < 16; ++code) {
      const uint32_t bits = sdk::float_to_half(Book::value(code));
      all.bytes[0][code / 4] |= (bits & 255) << code % 4 * 8;
      all.bytes[1][code / 4] |= (bits >> 8) << code % 4 * 8;
    }
    return all;
  }
  // Returns the block's table: two halves for each [byte][copy].
  static __device__ __forceinline__ uint8_t* table() {
    __shared__ __align__(16) uint8_t bytes[kTableBytes];
    return bytes;
  }

  uint4 words_;
};

static_assert(GroupWeights<PlaneWeights<2>> && GroupWeights<ThreeBits<>> &&
              GroupWeights<FloatWeights<Bytes<0>, sdk::SmallFloat<4, 3>>> &&
              GroupWeights<SixBitFloats<sdk::SmallFloat<3, 2>>>);

}  // namespace tenon::cuda
