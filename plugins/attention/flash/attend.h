// The op that Flash records.
//
// Work is cut into blocks of rows, KV heads and, when there are few rows, splits of positions; a block's queries are
// all query heads of a KV head for all its rows, so that keys and values are converted once for all of them. Within a
// split the softmax runs online over blocks of 64 keys; splits are folded together in order, by phase 1 or, when a work
// item has all of them, as it goes. Splits and key blocks lie at fixed positions, hence a row's bits depend on neither
// bounds nor threads nor other rows.
//
// Online softmax: Milakov and Gimelshein, arXiv:1805.02867. Tiles: Dao et al., arXiv:2205.14135.
#pragma once

#include <cstdint>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/recorder.h"

namespace tenon::flash {

// Phases: chunk = split + splits * (head + kv_heads * row block); then, if splits are cut, head + kv_heads * row.
struct AttendArgs {
  sdk::cpu::KvLayout kv;
  int64_t q_row, out_row, lse_row;  // bytes
  uint32_t kv_heads, group;         // query heads of a KV head
  uint32_t rows, kv_len;            // bounds
  uint32_t block_rows, reserved;    // rows of a work item
  uint32_t splits, split;           // work items along the positions; positions of a split
  uint32_t window, tree;            // tree: the mask is by PARENT
  uint32_t has_sink, want_lse;
  uint32_t isa, padded;  // floats of an accumulator
  float scale, softcap;
};
enum AttendOperand {
  kQ,
  kOut,
  kKeysPlane,
  kValuesPlane,
  kPages,
  kLive,
  kPos,
  kSlot,
  kParent,
  kKvLen,
  kSink,  // Q if there is none
  kLse    // out if it is not wanted
};

uint64_t scratch_bytes(const AttendArgs& a);         // partial results of the splits
uint64_t thread_scratch_bytes(const AttendArgs& a);  // of one work item
void attend(const AttendArgs& a, const sdk::Part& part);

}  // namespace tenon::flash
