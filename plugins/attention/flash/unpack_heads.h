// Long steps over codes: the keys and values of some KV heads become fp16 once for all rows of the step, where they lie
// as those of a plain cache. wgmma's kernel for plain caches attends to these heads, and the next ones take their place.
//
// The copy of a sequence has its tokens at their own positions, in one page. Tokens that no row sees, and sequences
// that prefill passes over, are left as they are.
//
// Example: 8 KV heads of 128 dimensions, a sequence of up to 131072 tokens, 8192 rows: a head takes 64 MiB, and two are
// unpacked at one time.
#pragma once

#include "cuda_ops.h"

namespace tenon::flash {

// Returns how many KV heads of an op over codes are unpacked at one time; 0: codes are read as they are, since the copy
// would be larger than what else a step of so many rows holds, or so few heads would not fill the GPU.
uint32_t heads_at_once(const GpuArgs& a, uint32_t units);

// This op unpacks KV heads [first_head, first_head + heads).
struct UnpackArgs {
  GpuArgs cache;
  uint32_t first_head, heads;
  uint32_t room;  // a sequence of the copy has room for so many tokens
};
// Operands of the cache are those of GpuArgs.
enum UnpackOperand {
  kUnpackedKeys = kOperands,  // f16 (sequences, heads, room, dim)
  kUnpackedValues,
  kUnpackedPages,  // i32 (slots): a slot's sequence
  kUnpackOperands
};
void unpack_heads(const UnpackArgs& a, const cuda::Launch& l);

// Returns how many tokens a sequence of the copy has room for, and how the copy of so many heads lies in memory.
uint32_t unpacked_room(const GpuArgs& a);
sdk::KvLayout unpacked_layout(const GpuArgs& a, uint32_t heads);

}  // namespace tenon::flash
