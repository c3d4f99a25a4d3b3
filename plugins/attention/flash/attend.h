// Flash records these ops.
//
// Work is cut into blocks of rows, KV heads and, when there are few rows, splits of spots. A SPOT is what a row
// may see: a position in linear caches and rings, a cell where a table says the positions. A block's queries are
// all query heads of a KV head for all its rows, so that keys and values are converted once for all of them.
// Within a split the softmax runs online over blocks of 64 spots; splits are folded together in order, by phase 1
// or, when a work item has all of them, as it goes. Splits and blocks lie at fixed spots, hence a row's bits
// depend on neither bounds nor threads nor other rows; and because a branch of a tree is walked by its positions,
// it gives the bits that it gives as a chain.
//
// The online softmax comes from Milakov and Gimelshein, arXiv:1805.02867; tiles come from Dao et al., arXiv:2205.14135.
#pragma once

#include <cstdint>

#include "../common/cpu_ops.h"
#include "tenon/sdk/recorder.h"

namespace tenon::flash {

// Phase 0 has chunks split + splits * (head + kv_heads * row block); phase 1, if splits are cut, head + kv_heads * row.
struct AttendArgs : attention::ViewArgs {
  uint32_t kv_heads;
  uint32_t spots;       // a sequence has so many; a ring has no end: 0
  uint32_t block_rows;  // a work item has so many rows
  // Work items along the spots, and spots of a split. Splits [0, sink_splits) of a ring are the sinks', and the others
  // are taken in turns.
  uint32_t splits, split, sink_splits;
  uint32_t isa;     // kernels() takes this index
  uint32_t padded;  // an accumulator has so many floats
};
using enum attention::ChainOperand;
using enum attention::ViewOperand;

uint64_t scratch_bytes(const AttendArgs& a);         // the splits' partial results take so many
uint64_t thread_scratch_bytes(const AttendArgs& a);  // one work item takes so many
void attend(const AttendArgs& a, const sdk::Part& part);

// Sums the softmax weights of each sequence's last weight_rows rows, by cell. A chunk is a KV head of a sequence.
uint64_t weights_scratch_bytes(const AttendArgs& a);  // each thread has so many
void sum_weights(const AttendArgs& a, const sdk::Part& part);

}  // namespace tenon::flash
