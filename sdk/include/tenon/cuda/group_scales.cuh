// The scales of groups lie in a segment (packed.cuh) after its weights (group_weights.cuh). Each row and group of k has
// a factor s and, in some layouts, an offset z. Rows g and g + 8, which a lane multiplies, lie side by side.
#pragma once

#include <concepts>
#include <cstdint>

#include "tenon/cuda/formats.cuh"

namespace tenon::cuda {

// Scales are read from such a memory: 2, 4 or 8 bytes that begin `at` bytes after its first.
template <class M>
concept ScaleMemory = requires(const M& m, uint32_t at) {
  { m.half_word(at) } -> std::same_as<uint32_t>;
  { m.word(at) } -> std::same_as<uint32_t>;
  { m.two_words(at) } -> std::same_as<uint2>;
};
struct SharedBytes {
  uint32_t address;
  __device__ __forceinline__ uint32_t half_word(uint32_t at) const { return load_shared_2(address + at); }
  __device__ __forceinline__ uint32_t word(uint32_t at) const { return load_shared_4(address + at); }
  __device__ __forceinline__ uint2 two_words(uint32_t at) const { return load_shared_8(address + at); }
};
struct PlainBytes {
  const uint8_t* from;
  __device__ uint32_t half_word(uint32_t at) const { return *reinterpret_cast<const uint16_t*>(from + at); }
  __device__ uint32_t word(uint32_t at) const { return *reinterpret_cast<const uint32_t*>(from + at); }
  __device__ uint2 two_words(uint32_t at) const { return *reinterpret_cast<const uint2*>(from + at); }
};

// These are the members of a layout of scales. Example: ScalePairs<__nv_bfloat16> has kOffsets = true, kHeader = 0 and
// kGroupBytes = 16 rows * 2 * 2 bytes = 64; the pair of row 9 and group 1 is at byte 64 + 1 * 8 + 4 = 76.
template <class S>
concept GroupScales = requires(SharedBytes shared, PlainBytes plain, uint32_t n, const typename S::Words& words) {
  // kOffsets: scales have offsets. kRowScales: a group's scale is multiplied by its row's (PackedFormat's kRowScales).
  { S::kOffsets } -> std::convertible_to<bool>;
  { S::kRowScales } -> std::convertible_to<bool>;
  // The groups' scales begin after kHeader bytes, and each group has kGroupBytes.
  { S::kHeader } -> std::convertible_to<uint32_t>;
  { S::kGroupBytes } -> std::convertible_to<uint32_t>;
  // Returns the offset in bytes of the scale of (row, group).
  { S::byte_offset(n, n) } -> std::same_as<uint32_t>;
  // load(memory, group, g) returns the words of rows g and g + 8.
  { S::load(shared, n, n) } -> std::same_as<typename S::Words>;
  { S::load(plain, n, n) } -> std::same_as<typename S::Words>;
  // These return s and z of row g (0) or g + 8 (1).
  { S::scale(words, n) } -> std::same_as<float>;
  { S::offset(words, n) } -> std::same_as<float>;
};

// These are s and z of rows g (lower) and g + 8 (upper) in f16, as products of many rows take them. Some layouts make them
// faster than one by one (halves()), rounded alike. Where there are zero points they stand in the place of z.
struct HalfScalePairs {
  __half2 scale, offset;
};
template <class S>
concept MakesHalves = requires(const typename S::Words& words) {
  { S::halves(words) } -> std::same_as<HalfScalePairs>;
};
// Returns two bytes of a word, whose numbers a permutation's selector has at its first and third digit, as f16.
template <uint32_t kSelector>
__device__ __forceinline__ __half2 bytes_as_halves(uint32_t word) {
  return __hsub2(detail::as_halves(__byte_perm(word, 0x64646464, kSelector)), __float2half2_rn(1024));
}

// Returns byte i of a word as a float. It is made from the bits of 2^23 + byte,
// since conversions of bytes take a slow pipe.
__device__ __forceinline__ float byte_as_float(uint32_t word, uint32_t i) {
  return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)) - 8388608.0F;
}

// Each row and group has a pair (s, z), s in the lower half: [group][g][row g, row g + 8].
template <HalfType H>
struct ScalePairs {
  using Words = uint2;
  static constexpr bool kOffsets = true, kRowScales = false;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 64;
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 8 + row / 8 * 4;
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return m.two_words(group * kGroupBytes + g * 8);
  }
  static __device__ __forceinline__ float scale(const Words& w, uint32_t i) {
    return from_half<H>((i == 0 ? w.x : w.y) & 0xffff);
  }
  static __device__ __forceinline__ float offset(const Words& w, uint32_t i) {
    return from_half<H>((i == 0 ? w.x : w.y) >> 16);
  }
  static __device__ __forceinline__ HalfScalePairs halves(const Words& w)
    requires std::is_same_v<H, __half>
  {
    return {detail::as_halves(__byte_perm(w.x, w.y, 0x5410)), detail::as_halves(__byte_perm(w.x, w.y, 0x7632))};
  }
};

// These are s in fp16: [group][g][row g, row g + 8].
struct HalfScales {
  using Words = uint32_t;
  static constexpr bool kOffsets = false, kRowScales = false;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 32;
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 4 + row / 8 * 2;
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return m.word(group * kGroupBytes + g * 4);
  }
  static __device__ __forceinline__ float scale(Words w, uint32_t i) {
    return from_half<__half>(i == 0 ? w & 0xffff : w >> 16);
  }
  static __device__ __forceinline__ float offset(Words, uint32_t) { return 0; }
  static __device__ __forceinline__ HalfScalePairs halves(Words w) { return {detail::as_halves(w), {}}; }
};

// These are the two levels of GGUF's K types: s = d * sc and z = -dmin * m, where a row has fp16 d and dmin in all of the segment,
// and a group has int8 sc and uint8 m. Without offsets there are d and sc alone.
// [g][row g, row g + 8], then [group][g][row g, row g + 8].
template <bool Offsets>
struct TwoLevelScales {
  struct Words {
    uint32_t of_rows[2];  // (d, dmin) of row g, of row g + 8
    uint32_t of_group;    // bytes: (sc, m) of row g, then of row g + 8
  };
  static constexpr bool kOffsets = Offsets, kRowScales = false;
  static constexpr uint32_t kRowBytes = Offsets ? 4 : 2, kRowGroupBytes = Offsets ? 2 : 1;
  static constexpr uint32_t kHeader = kTileRows * kRowBytes, kGroupBytes = kTileRows * kRowGroupBytes;
  static __host__ __device__ uint32_t row_byte_offset(uint32_t row) { return (row % 8 * 2 + row / 8) * kRowBytes; }
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return kHeader + group * kGroupBytes + (row % 8 * 2 + row / 8) * kRowGroupBytes;
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    const uint32_t at = kHeader + group * kGroupBytes + g * 2 * kRowGroupBytes;
    if constexpr (Offsets) {
      const uint2 rows = m.two_words(g * 8);
      return {{rows.x, rows.y}, m.word(at)};
    } else {
      const uint32_t rows = m.word(g * 4);
      return {{rows & 0xffff, rows >> 16}, m.half_word(at)};
    }
  }
  static __device__ __forceinline__ float scale(const Words& w, uint32_t i) {
    return from_half<__half>(w.of_rows[i] & 0xffff) *
           (byte_as_float(w.of_group ^ 0x80808080, kRowGroupBytes * i) - 128);
  }
  static __device__ __forceinline__ float offset(const Words& w, uint32_t i) {
    if constexpr (!Offsets) return 0;
    return -(from_half<__half>(w.of_rows[i] >> 16) * byte_as_float(w.of_group, kRowGroupBytes * i + 1));
  }
  // A product of a row's number and an integer of 8 bits is rounded once, here as there.
  static __device__ __forceinline__ HalfScalePairs halves(const Words& w) {
    const __half2 signs = __float2half2_rn(-128);
    const __half2 d = detail::as_halves(__byte_perm(w.of_rows[0], w.of_rows[1], 0x5410));
    const __half2 sc = __hadd2(bytes_as_halves < Offsets ? 0x4240 : 0x4140 > (w.of_group ^ 0x80808080), signs);
    if constexpr (!Offsets) return {__hmul2(d, sc), {}};
    const __half2 dmin = detail::as_halves(__byte_perm(w.of_rows[0], w.of_rows[1], 0x7632));
    return {__hmul2(d, sc), __hneg2(__hmul2(dmin, bytes_as_halves<0x4341>(w.of_group)))};
  }
};

// These are s in f32: [group][g][row g, row g + 8].
struct FloatScales {
  using Words = uint2;
  static constexpr bool kOffsets = false, kRowScales = false;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 64;
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 8 + row / 8 * 4;
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return m.two_words(group * kGroupBytes + g * 8);
  }
  static __device__ __forceinline__ float scale(const Words& w, uint32_t i) {
    return __uint_as_float(i == 0 ? w.x : w.y);
  }
  static __device__ __forceinline__ float offset(const Words&, uint32_t) { return 0; }
};

// These are (s, z) in f32: [group][g][row g, row g + 8].
struct FloatPairs {
  struct Words {
    uint2 of_rows[2];
  };
  static constexpr bool kOffsets = true, kRowScales = false;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 128;
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 16 + row / 8 * 8;
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    const uint32_t at = group * kGroupBytes + g * 16;
    return {{m.two_words(at), m.two_words(at + 8)}};
  }
  static __device__ __forceinline__ float scale(const Words& w, uint32_t i) { return __uint_as_float(w.of_rows[i].x); }
  static __device__ __forceinline__ float offset(const Words& w, uint32_t i) { return __uint_as_float(w.of_rows[i].y); }
};

// Here s is the row's scale times a byte: [group][g][row g, row g + 8].
struct ByteScales {
  using Words = uint32_t;
  static constexpr bool kOffsets = false, kRowScales = true;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 16;
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 2 + row / 8;
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return m.half_word(group * kGroupBytes + g * 2);
  }
  static __device__ __forceinline__ float scale(Words w, uint32_t i) { return byte_as_float(w, i); }
  static __device__ __forceinline__ float offset(Words, uint32_t) { return 0; }
};

// Here s is 2^(byte - 127): [group][g][row g, row g + 8].
struct ExponentScales {
  using Words = uint32_t;
  static constexpr bool kOffsets = false, kRowScales = false;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 16;
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 2 + row / 8;
  }
  static __device__ __forceinline__ float power(uint32_t exponent) {
    return __uint_as_float(exponent == 0 ? 0x00400000 : exponent << 23);
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return m.half_word(group * kGroupBytes + g * 2);
  }
  static __device__ __forceinline__ float scale(Words w, uint32_t i) { return power(i == 0 ? w & 0xff : w >> 8); }
  static __device__ __forceinline__ float offset(Words, uint32_t) { return 0; }
};

// Here s is the row's scale times a number in e4m3, whose bits are those of a half that is 256 times smaller:
// [group][g][row g, row g + 8].
struct E4m3Scales {
  using Words = uint32_t;
  static constexpr bool kOffsets = false, kRowScales = true;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 16;
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 2 + row / 8;
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return m.half_word(group * kGroupBytes + g * 2);
  }
  static __device__ __forceinline__ float scale(Words w, uint32_t i) {
    return from_half<__half>((i == 0 ? w << 7 : w >> 1) & 0x3f80) * 256;
  }
  static __device__ __forceinline__ float offset(Words, uint32_t) { return 0; }
};

// Groups have no scales of their own: all of a row share the row's.
struct NoScales {
  struct Words {};
  static constexpr bool kOffsets = false, kRowScales = true;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 0;
  static __host__ __device__ uint32_t byte_offset(uint32_t, uint32_t) { return 0; }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory&, uint32_t, uint32_t) {
    return {};
  }
  static __device__ __forceinline__ float scale(Words, uint32_t) { return 1; }
  static __device__ __forceinline__ float offset(Words, uint32_t) { return 0; }
};

// These are s in 16 bits, and an integer zero point from 0 to 255: w = s (q - zero).
// [group]([g][s of row g, of row g + 8], then [g][zero of row g, of row g + 8]).
template <HalfType H>
struct ScalesWithZeroPoints {
  struct Words {
    uint32_t scales, zeros;
  };
  static constexpr bool kOffsets = true, kRowScales = false;
  static constexpr uint32_t kHeader = 0, kGroupBytes = 48, kZeros = 32;
  static __host__ __device__ uint32_t byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + row % 8 * 4 + row / 8 * 2;
  }
  static __host__ __device__ uint32_t zero_byte_offset(uint32_t row, uint32_t group) {
    return group * kGroupBytes + kZeros + row % 8 * 2 + row / 8;
  }
  template <ScaleMemory Memory>
  static __device__ __forceinline__ Words load(const Memory& m, uint32_t group, uint32_t g) {
    return {m.word(group * kGroupBytes + g * 4), m.half_word(group * kGroupBytes + kZeros + g * 2)};
  }
  static __device__ __forceinline__ float scale(const Words& w, uint32_t i) {
    return from_half<H>(i == 0 ? w.scales & 0xffff : w.scales >> 16);
  }
  static __device__ __forceinline__ float zero(const Words& w, uint32_t i) { return byte_as_float(w.zeros, i); }
  static __device__ __forceinline__ float offset(const Words& w, uint32_t i) { return -(scale(w, i) * zero(w, i)); }
  static __device__ __forceinline__ HalfScalePairs halves(const Words& w)
    requires std::is_same_v<H, __half>
  {
    return {detail::as_halves(w.scales), bytes_as_halves<0x4140>(w.zeros)};
  }
};
struct ZeroPoints : ScalesWithZeroPoints<__nv_bfloat16> {};
struct HalfZeroPoints : ScalesWithZeroPoints<__half> {};

static_assert(GroupScales<ScalePairs<__half>> && GroupScales<HalfScales> && GroupScales<TwoLevelScales<true>> &&
              GroupScales<FloatScales> && GroupScales<ByteScales> && GroupScales<NoScales> && GroupScales<ZeroPoints> &&
              GroupScales<HalfZeroPoints> && GroupScales<ExponentScales> && GroupScales<E4m3Scales> &&
              GroupScales<FloatPairs>);

}  // namespace tenon::cuda
