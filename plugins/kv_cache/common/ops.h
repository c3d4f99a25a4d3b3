// These are a slot cache's ops: what a step appends, the places of a ring, the survivors' cells, and a copy of its
// sequences with other codecs. emit_*() and the copies are each device's own: ops.cc, ops.cu.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
// Returns those of a view without a tail.
inline std::vector<tenon_operand> append_operands(const tenon_kv_view& to, tenon_tid k, tenon_tid v, sdk::Recorder& r) {
  return sdk::operands_by(kAppendOperands, {{kAppendK, k, TENON_READ},
                                            {kAppendV, v, TENON_READ},
                                            {kAppendKeys, to.k, TENON_WRITE_NEW},
                                            {kAppendValues, to.v, TENON_WRITE_NEW},
                                            {kAppendKeyScales, to.k_scale != 0 ? to.k_scale : to.k, TENON_WRITE_NEW},
                                            {kAppendValueScales, to.v_scale != 0 ? to.v_scale : to.v, TENON_WRITE_NEW},
                                            {kAppendPages, to.pages, TENON_READ},
                                            {kAppendLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                            {kAppendPlace, to.place, TENON_READ},
                                            {kAppendSlot, r.step(TENON_STEP_SLOT), TENON_READ}});
}
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
inline std::vector<tenon_operand> dequant_operands(const tenon_kv_view& from, const tenon_kv_view& to,
                                                   sdk::Recorder& r) {
  return sdk::operands_by(kDequantOperands, {{kFromK, from.k, TENON_READ},
                                             {kFromV, from.v, TENON_READ},
                                             {kFromKeyScales, from.k_scale != 0 ? from.k_scale : from.k, TENON_READ},
                                             {kFromValueScales, from.v_scale != 0 ? from.v_scale : from.v, TENON_READ},
                                             {kToK, to.k, TENON_WRITE},
                                             {kToV, to.v, TENON_WRITE},
                                             {kPages, from.pages, TENON_READ},
                                             {kLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                             {kSeqSlot, r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                             {kSeqRow, r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                             {kKvLen, r.step(TENON_STEP_KV_LEN), TENON_READ},
                                             {kCopyPages, to.pages, TENON_READ}});
}
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
