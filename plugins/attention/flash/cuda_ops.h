// The ops that Flash records on a GPU. All read f32 queries; keys and values are f16 or bf16, and so are the operands
// of the products, whose sums and whose softmax are f32. Decoding also reads int8 with scales in f16, as f16.
#pragma once

#include <cstdint>

#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/op.h"

namespace tenon::flash {

inline constexpr uint32_t kMostDim = 256;
inline constexpr uint32_t kDecodeRows = 16;  // of a sequence: what the decode op takes
inline constexpr uint32_t kSteadyRows = 16;  // of a step: up to so many, a row's bits are those that it has alone

struct GpuArgs {
  cuda::KvLayout kv;
  int64_t q_row, out_row;                     // floats
  uint32_t q_heads, group;                    // group: query heads of a KV head
  uint32_t rows, rows_per_seq, seqs, kv_len;  // bounds
  uint32_t window, kv_pages;                  // pages: that the planes have
  float scale, softcap;
  // What of the prologue is claimed. The rows of Q are then followed by those of K and V.
  uint32_t append, normed;
  int32_t rotated, pairing;  // rotated 0: no rope
  float eps;
  // Of decoding, as set_splits() has it: splits that a row is cut into at most, and what their sizes are multiples of;
  // how many of them fold what they have made through their cluster; those of the grid; whether the step has so many rows
  // that a row's splits may depend on the step's shape; whether each warp is a team. prefetch: whether older keys and
  // values may be read before the wait, known when launched.
  uint32_t splits, granule, cluster, most_splits, of_many_rows, of_many_teams, prefetch;
};

enum GpuOperand {
  kQ,
  kOut,
  kKeys,
  kValues,
  kPages,
  kLive,
  kPos,
  kSlot,
  kSeqSlot,
  kSeqRow,
  kKvLen,
  kRope,     // from here on Q where there is none; f32[positions][rotated / 2][2]
  kQWeight,  // of the norm
  kKWeight,
  kKeyScales,  // of int8
  kValueScales,
  kConverted,  // f16 or bf16 (rows, q_heads, k_dim): what prepare makes of Q for prefill
  kOperands
};

struct GpuPointers {
  float *q, *out;  // q: only read
  void *keys, *values;
  const int32_t* pages;
  const uint32_t* live;
  const int32_t *pos, *slot, *seq_slot, *seq_row, *kv_len;
  const float *rope, *q_weight, *k_weight;  // weights: nullptr if there is no norm
  void* converted;
  void *key_scales, *value_scales;
};
GpuPointers pointers(const GpuArgs& a, const cuda::Launch& l);

// Calls f with an element of the cache's type.
template <class F>
void with_half(uint32_t codec, F&& f) {
  codec == TENON_F16 ? f(__half{}) : f(__nv_bfloat16{});
}

// One kernel for steps of at most kDecodeRows rows a sequence: rope, append, attention, and the combination of splits.
void decode(const GpuArgs& a, const cuda::Launch& l);
void set_splits(GpuArgs& a, uint32_t units, uint32_t arch, uint32_t granule);
uint32_t decode_shared_bytes(uint32_t dim);
uint64_t decode_scratch_bytes(const GpuArgs& a);
uint64_t decode_zeroed_bytes(const GpuArgs& a);

// For steps of any number of rows: rope, append and conversion of the queries; then attention.
void prepare(const GpuArgs& a, const cuda::Launch& l);
void prefill(const GpuArgs& a, const cuda::Launch& l);
// Prefill through wgmma, for heads of 64 or 128 dimensions on sm_90a.
bool can_prefill_wgmma(const GpuArgs& a, uint32_t arch);
void prefill_wgmma(const GpuArgs& a, const cuda::Launch& l);

}  // namespace tenon::flash
