// These are a slot cache's ops: what a step appends, the places of a ring, the survivors' cells, and a copy of its
// sequences with other codecs. emit_*() and the copies are each device's own: ops.cc, ops.cu.
#pragma once

#include <cstdint>
#include <span>

#include "tenon/sdk/kv_layout.h"
#include "tenon/sdk/recorder.h"

namespace tenon::slot_cache {

inline constexpr uint32_t kAppendRows = 4;     // a chunk has so many
inline constexpr uint32_t kDequantCells = 64;  // a chunk has so many

using Operands = std::span<const tenon_operand>;

struct AppendArgs {
  sdk::KvLayout kv;
  int64_t k_row, v_row;         // bytes
  uint32_t cells, simd;         // cells: a sequence has so many
  uint32_t rows, has_tail = 0;  // has_tail: 1: what is appended is written to another view too
  sdk::KvLayout tail = {};
  uint32_t codes_groups = 0, reserved = 0;  // codes_groups: 1: the append does what emit_key_groups() would

  constexpr bool rotates() const { return (kv.flags & sdk::kKvHadamard) != 0; }
};
enum AppendOperand {
  kAppendK,
  kAppendV,
  kAppendKeys,
  kAppendValues,
  kAppendKeyScales,  // these are the planes again where the codec has none
  kAppendValueScales,
  kAppendPages,
  kAppendLive,
  kAppendPlace,
  kAppendSlot,
  kAppendOperands,
  kAppendTailKeys = kAppendOperands,  // a view with a tail has these besides
  kAppendTailValues,
  kAppendTailPages,
  kAppendWithTail
};
void emit_append(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const AppendArgs& args);

// These are the arguments of the op that codes groups of keys that share zeros and steps: a group is coded from the
// tail when a row of the step is its last.
struct KeyGroupArgs {
  sdk::KvLayout kv, tail;
  uint32_t rows, reserved = 0;
};
enum KeyGroupOperand {
  kGroupTailKeys,
  kGroupTailPages,
  kGroupKeys,
  kGroupChannels,
  kGroupPages,
  kGroupLive,
  kGroupPlace,
  kGroupSlot,
  kKeyGroupOperands
};
// Says whether an append under such bounds can do it by itself.
bool append_codes_groups(const tenon_bounds& b);
void emit_key_groups(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const KeyGroupArgs& args);

// The places of a step's rows in a ring are made from their orders.
struct PlaceArgs {
  sdk::KvLayout kv;
  uint32_t rows, reserved = 0;
};
enum PlaceOperand { kPlaces, kOrders, kPlaceLive, kPlaceOperands };
void emit_place(sdk::Recorder& r, Operands operands, const PlaceArgs& args);

// The cells of a layer's survivors become those of the orders from KV_LEN on, which are the places of the sequence's
// first rows. Survivors ascend, so no cell is written before it was read.
struct CommitArgs {
  sdk::KvLayout kv;
  uint32_t seqs, scale_bytes;
  uint32_t row_bytes[2];  // a head's K and V have so many bytes
};
enum CommitOperand {
  kCommitKeys,
  kCommitValues,
  kCommitKeyScales,
  kCommitValueScales,
  kCommitPages,
  kCommitLive,
  kCommitPlace,
  kCommitSeqSlot,
  kCommitSeqRow,
  kCommitAccepted,
  kCommitSurvivor,
  kCommitOperands
};
void emit_commit(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const CommitArgs& args);

struct DequantArgs {
  sdk::KvLayout from, to;
  uint32_t cells, seqs;  // the copy has room for `cells`; the step has `seqs`
  uint32_t simd;
  uint32_t all_cells = 0;  // 1: positions are in a table, so any cell may be in use; 0: those below the length
};
enum DequantOperand {
  kFromK,
  kFromV,
  kFromKeyScales,
  kFromValueScales,
  kToK,
  kToV,
  kPages,
  kLive,
  kSeqSlot,
  kSeqRow,
  kKvLen,
  kCopyPages,
  kDequantOperands
};
inline uint32_t dequant_blocks(const DequantArgs& a) {
  return (a.cells + kDequantCells - 1) / kDequantCells;
}
void emit_dequant(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const DequantArgs& args);

// This copies pieces of `bytes`, to_pitch and from_pitch apart; either side may be host memory.
struct Copy {
  void* to;
  const void* from;
  uint64_t bytes, pieces = 1, to_pitch = 0, from_pitch = 0;
};
void copy(const Copy& c, void* queue);  // enqueues it, and waits for its end if the queue is NULL
void finish(void* queue);               // waits until what was enqueued is done

}  // namespace tenon::slot_cache
