// These are more layouts of weights for grouped formats (group_weights.cuh). They have integers of 5 bits, small floats
// of 6 and 8 bits, and codes of 4 bits that choose out of 16 numbers.
#pragma once

#include <cuda_fp16.h>

#include "tenon/cuda/group_weights.cuh"
#include "tenon/cuda/mma.cuh"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::cuda {

// These are integers of 5 bits: the lower four, then the fifth, each as HalfBytes.
template <int Bias>
struct FiveBits : IntegerWeights<Bias> {
  using Lower = HalfBytes<4, 0>;
  using Upper = HalfBytes<1, 0>;
  static constexpr bool kStaggered = true;
  static constexpr uint32_t kBytes = Lower::kBytes + Upper::kBytes;

  __device__ __forceinline__ void load(uint32_t address) {
    lower_.load(address);
    upper_.load(address + Lower::kBytes);
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    uint32_t upper[4];
    lower_.template fragments<kWith>(step, a);
    upper_.fragments(step, upper);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) a[i] += upper[i] << 4;
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    uint32_t upper[2][8];
    Lower::unpack(from, block, lane, q);
    Upper::unpack(from + Lower::kBytes, block, lane, upper);
    for (uint32_t i = 0; i < 16; ++i) q[i / 8][i % 8] |= upper[i / 8][i % 8] << 4;
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    uint32_t upper[8];
    for (uint32_t i = 0; i < 8; ++i) upper[i] = q[i] >> 4;
    Lower::put(to, row, k, q);
    Upper::put(to + Lower::kBytes, row, k, upper);
  }

 private:
  Lower lower_;
  Upper upper_;
};

// This is the layout of unsigned integers of kBits bits; those of 7 bits are bytes.
template <uint32_t kBits>
using UnsignedWeights = std::conditional_t<
    (kBits > 6), Bytes<0>,
    std::conditional_t<kBits == 6, Sixes<0>,
                       std::conditional_t<kBits == 5, FiveBits<0>, HalfBytes<(kBits > 4 ? 4 : kBits), 0>>>>;

// Two numbers of e4m3 become halves. Since sm_89 that is an instruction.
__device__ __forceinline__ uint32_t halves_of_e4m3(uint32_t codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t halves = 0;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  return halves;
#else
  const uint32_t bytes = __byte_perm(codes, 0, 0x4140);
  const uint32_t bits = (bytes << 7 & 0x3f803f80) | (bytes << 8 & 0x80008000);  // 256 times too small
  return detail::as_bits(__hmul2(detail::as_halves(bits), __float2half2_rn(256)));
#endif
}

// These are weights in e4m3, a byte each.
struct E4m3Weights : Bytes<0> {
  static constexpr bool kIntegers = false;
  static constexpr float kUnit = 1;
  static __device__ float value(uint32_t q) { return from_half<__half>(halves_of_e4m3(q) & 0xffff); }

  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      a[row] = halves_of_e4m3(word(step, row));
      a[row + 2] = halves_of_e4m3(word(step, row) >> 16);
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
  // These say at which bit of a half of a word the lower bits of a code begin, and where the first of its upper two is.
  // The upper two are kToSign apart: such pairs fill a word, of which the last may go on in the next half.
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

// This lays out codes of 4 bits of a Book: 16 numbers Book::value(code), which products round to fp16. The order
// is [lane][a u32 a k-step]; of the u32, bits 0-3 and 4-7 are (row g, k0) and (row g, k0 + 1), 8-15 the same of
// row g + 8, and the upper half has k0 + 2 and k0 + 3. So each byte is two codes of a register of an A fragment.
// Every other k-step looks them up in a table of all bytes in shared memory, of which sixteen copies lie side by
// side, one for two lanes, so that few lanes wait for each other; the others permute bytes, so that shared
// memory and arithmetic have as much to do.
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
  // Does the same without the table. A permutation of bytes looks up four codes of 3
  // bits, and bit 3 chooses between two of them.
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

static_assert(GroupWeights<FiveBits<0>> && GroupWeights<E4m3Weights> &&
              GroupWeights<SixBitFloats<sdk::SmallFloat<3, 2>>>);

}  // namespace tenon::cuda
