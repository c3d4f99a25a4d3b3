// A sampler's CPU ops reach their candidates through this: which entries a chunk covers, whose
// parameters hold for them, what came before.
//
//   cpu::CandidateOp op(c, recorder, {{params, TENON_READ}, {out, TENON_WRITE}});       in record_apply()
//   recorder.emit<apply>({.name = "mine", .operands = op.operands, .chunks = {op.grid.chunks()}}, op.grid);
//   cpu::for_each_chunk(grid, part, [&](const cpu::Entries& e) { ... });                 in the op
//
// Operands: cpu::k* first, the op's own from cpu::kOwnOperand on. DENSE rows are cut into blocks, a SPARSE row is one
// chunk; rows past the live count are left out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "tenon/abi/sampler.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk::cpu {

constexpr uint32_t kCandidateBlock = 8192;                       // entries of a DENSE row in one chunk
constexpr float kOut = -std::numeric_limits<float>::infinity();  // the logit of what is out

enum CandidateOperand : uint32_t { kLogits, kLive, kOutRow, kSlot, kOwnOperand };

struct CandidateGrid {
  uint32_t rows, width;       // out_rows; entries that a row has room for
  uint32_t blocks, block;     // chunks a row, entries a chunk
  uint32_t vocab, ids;        // ids: that operand; 0: DENSE, which has none
  int64_t logit_row, id_row;  // elements from row to row
  constexpr uint32_t chunks() const { return rows * blocks; }
  constexpr bool dense() const { return ids == 0; }
  constexpr uint32_t counts() const { return ids + 1; }  // the operand
};

// These are the arguments and operands of an op that reads candidates.
struct CandidateOp {
  CandidateOp(const tenon_candidates& c, Recorder& r, std::initializer_list<tenon_operand> own)
      : operands(operands_by(kOwnOperand, {{kLogits, c.logits, TENON_READ},
                                           {kLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                           {kOutRow, r.step(TENON_STEP_OUT_ROW), TENON_READ},
                                           {kSlot, r.step(TENON_STEP_SLOT), TENON_READ}})) {
    operands.insert(operands.end(), own);
    const bool dense = c.form == TENON_DENSE;
    grid.rows = r.bounds().out_rows;
    grid.width = dense ? c.vocab : c.cap;
    grid.vocab = c.vocab;
    grid.block = dense ? std::min(c.vocab, kCandidateBlock) : c.cap;
    grid.blocks = (grid.width + grid.block - 1) / grid.block;
    grid.logit_row = r.floats_of_row(c.logits);
    if (dense) return;
    grid.ids = static_cast<uint32_t>(operands.size());
    grid.id_row = r.describe(c.id).stride[0] / static_cast<int64_t>(sizeof(int32_t));
    operands.push_back({c.id, TENON_READ});
    operands.push_back({c.count, TENON_READ});
  }
  // Returns the cost of reading every entry once, and of writing as much if it writes.
  tenon_cost cost(double flops_an_entry, bool writes) const {
    const double bytes = grid.width * (grid.dense() ? 4.0 : 8.0);
    tenon_cost k{};
    k.read[kCostPerRow] = bytes;
    k.written[kCostPerRow] = writes ? grid.width * 4.0 : 0;
    k.flops[kCostPerRow] = flops_an_entry * grid.width;
    return k;
  }

  CandidateGrid grid{};
  std::vector<tenon_operand> operands;
};

// Makes logits in the shape of c's.
inline tenon_tid temp_logits(const tenon_candidates& c, Recorder& r) {
  return r.temp(tensor(TENON_F32, {r.bounds().out_rows, c.form == TENON_DENSE ? c.vocab : c.cap}));
}

// These are some or all entries of a row of candidates.
struct Entries {
  uint32_t chunk, row;     // row: of the candidates' tensors
  int32_t step_row, slot;  // where the logits come from, and whose they are
  uint32_t first, n;       // entries [first, first + n) of the row
  const float* logit;      // [n]
  const int32_t* id;       // [n], or nullptr: DENSE

  int32_t id_of(uint32_t i) const { return id != nullptr ? id[i] : static_cast<int32_t>(first + i); }
};

// These are the entries of chunk `chunk`, which belongs to a live row.
inline Entries entries_of(const CandidateGrid& g, const Part& part, uint32_t chunk) {
  Entries e{};
  e.chunk = chunk;
  e.row = chunk / g.blocks;
  e.step_row = part.ptr<int32_t>(kOutRow)[e.row];
  e.slot = part.ptr<int32_t>(kSlot)[e.step_row];
  e.first = chunk % g.blocks * g.block;
  const uint32_t width = g.dense() ? g.width : static_cast<uint32_t>(part.ptr<int32_t>(g.counts())[e.row]);
  e.n = std::min(g.block, width - std::min(width, e.first));
  e.logit = part.ptr<float>(kLogits) + e.row * g.logit_row + e.first;
  if (!g.dense()) e.id = part.ptr<int32_t>(g.ids) + e.row * g.id_row + e.first;
  return e;
}

inline uint32_t live_out_rows(const Part& part) {
  return part.ptr<uint32_t>(kLive)[kLiveOutRows];
}

template <class F>
void for_each_chunk(const CandidateGrid& g, const Part& part, F&& f) {
  const uint32_t end = std::min(part.end(), live_out_rows(part) * g.blocks);
  for (uint32_t chunk = part.begin(); chunk < end; ++chunk) f(entries_of(g, part, chunk));
}
// Phases with one chunk a row use this.
template <class F>
void for_each_row(const Part& part, F&& f) {
  const uint32_t end = std::min(part.end(), live_out_rows(part));
  for (uint32_t row = part.begin(); row < end; ++row) f(row);
}

// Calls f(token) for row and those before it in this step, newest first.
template <class F>
constexpr void for_each_ancestor(const int32_t* token, const int32_t* parent, int32_t row, F&& f) {
  for (int32_t before = row; before >= 0 && before <= row; before = parent[before]) {
    f(token[before]);
    row = before - 1;  // parents lie in front of their children
  }
}

// ---- order: keys that fall as candidates become less likely; rising ids among equal logits ----

// Returns bits that rise with the logit and are never 0. The logit must not be NaN; -0 counts as 0.
constexpr uint32_t rising_bits(float logit) {
  const uint32_t bits = logit == 0 ? 0 : __builtin_bit_cast(uint32_t, logit);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
constexpr float logit_of_bits(uint32_t rising) {
  return __builtin_bit_cast(float, (rising & 0x80000000u) != 0 ? rising & 0x7fffffffu : ~rising);
}
constexpr uint64_t candidate_key(float logit, int32_t id) {
  return uint64_t{rising_bits(logit)} << 32 | ~static_cast<uint32_t>(id);
}
constexpr float value_of_key(uint64_t key) {
  return logit_of_bits(static_cast<uint32_t>(key >> 32));
}
constexpr int32_t id_of_key(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// ---- choosing: the greatest score, the lowest id among equals ----

struct Best {
  float score = kOut;
  int32_t id = -1;

  bool better_than(const Best& other) const {
    return score > other.score || (score == other.score && static_cast<uint32_t>(id) < static_cast<uint32_t>(other.id));
  }
};

// An op that chooses one entry a row has two phases: {grid.chunks(), grid.rows} chunks, select_scratch() bytes of
// scratch. best(entries) is a chunk's best, with id -1 if none is in. The token, 0 where none is in, goes to `next`.
inline uint64_t select_scratch(const CandidateGrid& g) {
  return uint64_t{g.rows} * g.blocks * sizeof(Best);
}
template <class F>
void select(const CandidateGrid& g, const Part& part, uint32_t next, F&& best) {
  auto* found = part.scratch<Best>();
  if (part.phase() == 0) {
    for_each_chunk(g, part, [&](const Entries& e) { found[e.chunk] = best(e); });
    return;
  }
  for_each_row(part, [&](uint32_t row) {
    Best winner;
    for (uint32_t b = 0; b < g.blocks; ++b) {
      const Best& candidate = found[row * g.blocks + b];
      if (candidate.better_than(winner)) winner = candidate;
    }
    part.ptr<int32_t>(next)[row] = std::max(winner.id, 0);
  });
}

}  // namespace tenon::sdk::cpu
