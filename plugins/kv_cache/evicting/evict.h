// This op begins a step of a cache that evicts, for one layer: it decides which cells of each sequence and KV head go
// on, and which cells the step's rows take. Each device has its own: evict.cc, evict.cu.
//
// For each sequence of the step and each KV head by itself:
//   1. Cells are freed whose position the sequence no longer has: KV_LEN went back (rejected rows), or is 0 (a new
//      sequence).
//   2. The softmax weights of the step before are added to the cells' scores and set to 0.
//   3. If more cells are in use than tokens_kept() says, so many are freed that it is right. The newest `recent`
//      positions are exempt. The pooled score of another is the largest score of those at most `around` places from it
//      in the order of positions, exempt ones apart. The least pooled score goes first, of equals the least score, then
//      the oldest.
//   4. Each row takes the first cell that is free.
//   5. Scores are multiplied by share_kept(): the step's rows take the place of as many that weighed before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tenon/sdk/recorder.h"

namespace tenon::evicting {

// A policy evicts by this rule; all but `observe` and `around` are tokens.
struct Rule {
  uint32_t most;     // are in use before the step's rows come
  uint32_t cut;      // are kept where a prompt has ended, and where text has filled `most`
  uint32_t recent;   // newest ones, which are never dropped; at most `cut`
  uint32_t observe;  // rows whose weights count; 0: all since a token is in the cache
  uint32_t around;   // places to either side of a token whose scores count for it
};

// rows: the step's of the sequence. prompt: rows of a prompt came, and none alone since. That a prompt has ended
// is seen by the first step of a single row.
constexpr uint32_t tokens_kept(const Rule& rule, uint32_t used, uint32_t rows, bool prompt) {
  return rows == 1 && (prompt || used > rule.most) ? rule.cut : rule.most;
}
// A step of as many rows as are observed is taken for a piece of a prompt: drafts are fewer.
constexpr bool prompt_after(const Rule& rule, uint32_t rows, bool prompt) {
  return rows != 1 && (prompt || (rule.observe != 0 && rows >= rule.observe));
}
constexpr float share_kept(const Rule& rule, uint32_t rows) {
  if (rule.observe == 0) return 1;
  return static_cast<float>(rule.observe - std::min(rows, rule.observe)) / static_cast<float>(rule.observe);
}

struct EvictArgs {
  Rule rule;
  uint32_t heads, page_cells, cells;  // cells: that may be used of page_cells
  uint32_t seqs, reserved = 0;
};
enum EvictOperand {
  kPos,      // i32 (slots, heads, page_cells): the position that a cell holds, or -1
  kPlace,    // i32 (rows, heads)
  kWeights,  // f32 (slots, heads, page_cells), as attention left them
  kScores,   // f32 (slots, heads, page_cells)
  kPrompt,   // i32 (slots, heads): 1 as prompt_after() says
  kLive,
  kSeqSlot,
  kSeqRow,
  kKvLen,
  kEvictOperands
};
void emit_evict(sdk::Recorder& r, std::span<const tenon_operand> operands, const EvictArgs& args);

}  // namespace tenon::evicting
