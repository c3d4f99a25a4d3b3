// Keys and values on their way from the cache into tiles in shared memory (tiles.cuh): a warp's tile of 16 tokens, and of scaled
// codecs what every kernel needs to make fp16 of them.
#pragma once

#include <concepts>
#include <type_traits>

#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tiles.cuh"

namespace tenon::flash {

inline constexpr uint32_t kKeysOfTile = 16;

// The tokens of a tile that are written: those in [from, to) from the cache; those from `end` on are zeros; others are left
// alone. token: the tile's first.
struct TileTokens {
  uint32_t token, from, to, end;
};

// Loads a tile, by a whole warp. tile: its address in shared memory.
template <class L>
concept TileLoading = requires(const L& load, uint32_t tile, const TileTokens& t) { load(tile, t); };

// Loads fp16 or bf16 by asynchronous copies.
template <uint32_t D>
struct TileLoader {
  cuda::KvRows rows;
  uint32_t pieces;  // of 16 bytes, of a row in memory; the tile's others are zeros

  __device__ void operator()(uint32_t tile, const TileTokens& t) const {
    constexpr uint32_t kPieces = D / 8, kRowsAtOnce = 32 / kPieces;
    const bool one_run = rows.run(t.token, kKeysOfTile) == kKeysOfTile;
    const char* base = one_run ? rows.at(t.token) : nullptr;
    if (one_run && t.token >= t.from && t.token + kKeysOfTile <= min(t.to, t.end) && pieces == kPieces) {
      const uint32_t row = threadIdx.x % 32 / kPieces, piece = threadIdx.x % kPieces;
      base += row * rows.stride() + piece * 16;
#pragma unroll
      for (uint32_t r = 0; r < kKeysOfTile; r += kRowsAtOnce, base += kRowsAtOnce * rows.stride()) {
        cuda::copy_async(tile + tile_offset<D>(r + row, piece), base);
      }
      return;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < kKeysOfTile * kPieces / 32; ++i) {
      const uint32_t at = i * 32 + threadIdx.x % 32, r = at / kPieces, piece = at % kPieces, token = t.token + r;
      const uint32_t address = tile + tile_offset<D>(r, piece);
      if (token >= t.end || piece >= pieces) {
        cuda::store_zeros(address);
      } else if (token >= t.from && token < t.to) {
        const char* row = one_run ? base + r * rows.stride() : rows.at(token);
        cuda::copy_async(address, row + piece * 16);
      }
    }
  }
};

// Turns eight elements of a scaled codec, the i-th eight of 16 bytes, into four pairs of fp16, of which the product with a
// cell's scale is rounded once.
template <class B>
concept ByteUnpacking = requires(const uint32_t (&words)[4], uint32_t i, __half2 scale, __half2 (&x)[4]) {
  { B::kEights } -> std::convertible_to<uint32_t>;  // so many times eight elements are in 16 bytes
  { B::scale_of(scale) } -> std::same_as<__half2>;  // the scale's factor
  B::unpack(words, i, x);                           // exact
};

// A byte's bits, biased by 128, are the last of 1024 + 128 + q in fp16.
struct Int8Bytes {
  static constexpr uint32_t kEights = 2;
  __device__ static __half2 scale_of(__half2 scale) { return scale; }
  __device__ static void unpack(const uint32_t (&words)[4], uint32_t i, __half2 (&x)[4]) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t biased =
          __byte_perm(words[2 * i + j / 2] ^ 0x80808080u, 0x64646464u, j % 2 == 0 ? 0x4140 : 0x4342);
      x[j] = __hsub2(reinterpret_cast<const __half2&>(biased), __half2half2(__ushort_as_half(0x6480)));
    }
  }
};
// Four bits: a byte stands in both halves of a pair. The lower code is the last bits of 1024 + code, and the upper one, where
// it is, the last but four of 64 + code.
struct Int4Bytes {
  static constexpr uint32_t kEights = 4;
  __device__ static __half2 scale_of(__half2 scale) { return scale; }
  __device__ static void unpack(const uint32_t (&words)[4], uint32_t i, __half2 (&x)[4]) {
    constexpr uint32_t kZeros = 0x54806408;  // 64 + 8 and 1024 + 8
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t pair = (__byte_perm(words[i], 0, 0x4040 + 0x0101 * j) & 0x00f0000fu) | 0x54006400u;
      x[j] = __hsub2(reinterpret_cast<const __half2&>(pair), reinterpret_cast<const __half2&>(kZeros));
    }
  }
};
// E4M3: as sdk::SmallFloat::half_bits() makes halves of codes.
struct Fp8Bytes {
  static constexpr uint32_t kEights = 2;
  __device__ static __half2 scale_of(__half2 scale) {
    return __hmul2(scale, __half2half2(__float2half_rn(sdk::KvF8::Numbers::kUnit)));
  }
  __device__ static void unpack(const uint32_t (&words)[4], uint32_t i, __half2 (&x)[4]) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t high = __byte_perm(words[2 * i + j / 2], 0, j % 2 == 0 ? 0x1404 : 0x3424);  // a byte above a zero
      const uint32_t half = (high & 0x80008000u) | (high >> 1 & 0x3f803f80u);
      x[j] = reinterpret_cast<const __half2&>(half);
    }
  }
};
static_assert(ByteUnpacking<Int8Bytes> && ByteUnpacking<Int4Bytes> && ByteUnpacking<Fp8Bytes>);

// Sixteen bytes of a row, from 16 * piece on, and their cell's scale: zeros for a row that there is not.
struct ScaledPiece {
  uint4 raw = {0, 0, 0, 0};
  __half scale = __ushort_as_half(0);

  __device__ void load(const cuda::KvRows& rows, const cuda::KvRows& scales, uint32_t token, uint32_t piece) {
    raw = *reinterpret_cast<const uint4*>(rows.at(token) + piece * 16);
    scale = *reinterpret_cast<const __half*>(scales.at(token));
  }
  // Writes numbers to a row of a tile, as fp16.
  template <uint32_t D, ByteUnpacking Bytes>
  __device__ void store(uint32_t tile, uint32_t row, uint32_t piece) const {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    const __half2 both = Bytes::scale_of(__half2half2(scale));
#pragma unroll
    for (uint32_t i = 0; i < Bytes::kEights; ++i) {
      __half2 x[4];
      Bytes::unpack(words, i, x);
      uint32_t halves[4];  // two of them each
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        const __half2 product = __hmul2(x[j], both);
        halves[j] = reinterpret_cast<const uint32_t&>(product);
      }
      cuda::store_shared(tile + tile_offset<D>(row, Bytes::kEights * piece + i),
                         uint4{halves[0], halves[1], halves[2], halves[3]});
    }
  }
};

// Loads a scaled codec with scales in fp16, which becomes fp16 on its way.
template <uint32_t D, ByteUnpacking Bytes>
struct ByteTileLoader {
  cuda::KvRows rows, scales;
  uint32_t pieces;  // of 16 bytes, of a row in memory: Bytes::kEights pieces of the tile

  __device__ void operator()(uint32_t tile, const TileTokens& t) const {
    constexpr uint32_t kPieces = D / 8 / Bytes::kEights, kOfLane = kKeysOfTile * kPieces / 32;
    ScaledPiece own[kOfLane];
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t at = i * 32 + threadIdx.x % 32, token = t.token + at / kPieces, piece = at % kPieces;
      if (token < t.from || token >= min(t.to, t.end) || piece >= pieces) continue;
      own[i].load(rows, scales, token, piece);
    }
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t at = i * 32 + threadIdx.x % 32, r = at / kPieces, token = t.token + r, piece = at % kPieces;
      if (token < t.end && piece < pieces && (token < t.from || token >= t.to)) continue;
      own[i].template store<D, Bytes>(tile, r, piece);
    }
  }
};
static_assert(TileLoading<TileLoader<128>> && TileLoading<ByteTileLoader<128, Int8Bytes>>);

// Calls f with the type that a cache's keys and values are multiplied in, and with what unpacks them, or void.
template <class F>
void with_cache(const cuda::KvPlane& plane, F&& f) {
  if (plane.codec == TENON_I8) return f(__half{}, std::type_identity<Int8Bytes>());
  if (plane.codec == TENON_U8) return f(__half{}, std::type_identity<Int4Bytes>());
  if (plane.codec == TENON_F8E4M3) return f(__half{}, std::type_identity<Fp8Bytes>());
  with_half(plane.codec, [&]<class E>(E e) { f(e, std::type_identity<void>()); });
}

}  // namespace tenon::flash
