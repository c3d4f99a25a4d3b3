// These samplers change the logits of tokens that the sequence holds: those that ACCEPTED kept, counted in the
// sampler's state, and the row's own in this step. An op sees the counts of a chunk's ids in thread scratch.
#pragma once

#include <cstring>

#include "tenon/sdk/cpu/candidates.h"

namespace tenon::sdk::cpu {

// The penalty's own operands stand from kOwnOperand on.
enum PenaltyOperand : uint32_t {
  kPenaltyParams = kOwnOperand,
  kPenaltyState,
  kPenaltyToken,
  kPenaltyParent,
  kPenalized
};

// The state of a slot is u32[vocab]: how often the sequence holds the token.
inline uint64_t count_bytes(uint32_t vocab) {
  return uint64_t{vocab} * sizeof(uint32_t);
}

// Makes the op of a penalty, which rewrites c's logits.
inline CandidateOp penalty_op(tenon_candidates& c, const tenon_sampling& s, Recorder& r) {
  const tenon_candidates in = c;
  c.logits = temp_logits(c, r);
  return CandidateOp(in, r,
                     {{s.params, TENON_READ},
                      {s.state, TENON_READ},
                      {r.step(TENON_STEP_TOKEN), TENON_READ},
                      {r.step(TENON_STEP_PARENT), TENON_READ},
                      {c.logits, TENON_WRITE}});
}
inline tenon_cost penalty_cost(const CandidateOp& op) {
  tenon_cost cost = op.cost(3, true);
  cost.read[kCostPerRow] += static_cast<double>(count_bytes(op.grid.vocab));
  return cost;
}

// Emits Fn(const CandidateGrid&, const Part&), which calls penalize(), and rewrites c.
template <auto Fn>
void record_penalty(const char* name, tenon_candidates& c, const tenon_sampling& s, Recorder& r) {
  const CandidateOp op = penalty_op(c, s, r);
  const uint64_t ids = op.grid.dense() ? op.grid.block : op.grid.vocab;
  r.emit<Fn>({.name = name,
              .operands = op.operands,
              .chunks = {op.grid.chunks()},
              .cost = penalty_cost(op),
              .thread_scratch_bytes = ids * sizeof(uint32_t)},
             op.grid);
}

// penalty(record, logit, count) returns the new logit of a token that the sequence holds count > 0 times.
template <class Record, class Penalty>
void penalize(const CandidateGrid& g, const Part& part, Penalty&& penalty) {
  auto* counts = part.thread_scratch<uint32_t>();
  for_each_chunk(g, part, [&](const Entries& e) {
    const uint32_t begin = g.dense() ? e.first : 0, ids = g.dense() ? e.n : g.vocab;
    const uint32_t* held = part.ptr<uint32_t>(kPenaltyState) + size_t{static_cast<uint32_t>(e.slot)} * g.vocab;
    std::memcpy(counts, held + begin, ids * sizeof(uint32_t));
    for_each_ancestor(part.ptr<int32_t>(kPenaltyToken), part.ptr<int32_t>(kPenaltyParent), e.step_row,
                      [&](int32_t token) {
                        const uint32_t at = static_cast<uint32_t>(token) - begin;
                        if (at < ids) ++counts[at];
                      });
    const Record& record = part.ptr<Record>(kPenaltyParams)[e.slot];
    float* out = part.ptr<float>(kPenalized) + size_t{e.row} * g.width + e.first;
    for (uint32_t i = 0; i < e.n; ++i) {
      const uint32_t count = counts[static_cast<uint32_t>(e.id_of(i)) - begin];
      out[i] = count == 0 ? e.logit[i] : penalty(record, e.logit[i], count);
    }
  });
}

// Counts the step's tokens that survive.
enum AcceptOperand : uint32_t { kState, kAcceptLive, kAccepted, kSeqSlot, kSeqRow, kToken, kSurvivor, kAcceptOperands };
struct AcceptArgs {
  uint32_t seqs, vocab;
};
struct AcceptOp {
  AcceptOp(tenon_tid state, Recorder& r)
      : operands(operands_by(kAcceptOperands, {{kState, state, TENON_READ | TENON_WRITE},
                                               {kAcceptLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                               {kAccepted, r.step(TENON_STEP_ACCEPTED), TENON_READ},
                                               {kSeqSlot, r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                               {kSeqRow, r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                               {kToken, r.step(TENON_STEP_TOKEN), TENON_READ},
                                               {kSurvivor, r.step(TENON_STEP_SURVIVOR), TENON_READ}})),
        args{r.bounds().seqs, static_cast<uint32_t>(r.describe(state).dim[1] / int64_t{sizeof(uint32_t)})} {
    cost.read[kCostPerRow] = cost.written[kCostPerRow] = sizeof(uint32_t);
    cost.flops[kCostPerRow] = 1;
  }

  std::vector<tenon_operand> operands;
  AcceptArgs args;
  tenon_cost cost{};
};
inline void count_accepted(const AcceptArgs& a, const Part& part) {
  const uint32_t end = std::min(part.end(), part.ptr<uint32_t>(kAcceptLive)[kLiveSeqs]);
  for (uint32_t s = part.begin(); s < end; ++s) {
    const int32_t slot = part.ptr<int32_t>(kSeqSlot)[s];
    if (slot < 0) continue;
    uint32_t* held = part.ptr<uint32_t>(kState) + size_t{static_cast<uint32_t>(slot)} * a.vocab;
    const int32_t* row = part.ptr<int32_t>(kSeqRow) + s;
    const int32_t accepted = std::min(row[1], row[0] + part.ptr<int32_t>(kAccepted)[s]);
    for (int32_t i = row[0]; i < accepted; ++i) {
      const auto token = static_cast<uint32_t>(part.ptr<int32_t>(kToken)[part.ptr<int32_t>(kSurvivor)[i]]);
      if (token < a.vocab) ++held[token];
    }
  }
}
inline void record_count_accepted(tenon_tid state, Recorder& r) {
  const AcceptOp op(state, r);
  r.emit<count_accepted>({.name = "count_accepted", .operands = op.operands, .chunks = {op.args.seqs}, .cost = op.cost},
                         op.args);
}

}  // namespace tenon::sdk::cpu
