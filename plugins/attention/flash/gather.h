// Views whose cells do not lie in the order of positions (rings, tables, chosen spans) are read by flash's fast kernels
// after this: what a step's rows see of a layer is copied, in halves, to where it lies as a plain linear cache. These
// copies are a part of the layer's attention, and the next layer's take their place.
//
// A copied sequence has its cells one after the other, in the order in which rows are to see them, and its rows stand
// at the copied places of their own cells. So a row at place n sees places up to n, and a window is one of places.
//
//   rings, in steps of few rows of a sequence   every row is a copied sequence: what it sees, keys turned for it
//   rings, in longer steps                      what a sequence's rows see, from the first row's window on; the
//                                               ring's first cells before a window are apart (attend_to_first)
//   tables                                      the old cells of a sequence in the order of their numbers, then its rows
//   spans, in steps of few rows of a sequence   every row is a copied sequence, for each KV head
//
// The naive twin is exact.cuh, which reads all views where they are.
#pragma once

#include "../common/view_operands.h"
#include "tenon/cuda/op.h"

namespace tenon::flash {

// A copy has pages of so many cells.
inline constexpr uint32_t kCopiedPage = 128;
// A table has at most so many cells: a block has a bit for each.
inline constexpr uint32_t kMostTableCells = 1 << 14;

struct GatherArgs : attention::ViewArgs {
  uint32_t row_apart;      // 1: each row is a copied sequence, else each sequence is
  uint32_t copied;         // there is room for so many sequences
  uint32_t sequence_rows;  // each has so many rows at most
  uint32_t room, columns;  // a copied sequence has room for so many cells, in so many pages
  // Its first page comes so many after that of the sequence before it, and 1: as many more as that one's rows fill.
  uint32_t pages_apart, and_rows, all_pages;
  uint32_t spots;  // a sequence has so many spots at most; some may be seen by no row
  uint32_t turns;  // 1: keys are kept before rope, so keys and queries are turned here
  int32_t middle;  // rings in longer steps: the rope's index of a place is so much less
  uint32_t lists;  // 1: the cell of each place is noted, and the weights of the cells that nobody sees are zeros
};

enum GatherOperand {
  kCopiedKeys = attention::kViewOperands,  // (pages, heads, kCopiedPage, dim) in halves
  kCopiedValues,
  kCopiedPages,    // i32 (copied sequences, columns)
  kCopiedLive,     // u32 (4)
  kCopiedPos,      // i32 (heads, rows): places
  kCopiedSlot,     // i32 (rows)
  kCopiedSeqSlot,  // i32 (copied sequences)
  kCopiedSeqRow,   // i32 (copied sequences + 1)
  kCopiedKvLen,    // i32 (copied sequences)
  kTurnedQueries,  // f32 (rows, query heads, dim), if keys are kept before rope; else Q
  kCellOf,         // i32 (copied sequences, heads, room): the cell of a place, if there are lists; else Q
  kCellWeights,    // the view's weights, if there are lists; else Q
  kGatherOperands
};
void gather(const GatherArgs& a, const cuda::Launch& l);

// This op attends to a ring's first cells, as far as they are not in the copy of a longer step: those before a row's
// window. It leaves its results and the logarithms of its sums, which attention over the copy joins. Its operands are
// those of the view, then:
enum FirstOperand { kLearnedSinks = attention::kViewOperands, kFirstOperands };
void attend_to_first(const attention::ViewArgs& a, const cuda::Launch& l);

// This op adds up softmax weights by cell, those of keys that were copied from a table.
struct CellWeightArgs {
  int64_t q_row;  // in floats
  uint32_t q_heads, group, heads, dim;
  uint32_t codec;  // the halves of the copy
  uint32_t rows, seqs, room, capacity, weight_rows;
  float scale, softcap;
};
enum CellWeightOperand {
  kWeightQuery,
  kWeightKeys,    // the copy's
  kWeightCellOf,  // see kCellOf
  kWeightPos,     // kCopiedPos
  kWeightSums,    // f32 (rows, query heads): logarithms to base 2
  kWeightLive,
  kWeightSeqSlot,
  kWeightSeqRow,
  kWeights,
  kCellWeightOperands
};
void cell_weights(const CellWeightArgs& a, const cuda::Launch& l);

}  // namespace tenon::flash
