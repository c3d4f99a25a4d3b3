// The op that begins a step of kv_cache.h2o, for one layer: it decides which cells of each sequence and KV head go on, and which
// cells the step's rows take. Each device has its own: evict.cc, evict.cu.
//
// For each sequence of the step and each KV head by itself:
//   1. Cells are freed whose position the sequence no longer has: KV_LEN went back (rejected rows), or is 0 (a new sequence).
//   2. The softmax weights of the step before are added to the cells' scores and set to 0.
//   3. While more than `budget` cells are in use, the one of the least score is freed, the oldest of those that have it; the newest
//      `recent` positions are exempt.
//   4. Each row takes the first cell that is free.
#pragma once

#include <cstdint>
#include <span>

#include "tenon/sdk/recorder.h"

namespace tenon::h2o {

struct EvictArgs {
  uint32_t heads, page_cells, cells;  // cells: that may be used of page_cells
  uint32_t budget, recent, seqs;
};
enum EvictOperand {
  kPos,      // i32 (slots, heads, page_cells): the position that a cell holds, or -1
  kPlace,    // i32 (rows, heads)
  kWeights,  // f32 (slots, heads, page_cells), as attention left them
  kScores,   // f32 (slots, heads, page_cells)
  kLive,
  kSeqSlot,
  kSeqRow,
  kKvLen
};
void emit_evict(sdk::Recorder& r, std::span<const tenon_operand> operands, const EvictArgs& args);

}  // namespace tenon::h2o
