// Keys and values on their way from the cache into a warp's tile of 16 tokens in shared memory (tiles.cuh).
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

// Turns four bytes of a scaled codec into two pairs of fp16, of which the product with a cell's scale is rounded once.
template <class B>
concept ByteUnpacking = requires(uint32_t bytes, __half2 scale, __half2 (&x)[2]) {
  { B::scale_of(scale) } -> std::same_as<__half2>;  // the scale's factor
  B::unpack(bytes, x);                              // exact
};

// A byte's bits, biased by 128, are the last of 1024 + 128 + q in fp16.
struct Int8Bytes {
  __device__ static __half2 scale_of(__half2 scale) { return scale; }
  __device__ static void unpack(uint32_t bytes, __half2 (&x)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t biased = __byte_perm(bytes ^ 0x80808080u, 0x64646464u, i == 0 ? 0x4140 : 0x4342);
      x[i] = __hsub2(reinterpret_cast<const __half2&>(biased), __half2half2(__ushort_as_half(0x6480)));
    }
  }
};
// E4M3: as sdk::SmallFloat::half_bits() makes halves of codes.
struct Fp8Bytes {
  __device__ static __half2 scale_of(__half2 scale) {
    return __hmul2(scale, __half2half2(__float2half_rn(sdk::KvF8::Numbers::kUnit)));
  }
  __device__ static void unpack(uint32_t bytes, __half2 (&x)[2]) {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t high = __byte_perm(bytes, 0, i == 0 ? 0x1404 : 0x3424);  // each byte above a zero
      const uint32_t half = (high & 0x80008000u) | (high >> 1 & 0x3f803f80u);
      x[i] = reinterpret_cast<const __half2&>(half);
    }
  }
};
static_assert(ByteUnpacking<Int8Bytes> && ByteUnpacking<Fp8Bytes>);

// Loads a codec of one byte with scales in fp16, which becomes fp16 on its way.
template <uint32_t D, ByteUnpacking Bytes>
struct ByteTileLoader {
  cuda::KvRows rows, scales;
  uint32_t pieces;  // of 16 bytes, of a row in memory: two of the tile

  __device__ void operator()(uint32_t tile, const TileTokens& t) const {
    constexpr uint32_t kPieces = D / 16, kOfLane = kKeysOfTile * kPieces / 32;
    uint4 raw[kOfLane];
    __half scale[kOfLane];
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t at = i * 32 + threadIdx.x % 32, token = t.token + at / kPieces, piece = at % kPieces;
      raw[i] = {0, 0, 0, 0};
      scale[i] = __ushort_as_half(0);
      if (token < t.from || token >= min(t.to, t.end) || piece >= pieces) continue;
      raw[i] = *reinterpret_cast<const uint4*>(rows.at(token) + piece * 16);
      scale[i] = *reinterpret_cast<const __half*>(scales.at(token));
    }
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t at = i * 32 + threadIdx.x % 32, r = at / kPieces, token = t.token + r, piece = at % kPieces;
      if (token < t.end && piece < pieces && (token < t.from || token >= t.to)) continue;
      const __half2 both = Bytes::scale_of(__half2half2(scale[i]));
      store(tile + tile_offset<D>(r, 2 * piece), {raw[i].x, raw[i].y}, both);
      store(tile + tile_offset<D>(r, 2 * piece + 1), {raw[i].z, raw[i].w}, both);
    }
  }

 private:
  // Eight bytes.
  __device__ static void store(uint32_t to, const uint2& bytes, __half2 scale) {
    uint32_t word[4];  // two halves each
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      __half2 x[2];
      Bytes::unpack(i == 0 ? bytes.x : bytes.y, x);
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        const __half2 product = __hmul2(x[j], scale);
        word[2 * i + j] = reinterpret_cast<const uint32_t&>(product);
      }
    }
    cuda::store_shared(to, uint4{word[0], word[1], word[2], word[3]});
  }
};

static_assert(TileLoading<TileLoader<128>> && TileLoading<ByteTileLoader<128, Int8Bytes>>);

}  // namespace tenon::flash
