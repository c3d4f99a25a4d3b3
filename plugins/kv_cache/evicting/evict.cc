// This is the op of evict.h on the CPU.
#include "evict.h"

#include <algorithm>
#include <string>

#include "tenon/sdk/error.h"
#include "tenon/sdk/live.h"

namespace tenon::evicting {
namespace {

using sdk::Part;

// This holds a KV head of a sequence.
struct Line {
  int32_t* pos;  // (page_cells)
  float *weight, *score;
  int32_t kv_len;
  uint32_t* order;  // (page_cells) cells that may be freed
  float* pooled;    // (page_cells)
};

// Does steps 1 and 2, returns how many cells are used. What is not a number counts nothing, so that there is an order.
uint32_t settle(const EvictArgs& a, const Line& line) {
  uint32_t used = 0;
  for (uint32_t c = 0; c < a.page_cells; ++c) {
    if (c >= a.cells || line.pos[c] >= line.kv_len) line.pos[c] = -1;
    const float sum = line.score[c] + line.weight[c];
    line.score[c] = line.pos[c] >= 0 && sum >= 0 ? sum : 0;
    line.weight[c] = 0;
    used += line.pos[c] >= 0 ? 1 : 0;
  }
  return used;
}

// The first n cells of line.order get their pooled scores.
void pool(const EvictArgs& a, const Line& line, uint32_t n) {
  if (a.rule.around != 0) {
    std::sort(line.order, line.order + n, [&](uint32_t x, uint32_t y) { return line.pos[x] < line.pos[y]; });
  }
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t first = i - std::min(i, a.rule.around), end = std::min(n, i + a.rule.around + 1);
    float most = line.score[line.order[first]];
    for (uint32_t j = first + 1; j < end; ++j) most = std::max(most, line.score[line.order[j]]);
    line.pooled[line.order[i]] = most;
  }
}

// Does step 3 for one line.
void free_least(const EvictArgs& a, const Line& line, uint32_t drop) {
  uint32_t n = 0;
  for (uint32_t c = 0; c < a.cells; ++c) {
    if (line.pos[c] >= 0 && line.pos[c] < line.kv_len - static_cast<int32_t>(a.rule.recent)) line.order[n++] = c;
  }
  pool(a, line, n);
  drop = std::min(drop, n);
  std::nth_element(line.order, line.order + drop, line.order + n, [&](uint32_t x, uint32_t y) {
    if (line.pooled[x] != line.pooled[y]) return line.pooled[x] < line.pooled[y];
    return line.score[x] != line.score[y] ? line.score[x] < line.score[y] : line.pos[x] < line.pos[y];
  });
  for (uint32_t i = 0; i < drop; ++i) {
    line.pos[line.order[i]] = -1;
    line.score[line.order[i]] = 0;
  }
}

void evict_head(const EvictArgs& a, const Part& part, uint32_t seq, uint32_t head) {
  const int32_t slot = part.ptr<int32_t>(kSeqSlot)[seq];
  if (slot < 0) return;
  const size_t of_head = static_cast<size_t>(slot) * a.heads + head, at = of_head * a.page_cells;
  auto* const order = part.thread_scratch<uint32_t>();
  const Line line{part.ptr<int32_t>(kPos) + at,
                  part.ptr<float>(kWeights) + at,
                  part.ptr<float>(kScores) + at,
                  part.ptr<int32_t>(kKvLen)[slot],
                  order,
                  reinterpret_cast<float*>(order + a.page_cells)};
  int32_t& flag = part.ptr<int32_t>(kPrompt)[of_head];
  const int32_t first = part.ptr<int32_t>(kSeqRow)[seq], end = part.ptr<int32_t>(kSeqRow)[seq + 1];
  const auto rows = static_cast<uint32_t>(end - first);
  const bool prompt = line.kv_len > 0 && flag != 0;
  const uint32_t used = settle(a, line), keep = tokens_kept(a.rule, used, rows, prompt);
  if (used > keep) free_least(a, line, used - keep);
  flag = prompt_after(a.rule, rows, prompt) ? 1 : 0;
  uint32_t cell = 0;
  for (int32_t row = first; row < end; ++row) {
    while (cell < a.cells && line.pos[cell] >= 0) ++cell;
    if (cell == a.cells) throw sdk::Failed("none of " + std::to_string(a.cells) + " cells is free");
    line.pos[cell] = line.kv_len + row - first;
    part.ptr<int32_t>(kPlace)[static_cast<size_t>(row) * a.heads + head] = static_cast<int32_t>(cell);
  }
  const float share = share_kept(a.rule, rows);
  for (uint32_t c = 0; c < a.cells; ++c) line.score[c] *= share;
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
  r.emit<evict>({.name = "evict",
                 .operands = operands,
                 .chunks = {args.seqs * args.heads},
                 .thread_scratch_bytes = uint64_t{args.page_cells} * (sizeof(uint32_t) + sizeof(float))},
                args);
}

}  // namespace tenon::evicting
