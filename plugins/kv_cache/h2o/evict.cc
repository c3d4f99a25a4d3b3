// The op of evict.h on the CPU.
#include "evict.h"

#include <algorithm>
#include <string>

#include "tenon/sdk/error.h"
#include "tenon/sdk/live.h"

namespace tenon::h2o {
namespace {

using sdk::Part;

// A KV head of a sequence.
struct Line {
  int32_t* pos;  // (page_cells)
  float *weight, *score;
  int32_t kv_len;
};

// Steps 1 and 2; returns how many cells are in use.
uint32_t settle(const EvictArgs& a, const Line& line) {
  uint32_t used = 0;
  for (uint32_t c = 0; c < a.page_cells; ++c) {
    if (c >= a.cells || line.pos[c] >= line.kv_len) line.pos[c] = -1;
    line.score[c] = line.pos[c] < 0 ? 0 : line.score[c] + line.weight[c];
    line.weight[c] = 0;
    used += line.pos[c] >= 0 ? 1 : 0;
  }
  return used;
}

// The cell that is freed next; `cells` if all are exempt.
uint32_t least(const EvictArgs& a, const Line& line) {
  uint32_t found = a.cells;
  for (uint32_t c = 0; c < a.cells; ++c) {
    if (line.pos[c] < 0 || line.pos[c] >= line.kv_len - static_cast<int32_t>(a.recent)) continue;
    const bool less = found == a.cells || line.score[c] < line.score[found] ||
                      (line.score[c] == line.score[found] && line.pos[c] < line.pos[found]);
    if (less) found = c;
  }
  return found;
}

void evict_head(const EvictArgs& a, const Part& part, uint32_t seq, uint32_t head) {
  const int32_t slot = part.ptr<int32_t>(kSeqSlot)[seq];
  if (slot < 0) return;
  const size_t at = (static_cast<size_t>(slot) * a.heads + head) * a.page_cells;
  const Line line{part.ptr<int32_t>(kPos) + at, part.ptr<float>(kWeights) + at, part.ptr<float>(kScores) + at,
                  part.ptr<int32_t>(kKvLen)[slot]};
  for (uint32_t used = settle(a, line); used > a.budget; --used) {
    const uint32_t cell = least(a, line);
    if (cell == a.cells) break;
    line.pos[cell] = -1;
    line.score[cell] = 0;
  }
  const int32_t first = part.ptr<int32_t>(kSeqRow)[seq], end = part.ptr<int32_t>(kSeqRow)[seq + 1];
  uint32_t cell = 0;
  for (int32_t row = first; row < end; ++row) {
    while (cell < a.cells && line.pos[cell] >= 0) ++cell;
    if (cell == a.cells) throw sdk::Failed("none of " + std::to_string(a.cells) + " cells is free");
    line.pos[cell] = line.kv_len + row - first;
    part.ptr<int32_t>(kPlace)[static_cast<size_t>(row) * a.heads + head] = static_cast<int32_t>(cell);
  }
}

// A chunk is a KV head of a sequence.
void evict(const EvictArgs& a, const Part& part) {
  const uint32_t seqs = part.ptr<uint32_t>(kLive)[sdk::kLiveSeqs];
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    if (chunk / a.heads < seqs) evict_head(a, part, chunk / a.heads, chunk % a.heads);
  }
}

}  // namespace

void emit_evict(sdk::Recorder& r, std::span<const tenon_operand> operands, const EvictArgs& args) {
  r.emit<evict>({.name = "evict", .operands = operands, .chunks = {args.seqs * args.heads}}, args);
}

}  // namespace tenon::h2o
