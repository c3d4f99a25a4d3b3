// These bring keys and values of the decode kernels from the cache into tiles in shared memory (tiles.cuh): a warp's
// tile of 16 tokens, or of 32 in codes, which stay codes there.
#pragma once

#include <concepts>

#include "codes.cuh"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tiles.cuh"

namespace tenon::flash {

inline constexpr uint32_t kKeysOfTile = 16;

// These tokens of a tile are written: those in [from, to) from the cache; those from `end` on are zeros; others are
// left alone. `token` is the tile's first.
struct TileTokens {
  uint32_t token, from, to, end;
};

// A whole warp loads a tile with this; `tile` is its address in shared memory.
template <class L>
concept TileLoading = requires(const L& load, uint32_t tile, const TileTokens& t) { load(tile, t); };

// Loads fp16 or bf16 by asynchronous copies.
template <uint32_t D>
struct TileLoader {
  cuda::KvRows rows;
  uint32_t pieces;  // so many times 16 bytes are a row in memory; the tile's others are zeros

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
    load_slowly(tile, t);
  }
  // Loads the tile piece by piece.
  __device__ void load_slowly(uint32_t tile, const TileTokens& t) const {
    constexpr uint32_t kPieces = D / 8;
    const bool one_run = rows.run(t.token, kKeysOfTile) == kKeysOfTile;
    const char* base = one_run ? rows.at(t.token) : nullptr;
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

// Loads whole tiles of keys and values whose rows lie one after the other in a page. A tile costs a warp that is a team
// few more instructions than it has copies.
template <uint32_t D>
class WholeTiles {
 public:
  // Says whether tiles can be loaded so: pages have whole tiles, and lie nearer to each other than 4 GB.
  static bool fits(const cuda::KvLayout& kv) {
    const auto is_whole = [](const cuda::KvPlane& plane) {
      return plane.dim == D && plane.cell == kRowBytes && plane.page >= 0 && plane.page >> 32 == 0;
    };
    return kv.page_cells >= kKeysOfTile && is_whole(kv.k) && is_whole(kv.v);
  }
  // `keys` and `values` are the head's first ones in the first page, and `pages` are the sequence's.
  __device__ __forceinline__ WholeTiles(const char* keys, const char* values, const int32_t* pages)
      : keys_(keys + threadIdx.x % 32 * 16), values_(values + threadIdx.x % 32 * 16), pages_(pages) {}
  // Loads the tile that begins with a token.
  __device__ __forceinline__ void load(const cuda::KvLayout& kv, Side side, uint32_t token, uint32_t tile) const {
    const bool values = side == Side::kValues;
    constexpr uint32_t kPieces = D / 8, kRowsAtOnce = 32 / kPieces;
    static_assert(8 % kRowsAtOnce == 0, "numbers of rows add up by an exclusive or");
    const uint32_t shift = 31 - static_cast<uint32_t>(__clz(static_cast<int>(kv.page_cells)));
    const auto page = static_cast<uint32_t>(pages_[token >> shift]);
    const auto page_bytes = static_cast<uint32_t>(values ? kv.v.page : kv.k.page);
    const char* from =
        (values ? values_ : keys_) + uint64_t{page} * page_bytes + (token & (kv.page_cells - 1)) * kRowBytes;
    const uint32_t own = tile_offset<D>(threadIdx.x % 32 / kPieces, threadIdx.x % kPieces);
#pragma unroll
    for (uint32_t r = 0; r < kKeysOfTile; r += kRowsAtOnce) {
      cuda::copy_async(tile + (own ^ r % 8 * 16) + r * kRowBytes, from + r * kRowBytes);
    }
  }

 private:
  static constexpr uint32_t kRowBytes = kTileRowBytes<D>;
  const char *keys_, *values_;  // the lane's 16 bytes of the first copy
  const int32_t* pages_;
};

// ---- codes ----------------------------------------------------------------------------------------------------------
// A tile has 32 tokens, or 16 where rows are long: rows as they are stored, which lie as rows of fewer halves would,
// and after them the tokens' scales in fp16, or the zeros and the steps of the tile's keys by channel, (D) each.
template <uint32_t D, Codec C>
struct CodedTile {
  static constexpr uint32_t kColumns = D / C::kEights;  // a row takes the place of so many halves
  static constexpr uint32_t kKeys = kColumns > 64 ? 16 : 32;
  static constexpr uint32_t kScalesAt = kKeys * kTileRowBytes<kColumns>;
  static constexpr uint32_t kZerosAt = kScalesAt, kStepsAt = kZerosAt + D * sizeof(__half);
  static constexpr uint32_t kBytes =
      kKeysByChannel<C> ? kStepsAt + D * sizeof(__half) : kScalesAt + kKeys * sizeof(__half);

  // Returns the scale of one of a tile's tokens.
  static __device__ __forceinline__ float scale(uint32_t tile, uint32_t token) {
    const uint32_t bits = cuda::load_shared_2(tile + kScalesAt + token * sizeof(__half));
    return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
  }
};

// This is the size of a tile in the ring of a decoding warp: kKeys keys or values,
// kBytes bytes. C is void for fp16 and bf16.
template <uint32_t D, class C>
struct RingTile {
  static constexpr uint32_t kKeys = CodedTile<D, C>::kKeys, kBytes = CodedTile<D, C>::kBytes;
};
template <uint32_t D>
struct RingTile<D, void> {
  static constexpr uint32_t kKeys = kKeysOfTile, kBytes = kKeysOfTile * kTileRowBytes<D>;
};

// This says where the codes and scales of a KV head of a sequence are.
struct CodedRows {
  const cuda::KvPlane& plane;
  const char *rows, *scales;  // the head's begin here in the first page
  const int32_t* pages;
  uint32_t page_cells, columns;
};

// Loads codes and scales. Tiles begin at multiples of their size, so that a page of as many cells has the whole of one,
// and the page of a sequence that has one alone is looked up once. kChannels: of keys by channel the tile's zeros and
// steps instead; groups are whole tiles, and rows of zeros and steps lie at multiples of 16 bytes, as rows of codes do.
template <uint32_t D, Codec C, bool kChannels = false>
class CodedTileLoader {
 public:
  using Tile = CodedTile<D, C>;
  __device__ __forceinline__ explicit CodedTileLoader(const CodedRows& from) : from_(from) {
    const cuda::KvPlane& plane = from.plane;
    const uint64_t odd = reinterpret_cast<uintptr_t>(from.scales) | static_cast<uint64_t>(plane.scale_page);
    whole_ = from.page_cells >= Tile::kKeys && plane.dim == D &&
             (kChannels || (plane.scale_cell == sizeof(__half) && odd % 16 == 0));
    const int64_t page = from.columns == 1 ? from.pages[0] : 0;
    const uint32_t row = threadIdx.x % 32 / kPieces, piece = threadIdx.x % kPieces;
    rows_ = from.rows + page * plane.page + row * plane.cell + piece * 16;
    scales_ = from.scales + page * plane.scale_page + (kChannels ? 0 : threadIdx.x % 32 * 16);
  }
  __device__ __forceinline__ void operator()(uint32_t tile, const TileTokens& t) const {
    if (!whole_ || t.token < t.from || t.token + Tile::kKeys > min(t.to, t.end)) return load_slowly(tile, t);
    const cuda::KvPlane& plane = from_.plane;
    const uint32_t lane = threadIdx.x % 32, row = lane / kPieces, piece = lane % kPieces;
    const auto cell = static_cast<uint32_t>(plane.cell);
    const char *rows = rows_, *scales = scales_;
    uint32_t inside = t.token;
    if (from_.columns != 1) {
      const int64_t page = page_of(t.token);
      rows += page * plane.page;
      scales += page * plane.scale_page;
      inside &= from_.page_cells - 1;
    }
    rows += uint64_t{inside} * cell;
#pragma unroll
    for (uint32_t r = 0; r < Tile::kKeys; r += kRowsAtOnce, rows += uint64_t{kRowsAtOnce} * cell) {
      cuda::copy_async(tile + tile_offset<Tile::kColumns>(r + row, piece), rows);
    }
    if constexpr (kChannels) {
      load_channels(tile, scales, inside);
    } else if (lane < Tile::kKeys * sizeof(__half) / 16) {
      cuda::copy_async(tile + Tile::kScalesAt + 16 * lane, scales + inside * sizeof(__half));
    }
  }

 private:
  static constexpr uint32_t kPieces = Tile::kColumns / 8, kRowsAtOnce = 32 / kPieces;

  __device__ int32_t page_of(uint32_t token) const { return from_.pages[token >> shift_of(from_.page_cells)]; }
  // Returns the logarithm of a power of two.
  static __device__ uint32_t shift_of(uint32_t power) {
    return 31 - static_cast<uint32_t>(__clz(static_cast<int>(power)));
  }
  // Loads the zeros and the steps of a group, the one of a cell of a page. scales: of the page.
  __device__ __forceinline__ void load_channels(uint32_t tile, const char* scales, uint32_t inside) const {
    constexpr uint32_t kOfZeros = D / 8;  // pieces of 16 bytes
    const cuda::KvPlane& plane = from_.plane;
    const char* zeros = scales + (inside >> shift_of(plane.group)) * plane.scale_cell;
#pragma unroll
    for (uint32_t i = threadIdx.x % 32; i < 2 * kOfZeros; i += 32) {
      const uint32_t to = tile + Tile::kZerosAt + 16 * i, piece = i % kOfZeros;
      if (piece * 8 < plane.dim) {
        cuda::copy_async(to, zeros + (i < kOfZeros ? 0 : plane.dim * sizeof(__half)) + 16 * piece);
      } else {
        cuda::store_zeros(to);
      }
    }
  }
  // Loads the tile piece by piece.
  __device__ void load_slowly(uint32_t tile, const TileTokens& t) const {
    const uint32_t past = t.token + Tile::kKeys;
    if (past <= t.end && (past <= t.from || t.token >= t.to)) return;  // all are left alone
    const cuda::KvPlane& plane = from_.plane;
    const auto is_own = [&](uint32_t token) { return token < t.end && token >= t.from && token < t.to; };
    // The lane has its own token's scale, which comes while rows are asked for.
    const uint32_t own_row = threadIdx.x % 32, own_token = t.token + own_row;
    const bool scales_it = !kChannels && own_row < Tile::kKeys && (is_own(own_token) || own_token >= t.end);
    __half scale = __ushort_as_half(0);
    if (scales_it && own_token < t.end) {
      const uint32_t inside = own_token & (from_.page_cells - 1);
      scale = *reinterpret_cast<const __half*>(from_.scales + page_of(own_token) * plane.scale_page +
                                               inside * plane.scale_cell);
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x % 32; i < Tile::kKeys * kPieces; i += 32) {
      const uint32_t r = i / kPieces, piece = i % kPieces, token = t.token + r;
      const uint32_t to = tile + tile_offset<Tile::kColumns>(r, piece);
      if (token >= t.end || piece * 8 * C::kEights >= plane.dim) {
        cuda::store_zeros(to);
      } else if (is_own(token)) {
        const uint32_t inside = token & (from_.page_cells - 1);
        cuda::copy_async(to, from_.rows + page_of(token) * plane.page + inside * plane.cell + piece * 16);
      }
    }
    if (kChannels && is_own(t.token)) {
      load_channels(tile, from_.scales + page_of(t.token) * plane.scale_page, t.token & (from_.page_cells - 1));
    }
    if (scales_it) cuda::store_shared_2(tile + Tile::kScalesAt + own_row * sizeof(__half), __half_as_ushort(scale));
  }

  const CodedRows from_;
  bool whole_;                  // tiles whose tokens are all wanted are in one page, at multiples of 16 bytes
  const char *rows_, *scales_;  // the lane begins here: at token 0, or at the first page's first
};
static_assert(TileLoading<TileLoader<128>> && TileLoading<CodedTileLoader<128, Int8Bytes>>);

}  // namespace tenon::flash
