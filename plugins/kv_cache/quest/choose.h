// These ops keep summaries of a layer's pages and choose by them what each row of a step reads: each device has its
// own, choose.cc and choose.cu. A page is a span of the view (tenon/abi/kv_cache.h).
//
// A summary has the greatest and the least of each element of the keys of a page: (2, dim), in the cache's codec,
// which holds them exactly. With q the query, the sum over d of max(q[d] * greatest[d], q[d] * least[d]) is no
// less than q's product with any key of the page. That is one dot product of (2, dim), of the summary with q's
// positive elements and then its negative ones.
//
// For a row at position n, in page p = n / page, and a KV head, pages are chosen so:
//   1. Rows of a sequence that has more than kMostChoosing in the step read everything.
//   2. Pages p and p - 1 are read.
//   3. Of the pages before them as many more are read as there is room for: those of the largest sums of the bounds of
//      the query heads that share the KV head; of equal sums the older page.
// A row of rule 2 and 3 is at most kMostChoosing - 1 positions after the first row of its sequence in the step, and a
// page has no fewer cells: so the pages that rule 3 looks at are full, and of old cells alone. What is chosen for a row
// is therefore the same whether it comes alone or after others, and in whichever branch of a tree.
//
// Pages are summarized when they are full, by the step that fills them. Where a step's rows may have been
// taken back or moved since, the next one makes the summaries of their pages anew: `summarized` has, by
// sequence and KV head, the length where they begin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tenon/sdk/kv_layout.h"
#include "tenon/sdk/recorder.h"

namespace tenon::quest {

inline constexpr uint32_t kMostChoosing = 16;  // at most so many rows of a sequence in a step choose
inline constexpr uint32_t kAlways = 2;         // rule 2 chooses so many pages

using Operands = std::span<const tenon_operand>;

struct SummaryArgs {
  sdk::KvLayout kv;
  uint32_t page, pages;  // a page has so many cells, a sequence so many pages
  uint32_t seqs, simd;
};
enum SummaryOperand {
  kKeys,
  kCellPages,         // the view's table
  kSummariesOf,       // (slots, heads, pages, 2, dim)
  kSummarizedBefore,  // i32 (slots, heads)
  kSummaryLive,
  kSummarySeqSlot,
  kSummarySeqRow,
  kSummaryKvLen,
  kSummaryOperands
};
void emit_summarize(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const SummaryArgs& args);

struct ChooseArgs {
  int64_t q_row;          // each row of q begins so many floats after the one before
  uint32_t heads, group;  // each KV head has `group` query heads
  uint32_t dim, codec;    // the keys' dimensions and codec
  uint32_t page, pages, most_pages;
  uint32_t rows, seqs;        // bounds
  uint32_t rows_of_sequence;  // so many may choose: kMostChoosing or the bound
  uint32_t simd, reserved = 0;
};
enum ChooseOperand {
  kQ,
  kSummaries,
  kSummarized,  // becomes the length of the sequence before the step
  kChosen,      // i32 (rows, heads, 1 + most_pages)
  kLive,
  kPos,
  kSeqSlot,
  kSeqRow,
  kKvLen,
  kChooseOperands,
  kBounds = kChooseOperands,  // CUDA has this besides: order_of() the bounds, (seqs, rows_of_sequence, heads, pages)
  kChooseWithBounds
};
void emit_choose(sdk::Recorder& r, std::vector<tenon_operand> operands, const tenon_cost& cost, const ChooseArgs& args);

// Returns for a bound's bits a whole number. The numbers of bounds are in the bounds' order; a NaN has one as well.
constexpr uint32_t order_of(uint32_t bits) {
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

// Returns how many pages of a row at that position rule 3 looks at: those below it.
constexpr uint32_t pages_before(uint32_t position, uint32_t page, uint32_t pages) {
  const uint32_t own = position / page, first = own < kAlways - 1 ? 0 : own - (kAlways - 1);
  return first < pages ? first : pages;
}

}  // namespace tenon::quest
