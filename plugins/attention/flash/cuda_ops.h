// Flash records these ops on a GPU; they share arguments, operands, and the rule which kernels are for which
// heads. Queries are f32 in memory. Keys and values are fp16 or bf16, and so are the operands of the
// products, whose sums and whose softmax are f32. int8, fp8 and int4 with scales in fp16 become fp16 before
// they are multiplied, and so do keys by channel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "../common/view_operands.h"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/tiled_rows.cuh"
#include "tenon/sdk/live.h"

namespace tenon::flash {

inline constexpr uint32_t kMostDim = 256;                        // a head has at most so many dimensions
inline constexpr uint32_t kDecodeRows = 16;                      // the decode op takes so many rows of a sequence
inline constexpr uint32_t kTileRows = 64, kWgmmaTileRows = 128;  // a block of the two prefill kernels takes so many
// In a step of up to so many rows, or of so many sequences of one row each, a row has the bits that it has alone.
inline constexpr uint32_t kSteadyRows = 16, kSteadySequences = 4;

// Groups of keys that share zeros and steps are whole multiples of so many: a tile of decoding's has keys of one group.
inline constexpr uint32_t kKeysOfGroup = 32;

enum class Out : uint32_t { kF32, kF16, kBf16 };

// This is a plain struct that is kept in the program. The ROPE that was claimed turns queries, and keys as they are
// appended. The bound of sequences is at least 1.
struct GpuArgs : attention::ViewArgs {
  uint32_t rows_per_seq, kv_len;  // bounds
  uint32_t single;                // 1: every sequence of the step has one row at most
  uint32_t kv_pages;              // the planes have so many
  uint32_t few_rows;              // prefill passes over sequences of at most so many rows
  uint32_t tile_rows;             // prepare lists tiles of so many rows for prefill (prefill.cuh); 0: it lists none
  // These ops of the prologue are claimed. A row of Q is then followed by those of K and V.
  uint32_t append, normed;  // KV_APPEND, QK_NORM
  uint32_t rotates;         // 1: what is appended is stored rotated, so queries and the result are rotated too
  float eps;                // the norm's epsilon
  Out out;                  // the result's format; halves are for the product after attention, and may be tiled
  cuda::Tiled out_order;
  // Decoding alone has these, as set_splits() decides.
  uint32_t splits;        // a row is cut into so many at most
  uint32_t granule;       // a split's size is a multiple of so many positions
  uint32_t granules;      // a row is left to one cluster while its teams have no more granules than this
  uint32_t cluster_log2;  // 1 << cluster_log2 blocks are a cluster, which folds their splits through shared memory
  uint32_t per_head;      // 2^31 / group, rounded up: it divides by one multiplication
  uint32_t most_splits;   // any row may have so many
  uint32_t split_blocks;  // so many blocks of the grid share a row's splits
  uint32_t many_rows;     // 1: the step has so many rows that a row's splits follow from the step's shape
  uint32_t depth;         // a warp that is a team has a ring of so many stages, see TeamShape; 0: blocks are teams
  uint32_t whole_tiles;   // 1: WholeTiles loads what it can; known when launched
  uint32_t prefetch;      // 1: older keys and values may be read before the wait; known when launched
  uint32_t copied_rows;   // what is read is a copy (gather.h): POS has places, (heads, copied_rows); 0: it is the cache
  uint32_t first_head;    // wgmma answers the query heads of kv.heads KV heads, from this query head on
};

using enum attention::ChainOperand;
// These follow them. Q stands in the place of those that are not there.
enum GpuOperand {
  kQWeight = attention::kChainOperands,  // the norm's weights
  kKWeight,
  kSinks,      // f32[q_heads]: the logits of learned sinks
  kConverted,  // f16 or bf16 (rows, q_heads, k_dim): what prepare makes of Q for prefill
  kTiles,      // i32 (1 + tiles, 4), if there is a list: see list_tiles()
  kOperands
};

using enum sdk::LiveWord;

struct GpuPointers {
  float* q;                           // (rows, q_heads, k_dim), then K and V if they are appended; only read
  float* out;                         // (rows, q_heads, v_dim), or halves
  void *keys, *values;                // these are planes of the cache
  const int32_t* pages;               // (slots, columns)
  const uint32_t* live;               // by LiveWord
  const int32_t *pos, *slot;          // by row
  const int32_t *seq_slot, *seq_row;  // by sequence
  const int32_t* kv_len;              // by slot: so many tokens came before the step
  const float* rope;                  // (positions, rotated / 2) of (cos, sin)
  const float *q_weight, *k_weight;   // nullptr: there is no norm
  const float* sinks;                 // (q_heads), or nullptr
  void* converted;                    // (rows, q_heads, k_dim)
  void *key_scales, *value_scales;
  float* sums;             // (rows, q_heads)
  int4* tiles;             // the list of tiles, or nullptr
  const int32_t* out_row;  // by out row; nullptr: all rows are wanted
};
// Returns a launch's operands, for every kernel alike.
GpuPointers pointers(const GpuArgs& a, const cuda::Launch& l);

// Returns the larger of a layer's two head sizes, for which kernels are compiled: a multiple of 8 up to kMostDim.
inline uint32_t head_dim(const GpuArgs& a) {
  return std::max(a.kv.k.dim, a.kv.v.dim);
}
// Says whether a decoding kernel for heads of that size can rotate: the lanes of a warp have the whole of a result.
constexpr bool can_rotate(uint32_t dim) {
  return dim == 64 || dim == 128;
}
// Calls f.operator()<D>() with the least of the sizes that holds a dimension; the last one must.
template <uint32_t D, uint32_t... kLarger, class F>
auto with_dim(uint32_t dim, const F& f) {
  if constexpr (sizeof...(kLarger) == 0) {
    return f.template operator()<D>();
  } else {
    return dim <= D ? f.template operator()<D>() : with_dim<kLarger...>(dim, f);
  }
}

// Returns the type that a cache's codec is multiplied in: bf16, or fp16 for all others.
constexpr tenon_format half_of(uint32_t codec) {
  return codec == TENON_BF16 ? TENON_BF16 : TENON_F16;
}
// Returns a plane of halves whose pages have so many cells of so many heads, one head after the other.
inline cuda::KvPlane plane_of_halves(tenon_format half, uint32_t dim, uint32_t heads, uint32_t cells) {
  const int64_t cell = int64_t{dim} * tenon_format_block(half).bytes, head = cell * cells;
  return {.page = head * heads,
          .cell = cell,
          .head = head,
          .scale_page = 0,
          .scale_cell = 0,
          .scale_head = 0,
          .codec = static_cast<uint32_t>(half),
          .scale = 0,
          .dim = dim,
          .group = 0};
}
// Calls f with an element of it.
template <class F>
void with_half(uint32_t codec, F&& f) {
  if (half_of(codec) == TENON_F16) return f(__half{});
  f(__nv_bfloat16{});
}

// In steps of at most kDecodeRows rows a sequence one kernel does all: rope, append, attention, and the combination of
// splits.
void decode(const GpuArgs& a, const cuda::Launch& l);
void set_splits(GpuArgs& a, uint32_t units, uint32_t arch, uint32_t granule);
uint32_t decode_shared_bytes(uint32_t dim);
uint64_t decode_scratch_bytes(const GpuArgs& a);
uint64_t decode_zeroed_bytes(const GpuArgs& a);

// These two are for steps of any number of rows. prepare() does rope, append and conversion of the queries; prefill()
// does attention for sequences of more than few_rows rows. The others are decode's, once everything is appended.
void prepare(const GpuArgs& a, const cuda::Launch& l);
void prefill(const GpuArgs& a, const cuda::Launch& l);
// These prefill through wgmma, for heads of 64 or 128 dimensions on sm_90a. The op may answer some heads only.
bool can_prefill_wgmma(const GpuArgs& a, uint32_t arch);
void prefill_wgmma(const GpuArgs& a, const cuda::Launch& l);

}  // namespace tenon::flash
