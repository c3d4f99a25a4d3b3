// These samplers change the logits of tokens that the sequence holds; see tenon/sdk/cpu/penalty.h.
#pragma once

#include "tenon/cuda/candidates.cuh"
#include "tenon/sdk/cpu/penalty.h"

namespace tenon::cuda {

// A penalty reads these of the sequence, and writes `out`.
template <class Record>
struct PenaltyPointers {
  explicit PenaltyPointers(const Launch& l)
      : record(l.ptr<const Record>(sdk::cpu::kPenaltyParams)),
        held(l.ptr<const uint32_t>(sdk::cpu::kPenaltyState)),
        token(l.ptr<const int32_t>(sdk::cpu::kPenaltyToken)),
        parent(l.ptr<const int32_t>(sdk::cpu::kPenaltyParent)),
        out(l.ptr<float>(sdk::cpu::kPenalized)) {}

  const Record* record;
  const uint32_t* held;
  const int32_t *token, *parent;
  float* out;
};

// A thread counts for a few entries at once, so that a long prompt is walked once for all of them.
template <class Record, class Penalty>
__global__ void penalize_kernel(CandidateInput in, PenaltyPointers<Record> p, Penalty penalty) {
  constexpr uint32_t kEntries = 4;
  CandidateRow row;
  if (!open(in, row)) return;
  const uint32_t* held = p.held + size_t{static_cast<uint32_t>(row.slot)} * in.g.vocab;
  float* out = p.out + size_t{row.row} * in.g.width;
  const Record record = p.record[row.slot];
  if (!Penalty::changes(record)) {
    return for_each_entry(row, [&](uint32_t i, float logit) { out[i] = logit; });
  }
  const uint32_t stride = gridDim.x * blockDim.x;
  for (uint32_t first = blockIdx.x * blockDim.x + threadIdx.x; first < row.n; first += kEntries * stride) {
    int32_t id[kEntries];
    uint32_t count[kEntries] = {};
    for (uint32_t e = 0; e < kEntries; ++e) {
      const uint32_t i = first + e * stride;
      id[e] = i < row.n ? static_cast<int32_t>(row.token_of(i, in.g.vocab)) : -1;
      if (id[e] >= 0) count[e] = held[id[e]];
    }
    sdk::cpu::for_each_ancestor(p.token, p.parent, row.step_row, [&](int32_t token) {
      for (uint32_t e = 0; e < kEntries; ++e) count[e] += token == id[e];
    });
    for (uint32_t e = 0; e < kEntries; ++e) {
      const uint32_t i = first + e * stride;
      if (i < row.n) out[i] = count[e] == 0 ? row.logit[i] : penalty(record, row.logit[i], count[e]);
    }
  }
}

// Penalty is a stateless functor, float (const Record&, float logit, uint32_t count), with a static changes(const
// Record&) that says whether it changes any logit.
template <class Record, class Penalty>
void run_penalty(const CandidateGrid& g, const Launch& l) {
  l(&penalize_kernel<Record, Penalty>, entry_grid(g), CandidateInput(g, l), PenaltyPointers<Record>(l), Penalty{});
}

// Emits the penalty and rewrites c.
template <class Record, class Penalty>
void record_penalty(const char* name, tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) {
  const sdk::cpu::CandidateOp op = sdk::cpu::penalty_op(c, s, r);
  emit<&run_penalty<Record, Penalty>>(
      r, {.name = name, .operands = op.operands, .chunks = {}, .cost = sdk::cpu::penalty_cost(op)}, op.grid);
}

// ---- counting the tokens that survive: a block takes a sequence ----

struct AcceptPointers {
  explicit AcceptPointers(const Launch& l)
      : held(l.ptr<uint32_t>(sdk::cpu::kState)),
        live(l.ptr<const uint32_t>(sdk::cpu::kAcceptLive)),
        accepted(l.ptr<const int32_t>(sdk::cpu::kAccepted)),
        seq_slot(l.ptr<const int32_t>(sdk::cpu::kSeqSlot)),
        seq_row(l.ptr<const int32_t>(sdk::cpu::kSeqRow)),
        token(l.ptr<const int32_t>(sdk::cpu::kToken)),
        survivor(l.ptr<const int32_t>(sdk::cpu::kSurvivor)) {}

  uint32_t* held;
  const uint32_t* live;
  const int32_t *accepted, *seq_slot, *seq_row, *token, *survivor;
};
inline __global__ void count_accepted_kernel(sdk::cpu::AcceptArgs a, AcceptPointers p) {
  wait();
  const uint32_t s = blockIdx.x;
  if (s >= p.live[sdk::kLiveSeqs] || p.seq_slot[s] < 0) return;
  uint32_t* held = p.held + size_t{static_cast<uint32_t>(p.seq_slot[s])} * a.vocab;
  const int32_t first = p.seq_row[s], end = min(p.seq_row[s + 1], first + p.accepted[s]);
  for (int32_t i = first + static_cast<int32_t>(threadIdx.x); i < end; i += static_cast<int32_t>(blockDim.x)) {
    const auto token = static_cast<uint32_t>(p.token[p.survivor[i]]);
    if (token < a.vocab) atomicAdd(held + token, 1);
  }
}
inline void count_accepted(const sdk::cpu::AcceptArgs& a, const Launch& l) {
  constexpr uint32_t kThreads = 128;
  l(&count_accepted_kernel, {.blocks = {a.seqs}, .threads = {kThreads}}, a, AcceptPointers(l));
}
inline void record_count_accepted(tenon_tid state, sdk::Recorder& r) {
  const sdk::cpu::AcceptOp op(state, r);
  emit<&count_accepted>(r, {.name = "count_accepted", .operands = op.operands, .chunks = {}, .cost = op.cost}, op.args);
}

}  // namespace tenon::cuda
