// The attentions on the CPU share this: where rows of q and out lie, and the op
// that sums softmax weights for the cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "set_up.h"
#include "tenon/sdk/kv_layout.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"
#include "view_operands.h"

namespace tenon::attention {

enum CpuOperand {
  kSinks = kViewOperands,  // An attention without learned sinks gives Q.
  kCpuOperands,
  kWeights = kCpuOperands,  // Only the op that sums weights has this operand, and writes it.
  kWeighingOperands
};

inline std::vector<tenon_operand> cpu_operands(const tenon_attn_call& call, const Half& half, sdk::Recorder& r) {
  std::vector<tenon_operand> operands = view_operands(call, half, r);
  operands.resize(kCpuOperands);
  operands[kSinks] = {sdk::has_sinks(call.pro) ? sdk::sinks_of(call.pro) : call.q, TENON_READ};
  return operands;
}
// Returns the logit that joins the softmax of a head; nothing is joined by -infinity.
inline float sink_of(const ViewArgs& a, const sdk::Part& part, uint32_t head) {
  return a.sinks != 0 ? part.ptr<const float>(kSinks)[head] : -std::numeric_limits<float>::infinity();
}

// Rows from there on are padding.
inline uint32_t live_rows(const ViewArgs& a, const sdk::Part& part) {
  return std::min(part.ptr<uint32_t>(kLive)[sdk::kLiveRows], a.rows);
}
// These return where the view's keys and values lie.
inline sdk::KvMemory key_memory(const ViewArgs& a, const sdk::Part& part) {
  return {.layout = a.kv,
          .plane = a.kv.k,
          .base = part.ptr<void>(kKeyPlane),
          .scales = part.ptr<void>(kKeyScales),
          .pages = part.ptr<int32_t>(kPages)};
}
inline sdk::KvMemory value_memory(const ViewArgs& a, const sdk::Part& part) {
  return {.layout = a.kv,
          .plane = a.kv.v,
          .base = part.ptr<void>(kValuePlane),
          .scales = part.ptr<void>(kValueScales),
          .pages = part.ptr<int32_t>(kPages)};
}
// Returns a head of a row of q: (dim).
inline const float* query_of(const ViewArgs& a, const sdk::Part& part, uint32_t row, uint32_t head) {
  return part.ptr<const float>(kQ) + row * a.q_row + size_t{head} * a.kv.k.dim;
}
inline float* out_of(const ViewArgs& a, const sdk::Part& part, uint32_t row, uint32_t head) {
  return part.ptr<float>(kOut) + row * a.out_row + size_t{head} * a.kv.v.dim;
}

// By these factors a head's sum of weighted values, and the mean that its result
// has of the first half, become its result.
struct JoinFactors {
  float own, before;
};
// A query head of a row has the greatest of its scores, and the sum of their weights exp(score - top). A
// half that sees nothing has -infinity and 0.
struct HeadSums {
  uint32_t row, head;
  float top, sum;
};
inline JoinFactors join_factors(const ViewArgs& a, const sdk::Part& part, const HeadSums& s) {
  constexpr float kLn2 = 0.693147180559945F;
  const float left = part.ptr<const float>(kSums)[size_t{s.row} * a.q_heads + s.head] * kLn2;
  const float highest = std::max(s.top, left), own = std::exp(s.top - highest), before = std::exp(left - highest);
  const float all = s.sum * own + before;
  return {own / all, before / all};
}
// The first half leaves this beside a head's mean.
inline void leave_sum(const ViewArgs& a, const sdk::Part& part, const HeadSums& s) {
  constexpr float kLog2E = 1.44269504088896F;
  part.ptr<float>(kSums)[size_t{s.row} * a.q_heads + s.head] = s.top * kLog2E + std::log2(s.sum);
}

// A chunk of the op that sums weights takes rows [begin, end) of a sequence, into the sums of one KV head's cells.
struct WeightChunk {
  uint32_t kv_head = 0, begin = 0, end = 0;
  float* sums = nullptr;  // (cells), zeros; nullptr for a sequence that there is not
};
// A chunk is a KV head of a sequence.
inline WeightChunk weight_chunk(const ViewArgs& a, const sdk::Part& part, uint32_t chunk) {
  WeightChunk found;
  const uint32_t seq = chunk / a.kv.heads;
  if (seq >= part.ptr<uint32_t>(kLive)[sdk::kLiveSeqs]) return found;
  const int32_t slot = part.ptr<int32_t>(kSeqSlot)[seq];
  if (slot < 0) return found;
  const auto* first_row = part.ptr<int32_t>(kSeqRow);
  found.kv_head = chunk % a.kv.heads;
  found.end = static_cast<uint32_t>(first_row[seq + 1]);
  found.begin =
      std::max(static_cast<uint32_t>(first_row[seq]), found.end > a.weight_rows ? found.end - a.weight_rows : 0);
  const auto cells = static_cast<size_t>(a.kv.capacity());
  found.sums = part.ptr<float>(kWeights) + (static_cast<size_t>(slot) * a.kv.heads + found.kv_head) * cells;
  std::fill_n(found.sums, cells, 0.0F);
  return found;
}

// Emits the op that sums the softmax weights, if the cache wants them. It has the attention op's operands.
template <auto kSumWeights, class Args>
void record_weights(const tenon_attn_call& call, const Args& args, uint64_t thread_scratch_bytes,
                    std::vector<tenon_operand> operands, sdk::Recorder& r) {
  if (args.weight_rows == 0) return;
  operands[kOut] = operands[kQ];
  operands.resize(kWeighingOperands);
  operands[kWeights] = {call.kv->weights, TENON_WRITE};
  r.emit<kSumWeights>({.name = "weights",
                       .operands = operands,
                       .chunks = {args.seqs * args.kv.heads},
                       .thread_scratch_bytes = thread_scratch_bytes},
                      args);
}

}  // namespace tenon::attention
