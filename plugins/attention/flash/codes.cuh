// Codes of the scaled codecs, int8, fp8 and int4, become fp16 here: eight elements in their order for prefill, and for
// decoding, where the order is free, the pairs of a word.
//
// Decoding has codes as they are stored in tiles of two-byte columns (decode_tiles.cuh), of which ldmatrix gives a
// lane words of two columns: of keys four bytes of a token that follow each other, and in a transposed load of values
// two bytes of one token and two of the next. A word has kPairs pairs, of the codes at the same place of its two
// columns: two dimensions of a key, or one dimension of two tokens' values. Products do not care in which order
// dimensions come if the queries have the same one.
//
// Example, int8: in a lane 4 g + t, the word of key g and of piece 3, which is the row's bytes 48 to 63, has dimensions
// 48 + 4t to 48 + 4t + 3, and its pairs are (48 + 4t, 48 + 4t + 2) and (48 + 4t + 1, 48 + 4t + 3).
#pragma once

#include <cuda_fp16.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "cuda_ops.h"
#include "tenon/cuda/group_weights.cuh"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tiles.cuh"

namespace tenon::flash {

// An element is its cell's scale, times kUnit, times what unpack() and unpack_pairs() make of its code, exactly: fp16
// numbers, of which kWhole, a power of two, is about the greatest. unpack() makes eight elements in pairs, number
// `word` of 16 bytes, which have kEights times eight. Stored is the codec that the cache's own ops store elements in.
template <class C>
concept Codec = sdk::KvCodec<typename C::Stored> &&
                requires(const uint32_t (&words)[4], uint32_t word, __half2 (&x)[4], uint32_t (&pairs)[C::kPairs]) {
                  { C::kEights } -> std::convertible_to<uint32_t>;
                  { C::kUnit } -> std::convertible_to<float>;
                  { C::kWhole } -> std::convertible_to<float>;
                  C::unpack(words, word, x);
                  C::unpack_pairs(word, pairs);
                };

namespace detail {

__device__ __forceinline__ __half2 minus(uint32_t pair, uint32_t other) {
  return __hsub2(reinterpret_cast<const __half2&>(pair), reinterpret_cast<const __half2&>(other));
}
__device__ __forceinline__ uint32_t bits_minus(uint32_t pair, uint32_t other) {
  const __half2 x = minus(pair, other);
  return reinterpret_cast<const uint32_t&>(x);
}

}  // namespace detail

// Returns the product of two pairs of fp16.
__device__ __forceinline__ uint32_t times(uint32_t pair, uint32_t other) {
  const __half2 x = __hmul2(reinterpret_cast<const __half2&>(pair), reinterpret_cast<const __half2&>(other));
  return reinterpret_cast<const uint32_t&>(x);
}

// A byte's bits, biased by 128, are the last of 1024 + 128 + q in fp16.
struct Int8Bytes {
  using Stored = sdk::KvI8;
  static constexpr uint32_t kEights = 2, kPairs = 2;
  static constexpr float kUnit = 1, kWhole = 128;
  __device__ static void unpack(const uint32_t (&words)[4], uint32_t i, __half2 (&x)[4]) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      x[j] = detail::minus(__byte_perm(words[2 * i + j / 2] ^ 0x80808080u, 0x64646464u, j % 2 == 0 ? 0x4140 : 0x4342),
                           0x64806480u);
    }
  }
  __device__ static void unpack_pairs(uint32_t word, uint32_t (&pairs)[kPairs]) {
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) {
      pairs[i] = detail::bits_minus(__byte_perm(word ^ 0x80808080u, 0x64646464u, 0x4240 + 0x0101 * i), 0x64806480u);
    }
  }
};
// A code has four bits. The lower code of a byte is the last bits of 1024 + code, and the upper one, where it is, the
// last but four of 64 + code; a code is kBias + q.
template <uint32_t kBias>
struct Nibbles {
  using Stored = sdk::KvI4;
  static constexpr uint32_t kEights = 4, kPairs = 4;
  static constexpr float kUnit = 1, kWhole = 8;
  static constexpr uint32_t kLower = 0x6400 + kBias, kUpper = 0x5400 + 16 * kBias;
  __device__ static void unpack(const uint32_t (&words)[4], uint32_t i, __half2 (&x)[4]) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {  // a byte stands in both halves of a pair
      x[j] = detail::minus(cuda::masked<0x00f0000f, 0x54006400>(__byte_perm(words[i], 0, 0x4040 + 0x0101 * j)),
                           kUpper << 16 | kLower);
    }
  }
  __device__ static void unpack_pairs(uint32_t word, uint32_t (&pairs)[kPairs]) {
#pragma unroll
    for (uint32_t i = 0; i < kPairs; i += 2) {
      const uint32_t shifted = word >> 4 * i;
      pairs[i] = detail::bits_minus(cuda::masked<0x000f000f, 0x64006400>(shifted), kLower << 16 | kLower);
      pairs[i + 1] = detail::bits_minus(cuda::masked<0x00f000f0, 0x54005400>(shifted), kUpper << 16 | kUpper);
    }
  }
};
struct Int4Bytes : Nibbles<8> {};
// Codes have four bits; a key's element is the zero of its dimension and group plus a code of Keys times the step.
struct Int4ByChannel : Nibbles<8> {
  using Keys = Nibbles<0>;
};
// E4M3 becomes halves as sdk::SmallFloat::half_bits() makes them of codes.
struct Fp8Bytes {
  using Stored = cuda::KvF8;
  static constexpr uint32_t kEights = 2, kPairs = 2;
  static constexpr float kUnit = sdk::KvF8::Numbers::kUnit, kWhole = 1;
  __device__ static void unpack(const uint32_t (&words)[4], uint32_t i, __half2 (&x)[4]) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t high = __byte_perm(words[2 * i + j / 2], 0, j % 2 == 0 ? 0x1404 : 0x3424);  // a byte above a zero
      const uint32_t half = (high & 0x80008000u) | (high >> 1 & 0x3f803f80u);
      x[j] = reinterpret_cast<const __half2&>(half);
    }
  }
  __device__ static void unpack_pairs(uint32_t word, uint32_t (&pairs)[kPairs]) {
    pairs[0] = (word << 8 & 0x80008000u) | (word << 7 & 0x3f803f80u);
    pairs[1] = (word & 0x80008000u) | (word >> 1 & 0x3f803f80u);
  }
};
static_assert(Codec<Int8Bytes> && Codec<Int4Bytes> && Codec<Int4ByChannel> && Codec<Fp8Bytes>);

// This says whether keys have zeros and steps for each dimension, and only values a scale for each cell. C may be void.
template <class C>
inline constexpr bool kKeysByChannel = std::is_same_v<C, Int4ByChannel>;

// ---- where dimensions are in decoding -------------------------------------------------------------------------------
// Returns the dimension of an element (0 or 1) of a pair of the word that the lane has of a key's 16 bytes `piece`.
template <Codec C>
__device__ __forceinline__ uint32_t dim_of_key(uint32_t piece, uint32_t pair, uint32_t element) {
  return (4 * piece + threadIdx.x % 4) * 2 * C::kPairs + element * C::kPairs + pair;
}
// Returns the dimension of a pair of a word of values, in row g of a product.
template <Codec C>
__device__ __forceinline__ uint32_t dim_of_value(uint32_t piece, uint32_t pair) {
  return (8 * piece + threadIdx.x % 32 / 4) * C::kPairs + pair;
}

// ---- in order -------------------------------------------------------------------------------------------------------
// Makes fp16 of eight elements, number i of those in 16 bytes of a row.
template <Codec C>
__device__ __forceinline__ uint4 scaled_eight(const uint32_t (&words)[4], uint32_t i, __half scale) {
  const __half2 both = __hmul2(__half2half2(scale), __half2half2(__float2half_rn(C::kUnit)));
  __half2 x[4];
  C::unpack(words, i, x);
  uint32_t halves[4];  // each has two of them
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) {
    const __half2 product = __hmul2(x[j], both);
    halves[j] = reinterpret_cast<const uint32_t&>(product);
  }
  return {halves[0], halves[1], halves[2], halves[3]};
}
// Makes fp16 of the 16 bytes of a row that hold elements: store(i, eight) gets the i-th eight of them.
template <Codec C, class Store>
__device__ __forceinline__ void unpack_scaled(const uint4& raw, __half scale, const Store& store) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (uint32_t i = 0; i < C::kEights; ++i) store(i, scaled_eight<C>(words, i, scale));
}

// These do the same for a key by channel: channels(i) gives the zeros and the steps of the i-th eight dimensions.
struct EightChannels {
  uint4 zeros, steps;  // fp16
};
__device__ __forceinline__ uint4 eight_by_channel(const uint32_t (&words)[4], uint32_t i, const EightChannels& eight) {
  __half2 x[4];
  Int4ByChannel::Keys::unpack(words, i, x);
  const uint32_t zeros[4] = {eight.zeros.x, eight.zeros.y, eight.zeros.z, eight.zeros.w};
  const uint32_t steps[4] = {eight.steps.x, eight.steps.y, eight.steps.z, eight.steps.w};
  uint32_t halves[4];  // each has two of them
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) {
    const __half2 sum =
        __hfma2(x[j], reinterpret_cast<const __half2&>(steps[j]), reinterpret_cast<const __half2&>(zeros[j]));
    halves[j] = reinterpret_cast<const uint32_t&>(sum);
  }
  return {halves[0], halves[1], halves[2], halves[3]};
}
template <class Channels, class Store>
__device__ __forceinline__ void unpack_by_channel(const uint4& raw, const Channels& channels, const Store& store) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (uint32_t i = 0; i < Int4ByChannel::kEights; ++i) store(i, eight_by_channel(words, i, channels(i)));
}
// This holds halves of eight dimensions that follow each other, as pairs of a word of a key: pair i has i and i + 4.
struct ChannelPairs {
  uint32_t pair[Int4ByChannel::kPairs];

  __device__ __forceinline__ explicit ChannelPairs(const uint4& eight) {
    pair[0] = __byte_perm(eight.x, eight.z, 0x5410);
    pair[1] = __byte_perm(eight.x, eight.z, 0x7632);
    pair[2] = __byte_perm(eight.y, eight.w, 0x5410);
    pair[3] = __byte_perm(eight.y, eight.w, 0x7632);
  }
};

// This holds sixteen bytes of a row, from 16 * piece on, and their cell's scale: zeros for a row that there is not.
struct ScaledPiece {
  uint4 raw = {0, 0, 0, 0};
  __half scale = __ushort_as_half(0);

  __device__ void load(const cuda::KvRows& rows, const cuda::KvRows& scales, uint32_t token, uint32_t piece) {
    raw = *reinterpret_cast<const uint4*>(rows.at(token) + piece * 16);
    scale = *reinterpret_cast<const __half*>(scales.at(token));
  }
  // Writes numbers to a row of a tile, as fp16.
  template <uint32_t D, Codec C>
  __device__ void store(uint32_t tile, uint32_t row, uint32_t piece) const {
    unpack_scaled<C>(raw, scale, [&](uint32_t i, const uint4& eight) {
      cuda::store_shared(tile + tile_offset<D>(row, C::kEights * piece + i), eight);
    });
  }
};

// Calls f with the type that a cache's keys and values are multiplied in, and with what unpacks them, or void.
template <class F>
void with_cache(const cuda::KvPlane& plane, F&& f) {
  if (plane.codec == TENON_I8) return f(__half{}, std::type_identity<Int8Bytes>());
  if (plane.group != 0) return f(__half{}, std::type_identity<Int4ByChannel>());
  if (plane.codec == TENON_U8) return f(__half{}, std::type_identity<Int4Bytes>());
  if (plane.codec == TENON_F8E4M3) return f(__half{}, std::type_identity<Fp8Bytes>());
  with_half(plane.codec, [&]<class E>(E e) { f(e, std::type_identity<void>()); });
}

}  // namespace tenon::flash
