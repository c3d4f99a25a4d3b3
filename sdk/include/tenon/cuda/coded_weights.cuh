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

// Four numbers of e4m3 become halves, two a register. Since sm_89 that is an instruction each.
__device__ __forceinline__ void halves_of_e4m3(uint32_t codes, uint32_t& first, uint32_t& last) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{.reg .b16 first, last;\n"
      "mov.b32 {first, last}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, first;\n"
      "cvt.rn.f16x2.e4m3x2 %1, last;}"
      : "=r"(first), "=r"(last)
      : "r"(codes));
#else
  const auto halves = [&](uint32_t bytes) {
    const uint32_t bits = (bytes << 7 & 0x3f803f80) | (bytes << 8 & 0x80008000);  // 256 times too small
    return detail::as_bits(__hmul2(detail::as_halves(bits), __float2half2_rn(256)));
  };
  first = halves(__byte_perm(codes, 0, 0x4140));
  last = halves(__byte_perm(codes, 0, 0x4342));
#endif
}

// These are weights in e4m3, a byte each.
struct E4m3Weights : Bytes<0> {
  static constexpr bool kIntegers = false;
  static constexpr float kUnit = 1;
  static __device__ float value(uint32_t q) {
    uint32_t first = 0, last = 0;
    halves_of_e4m3(q, first, last);
    return from_half<__half>(first & 0xffff);
  }

  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) halves_of_e4m3(word(step, row), a[row], a[row + 2]);
  }
};

// Small floats of 6 bits lie as the codes of e4m3 that stand for the same numbers but for a factor, since those become
// halves by an instruction. A byte of such a code has two bits that are always zero. Of the four k-steps of a row,
// three are a word each, four codes in bytes as E4m3Weights has them; the fourth one's bits are in the two free bits of
// every byte, and three rotations put them where they belong. In memory a lane has the first two words of rows g and g
// + 8, [lane][row][2] u32, then the third, [lane][row] u32.
template <class SmallFloat>
struct SixBitFloats {
  static_assert(SmallFloat::kBits == 6);
  static constexpr bool kIntegers = false, kStaggered = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = 1U << (sdk::SmallFloat<4, 3>::kBias - SmallFloat::kBias);
  static constexpr uint32_t kFirstTwo = 512, kBytes = kFirstTwo + 256;
  static __device__ float value(uint32_t q) { return SmallFloat::value(q); }

  // A lane has these codes of a row: four of each of four k-steps.
  struct Words {
    uint32_t of[3];
  };
  // Returns four codes of e4m3, a byte each: those of a k-step.
  static constexpr __host__ __device__ uint32_t quartet(const Words& w, uint32_t step) {
    if (step < 3) return w.of[step] & kCode;
    uint32_t codes = 0;
    for (uint32_t i = 0; i < 3; ++i) codes |= rotated(w.of[i], holes(i).left) & holes(i).bits;
    return codes;
  }
  // Adds a k-step's four codes to words that are zero there.
  static constexpr __host__ __device__ void add(Words& w, uint32_t step, uint32_t codes) {
    if (step < 3) {
      w.of[step] |= codes;
      return;
    }
    for (uint32_t i = 0; i < 3; ++i) w.of[i] |= rotated(codes & holes(i).bits, 32 - holes(i).left);
  }
  // Returns the code of e4m3 for a code of 6 bits, and the other way round.
  static constexpr __host__ __device__ uint32_t widened(uint32_t q) { return (q & 32) << 2 | (q & 31) << kFirstBit; }
  static constexpr __host__ __device__ uint32_t narrowed(uint32_t code) {
    return (code >> 2 & 32) | (code >> kFirstBit & 31);
  }

  __device__ __forceinline__ void load(uint32_t address) {
    const uint4 two = load_shared(address + 16 * lane_id());
    const uint2 third = load_shared_8(address + kFirstTwo + 8 * lane_id());
    rows_[0] = {two.x, two.y, third.x};
    rows_[1] = {two.z, two.w, third.y};
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) halves_of_e4m3(quartet(rows_[row], step), a[row], a[row + 2]);
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const auto* two = reinterpret_cast<const uint32_t*>(from + 16 * lane);
    const auto* third = reinterpret_cast<const uint32_t*>(from + kFirstTwo + 8 * lane);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8;
      const uint32_t codes = quartet({two[2 * row], two[2 * row + 1], third[row]}, 2 * block + i / 4 % 2);
      q[row][i % 8] = narrowed(codes >> 8 * (i % 4));
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    const uint32_t block = k / 32, lane = lane_offset(row, k) / 16;
    Words taken{}, added{};
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t codes = 0;
      for (uint32_t i = 0; i < 4; ++i) codes |= widened(q[4 * half + i]) << 8 * i;
      add(taken, 2 * block + half, kCode);
      add(added, 2 * block + half, codes);
    }
    auto* two = reinterpret_cast<uint32_t*>(to + 16 * lane + row / 8 * 8);
    auto* third = reinterpret_cast<uint32_t*>(to + kFirstTwo + 8 * lane + row / 8 * 4);
    for (uint32_t i = 0; i < 3; ++i) {
      uint32_t& word = i < 2 ? two[i] : *third;
      word = (word & ~taken.of[i]) | added.of[i];
    }
  }

 private:
  // The lower five bits of a code begin at kFirstBit of a byte.
  static constexpr uint32_t kMantissa = 10 - SmallFloat::kShift, kFirstBit = 3 - kMantissa, kBytesOfWord = 0x01010101;
  static constexpr uint32_t kCode = (0x80 | 31 << kFirstBit) * kBytesOfWord;
  static_assert(kMantissa == 2 || kMantissa == 3);
  // Word i, rotated to the left by `left`, has in `bits` those bits of the fourth k-step's codes. e3m2 leaves bits 0
  // and 6 of a byte free, e2m3 bits 5 and 6.
  struct Holes {
    uint32_t left, bits;
  };
  static constexpr __host__ __device__ Holes holes(uint32_t i) {
    constexpr bool kTwo = kMantissa == 2;
    if (i == 0) return {kTwo ? 31 : 2, (kTwo ? 0xa0 : 0x81) * kBytesOfWord};
    if (i == 1) return {kTwo ? 3 : 30, (kTwo ? 0x0a : 0x18) * kBytesOfWord};
    return {kTwo ? 4 : 28, (kTwo ? 0x14 : 0x06) * kBytesOfWord};
  }

  static constexpr __host__ __device__ uint32_t rotated(uint32_t word, uint32_t left) {
    return word << left | word >> (32 - left);
  }

  Words rows_[2];  // g, g + 8
};

// Codes of 4 bits choose out of the 16 numbers Book::value(code). In some books codes 0 to 7 are numbers that e4m3 has
// exactly, and codes 8 to 15 their negatives.
template <class Book>
constexpr bool is_book_of_e4m3() {
  using E4m3 = sdk::SmallFloat<4, 3>;
  for (uint32_t code = 0; code < 8; ++code) {
    const float number = Book::value(code);
    if (number < 0 || E4m3::value(E4m3::nearest(number)) != number || Book::value(code + 8) != -number) return false;
  }
  return true;
}

// Returns the lower three of each four bits. Of a plain expression that is shifted later, the compiler makes a mask
// before the shift and another one after it.
__device__ __forceinline__ uint32_t lower_three_bits(uint32_t word) {
  uint32_t bits = 0;
  asm("and.b32 %0, %1, 0x77777777;" : "=r"(bits) : "r"(word));
  return bits;
}

// Codes of books lie in the order [lane][32 k][row g, row g + 8] u32.
struct BookWords {
  static constexpr bool kIntegers = false, kStaggered = false;
  static constexpr int kBias = 0;
  static constexpr float kUnit = 1;
  static constexpr uint32_t kBytes = 512;

  __device__ __forceinline__ void load(uint32_t address) {
    const uint4 v = load_shared(address + 16 * lane_id());
    words_[0][0] = v.x;
    words_[0][1] = v.y;
    words_[1][0] = v.z;
    words_[1][1] = v.w;
  }

 protected:
  uint32_t words_[2][2];  // [32 k][row g, row g + 8]
};

// A permutation of bytes looks up four magnitudes in e4m3. Of a word the lower three bits of each four say which
// magnitudes k0 to k0 + 3 of the first k-step have, and then those of the second. Bits 7 of the bytes are the signs of
// the first k-step, and bits 3 are the signs of the second.
template <class Book>
struct BookOfE4m3 : BookWords {
  static __device__ float value(uint32_t q) { return Book::value(q); }

  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    const uint32_t first_four = magnitudes(0) + unknown_zero();
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const uint32_t word = words_[step / 2][row], second = step % 2;
      const uint32_t four = permuted_bytes(first_four, magnitudes(4), lower_three_bits(word) >> 16 * second);
      halves_of_e4m3(four | (word << 4 * second & kSigns), a[row], a[row + 2]);
    }
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const auto* words = reinterpret_cast<const uint32_t*>(from + 16 * lane + 8 * block);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t word = words[i / 8], j = i % 8;
      q[i / 8][j] = (word >> 4 * j & 7) | (word >> sign_bit(j) & 1) << 3;
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; ++i) word |= (q[i] & 7) << 4 * i | (q[i] >> 3 & 1) << sign_bit(i);
    *reinterpret_cast<uint32_t*>(to + lane_offset(row, k) + k / 32 * 8 + row / 8 * 4) = word;
  }

 private:
  static constexpr uint32_t kSigns = 0x80808080;
  // Returns where the sign of the i-th of 8 k is.
  static __device__ uint32_t sign_bit(uint32_t i) { return 8 * (i % 4) + (i < 4 ? 7 : 3); }
  // Returns the codes in e4m3 of four numbers, from that of `code` on.
  static constexpr __host__ __device__ uint32_t magnitudes(uint32_t code) {
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 4; ++i) bytes |= sdk::SmallFloat<4, 3>::nearest(Book::value(code + i)) << 8 * i;
    return bytes;
  }
};

// A permutation of bytes looks up four codes in a table of eight bytes. Of a code whose fourth bit is set it repeats the
// sign of the byte that the other three bits choose: 0 or -1. So two tables tell 16 numbers apart, one of them asked with
// the fourth bits turned round. A place is a code as it is stored. The number of place i < 8 is lower_unit * lower[i],
// less upper_unit if upper[i] is negative; that of place i + 8 is upper_unit * upper[i], less lower_unit if lower[i] is.
//
// A book may say which code is at each place (four bits each, the first place lowest), what the units are, and by how
// much its numbers may be off: kPlaces, kLowerUnit, kUpperUnit, kMostOff. Else every code is at its own place, and both
// units are the greatest power of two, 1 at most, of which all numbers are multiples.
template <class Book>
class BookTables {
 public:
  static constexpr bool kPlaced = requires { Book::kPlaces; };
  static constexpr uint32_t code_at(uint32_t place) {
    if constexpr (kPlaced) {
      return static_cast<uint32_t>(Book::kPlaces >> 4 * place & 15);
    } else {
      return place;
    }
  }
  static constexpr uint32_t place_of(uint32_t code) {
    uint32_t place = 0;
    while (code_at(place) != code) ++place;
    return place;
  }

  bool found = true;  // the tables have all numbers
  float lower_unit, upper_unit;
  uint64_t lower = 0, upper = 0;  // a byte each, the first one lowest

  constexpr BookTables() : lower_unit(greatest_unit()), upper_unit(lower_unit) {
    if constexpr (kPlaced) {
      lower_unit = Book::kLowerUnit;
      upper_unit = Book::kUpperUnit;
    }
    for (uint32_t i = 0; i < 8; ++i) found = found && add(i);
  }

 private:
  static constexpr float most_off() {
    if constexpr (kPlaced) return Book::kMostOff;
    return 0;
  }
  // Returns 0 if there is none.
  static constexpr float greatest_unit() {
    for (float unit = 1; unit > 1e-9F; unit /= 2) {
      bool whole = true;
      for (uint32_t code = 0; code < 16; ++code) {
        whole = whole && unit * nearest_byte(Book::value(code) / unit) == Book::value(code);
      }
      if (whole) return unit;
    }
    return 0;
  }
  static constexpr int nearest_byte(float x) {
    if (x < -128 || x > 127) return x < 0 ? -128 : 127;
    return static_cast<int>(x < 0 ? x - 0.5F : x + 0.5F);
  }
  // Adds the bytes of places i and i + 8, once it is known which of the two are negative.
  constexpr bool add(uint32_t i) {
    const float low = Book::value(code_at(i)), up = Book::value(code_at(i + 8));
    for (uint32_t negative = 0; negative < 4 && lower_unit != 0; ++negative) {
      const uint32_t below = negative % 2, above = negative / 2;
      const float less_low = above != 0 ? upper_unit : 0, less_up = below != 0 ? lower_unit : 0;
      const int l = nearest_byte((low + less_low) / lower_unit), u = nearest_byte((up + less_up) / upper_unit);
      if ((l < 0) != (below != 0) || (u < 0) != (above != 0)) continue;
      if (!near(lower_unit * l - less_low, low) || !near(upper_unit * u - less_up, up)) continue;
      lower |= (static_cast<uint64_t>(l) & 255) << 8 * i;
      upper |= (static_cast<uint64_t>(u) & 255) << 8 * i;
      return true;
    }
    return false;
  }
  static constexpr bool near(float number, float wanted) {
    return number - wanted <= most_off() && wanted - number <= most_off();
  }
};

// Numbers of other books are rounded to fp16. Each byte of a word has two places of a register of an A fragment: k 0 and
// 1, 4 and 5, 2 and 3, 6 and 7. Bytes are looked up in a table in shared memory, of which copies lie side by side. With
// one for every lane nobody waits, and all is looked up there. Where these leave too little shared memory there is one
// for two lanes, and of four k-steps two permute bytes, so that shared memory and arithmetic have as much to do. Quartets
// need permutations alone, a look-up in each of the BookTables.
template <class Book, uint32_t kCopies = 16>
struct BookOfHalves : BookWords {
  using OfTiles = BookOfHalves<Book, 32>;
  static constexpr uint32_t kTableBytes = 256 * kCopies * 4, kTableSteps = kCopies == 32 ? 4 : 2;
  static constexpr float value(uint32_t q) { return sdk::half_to_float(sdk::float_to_half(Book::value(q))); }
  static constexpr bool takes_quartets() { return BookTables<Book>().found; }
  static constexpr float kLowerUnit = BookTables<Book>().lower_unit, kUpperUnit = BookTables<Book>().upper_unit;

  // All threads of a block call it, and then wait for each other.
  static __device__ void make_table() {
    for (uint32_t i = threadIdx.x; i < 256 * kCopies / 4; i += blockDim.x) {
      const uint32_t entry = pairs(i / (kCopies / 4), 0, 0);
      reinterpret_cast<uint4*>(table())[i] = {entry, entry, entry, entry};
    }
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kEntry = 4 * kCopies, kByte = 0x4440;  // kEntry: bytes of a byte's copies
    const uint32_t own = shared_address(table()) + lane_id() % kCopies * 4;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t word = words_[step / 2][i % 2], second = step % 2, last = i / 2;
      a[i] = step < kTableSteps ? load_shared_4(__byte_perm(word, 0, kByte + 2 * last + second) * kEntry + own)
                                : pairs(word, last, second);
    }
  }
  template <bool kUpper>
  __device__ __forceinline__ void quartets(Quartet which, uint32_t (&a)[4]) const {
    constexpr BookTables<Book> kTables;
    constexpr uint64_t kTable = kUpper ? kTables.upper : kTables.lower;
    constexpr auto kFirstFour = static_cast<uint32_t>(kTable), kLastFour = static_cast<uint32_t>(kTable >> 32);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t word = words_[i / 2][i % 2], four = which == Quartet::kLast ? word >> 16 : word;
      a[i] = permuted_bytes(kFirstFour + unknown_zero(), kLastFour, kUpper ? four ^ 0x8888 : four);
    }
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const auto* words = reinterpret_cast<const uint32_t*>(from + 16 * lane + 8 * block);
    for (uint32_t i = 0; i < 16; ++i) {
      q[i / 8][i % 8] = BookTables<Book>::code_at(words[i / 8] >> first_bit(i % 8) & 15);
    }
  }
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; ++i) word |= BookTables<Book>::place_of(q[i] & 15) << first_bit(i);
    *reinterpret_cast<uint32_t*>(to + lane_offset(row, k) + k / 32 * 8 + row / 8 * 4) = word;
  }

 private:
  // Returns the first bit in its word of the i-th of 8 k.
  static __device__ uint32_t first_bit(uint32_t i) { return i % 2 * 4 + i / 4 * 8 + i / 2 % 2 * 16; }

  // These are the n-th bytes of the 16 places' numbers as halves, four a word.
  struct BytesOfHalves {
    uint32_t bytes[4];
  };
  static constexpr __host__ __device__ BytesOfHalves bytes_of_halves(uint32_t n) {
    BytesOfHalves all{};
    for (uint32_t place = 0; place < 16; ++place) {
      const uint32_t half = sdk::float_to_half(Book::value(BookTables<Book>::code_at(place)));
      all.bytes[place / 4] |= (half >> 8 * n & 255U) << place % 4 * 8;
    }
    return all;
  }
  // These are the first four codes of a word, or the last four. A permutation of bytes looks up four codes of 3 bits,
  // and bit 3 chooses between two of them.
  struct Four {
    uint32_t codes, choice;

    __device__ __forceinline__ Four(uint32_t word, uint32_t last) {
      const uint32_t in_upper = word << 4;  // bits 3 of even codes go where odd ones have theirs: at the top of bytes
      choice = permuted_bytes(word, in_upper, last != 0 ? 0xbfae : 0x9d8c);
      codes = lower_three_bits(word) >> 16 * last;
    }
    __device__ __forceinline__ uint32_t look_up(const BytesOfHalves& of) const {
      if ((of.bytes[0] | of.bytes[1] | of.bytes[2] | of.bytes[3]) == 0) return 0;
      const uint32_t first = permuted_bytes(of.bytes[0] + unknown_zero(), of.bytes[1], codes);
      const uint32_t second = permuted_bytes(of.bytes[2] + unknown_zero(), of.bytes[3], codes);
      return (first & ~choice) | (second & choice);
    }
  };
  // Returns the halves of k 0 and 1, or of k 4 and 5 (second); with last, two k further on.
  static __device__ __forceinline__ uint32_t pairs(uint32_t word, uint32_t last, uint32_t second) {
    const Four four(word, last);
    return __byte_perm(four.look_up(bytes_of_halves(0)), four.look_up(bytes_of_halves(1)),
                       second != 0 ? 0x7362 : 0x5140);
  }
  // Returns the block's table: two halves for each [byte][copy].
  static __device__ __forceinline__ uint8_t* table() {
    __shared__ __align__(16) uint8_t bytes[kTableBytes];
    return bytes;
  }
};

template <class Book>
using BookWeights =
    std::conditional_t<is_book_of_e4m3<Book>() && !BookTables<Book>::kPlaced, BookOfE4m3<Book>, BookOfHalves<Book>>;

static_assert(GroupWeights<FiveBits<0>> && GroupWeights<E4m3Weights> &&
              GroupWeights<SixBitFloats<sdk::SmallFloat<3, 2>>>);

}  // namespace tenon::cuda
