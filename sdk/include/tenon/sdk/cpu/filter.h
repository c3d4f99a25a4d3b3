// These samplers leave out candidates and keep the form: what is out becomes minus infinity (DENSE) or is dropped, the
// rest in their order (SPARSE).
//
//   const tenon_candidates kept = cpu::temp_candidates(c, r);                               in record_apply()
//   const cpu::CandidateOp op = cpu::filter_op(c, params, kept, r);
//   cpu::write_kept(grid, part, entries, [&](float logit, int32_t id) { return ...; });     in the op
#pragma once

#include "tenon/sdk/cpu/candidates.h"

namespace tenon::sdk::cpu {

// The filter's own operands stand from kOwnOperand on.
enum FilterOperand : uint32_t { kFilterParams = kOwnOperand, kKeptLogits, kKeptIds, kKeptCounts };

// Makes tensors of c's form and shape.
inline tenon_candidates temp_candidates(const tenon_candidates& c, Recorder& r) {
  tenon_candidates kept = c;
  kept.logits = temp_logits(c, r);
  if (c.form == TENON_DENSE) return kept;
  kept.id = r.temp(tensor(TENON_I32, {r.bounds().out_rows, c.cap}));
  kept.count = r.temp(tensor(TENON_I32, {r.bounds().out_rows}));
  return kept;
}

inline CandidateOp filter_op(const tenon_candidates& c, tenon_tid params, const tenon_candidates& kept, Recorder& r) {
  const tenon_operand records{params, TENON_READ}, logits{kept.logits, TENON_WRITE};
  if (c.form == TENON_DENSE) return CandidateOp(c, r, {records, logits});
  return CandidateOp(c, r, {records, logits, {kept.id, TENON_WRITE}, {kept.count, TENON_WRITE}});
}

template <class Keep>
void write_kept(const CandidateGrid& g, const Part& part, const Entries& e, Keep&& keep) {
  float* logits = part.ptr<float>(kKeptLogits) + size_t{e.row} * g.width + e.first;
  if (g.dense()) {
    for (uint32_t i = 0; i < e.n; ++i) logits[i] = keep(e.logit[i], e.id_of(i)) ? e.logit[i] : kOut;
    return;
  }
  int32_t* ids = part.ptr<int32_t>(kKeptIds) + size_t{e.row} * g.width;
  uint32_t n = 0;
  for (uint32_t i = 0; i < e.n; ++i) {
    if (keep(e.logit[i], e.id_of(i))) {
      logits[n] = e.logit[i];
      ids[n++] = e.id_of(i);
    }
  }
  part.ptr<int32_t>(kKeptCounts)[e.row] = static_cast<int32_t>(n);
}

// These return the greatest logit of a chunk, and that of a row from those of its chunks; minus infinity if none is in.
inline float greatest(const Entries& e) {
  constexpr uint32_t kLanes = 16;  // lanes are apart, so that they vectorize
  float most[kLanes];
  std::fill_n(most, kLanes, kOut);
  const auto take = [&](uint32_t i, uint32_t lane) { most[lane] = e.logit[i] > most[lane] ? e.logit[i] : most[lane]; };
  const uint32_t whole = e.n - e.n % kLanes;
  for (uint32_t i = 0; i < whole; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) take(i + lane, lane);
  }
  for (uint32_t i = whole; i < e.n; ++i) take(i, 0);
  return *std::max_element(most, most + kLanes);
}
inline float greatest_of_row(const CandidateGrid& g, uint32_t row, const float* of_chunk) {
  return *std::max_element(of_chunk + size_t{row} * g.blocks, of_chunk + size_t{row + 1} * g.blocks);
}

}  // namespace tenon::sdk::cpu
