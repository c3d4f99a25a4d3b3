// Phases: 0, the greatest logit of each block; 1, each block's weights summed by distance from the greatest, in bins of
// 1/8; 2, the row's bin in which the sum reaches p, and by halving it the last member kept; 3, everything that comes no
// later than that one is written.
#include <algorithm>
#include <array>
#include <functional>

#include "exp.h"
#include "plugin.h"
#include "tenon/sdk/cpu/candidates.h"
#include "tenon/sdk/cpu/filter.h"

namespace tenon::top_p {
namespace {

namespace cpu = sdk::cpu;

constexpr uint32_t kBins = 256;    // the last one holds what weighs nothing: e^-28 is less than a unit
constexpr float kWeightless = 87;  // and further; infinite for what is out
using Histogram = std::array<uint64_t, kBins>;

struct Scratch {
  Scratch(const cpu::CandidateGrid& g, const sdk::Part& part)
      : histogram(part.scratch<Histogram>()),
        members(reinterpret_cast<uint64_t*>(histogram + g.chunks())),
        last(members + size_t{g.rows} * g.width),
        most(reinterpret_cast<float*>(last + g.rows)) {}
  static uint64_t bytes(const cpu::CandidateGrid& g) {
    return g.chunks() * (sizeof(Histogram) + sizeof(float)) + uint64_t{g.rows} * (g.width + 1) * sizeof(uint64_t);
  }

  Histogram* histogram;  // of each chunk
  uint64_t* members;     // room for a row's keys
  uint64_t* last;        // of each row: the key of the last candidate kept
  float* most;           // of each chunk
};

// The greatest may be infinite.
float distance(float logit, float greatest) {
  return logit == greatest ? 0 : greatest - logit;
}
uint32_t bin_of(float distance) {
  return static_cast<uint32_t>(std::min(distance * 8, static_cast<float>(kBins - 1)));
}
uint64_t units(float weight) {
  return static_cast<uint64_t>(weight * 0x1p40F);
}
uint64_t weight_of(float distance) {
  return units(exp_negative(-distance));
}

void weigh(const cpu::Entries& e, float greatest, Histogram& histogram) {
  histogram.fill(0);
  constexpr uint32_t kGroup = 64;
  std::array<float, kGroup> distances, weights;
  for (uint32_t begin = 0; begin < e.n; begin += kGroup) {
    const uint32_t n = std::min(kGroup, e.n - begin);
    for (uint32_t i = 0; i < n; ++i) distances[i] = distance(e.logit[begin + i], greatest);
    for (uint32_t i = 0; i < n; ++i) weights[i] = exp_negative(-distances[i]);
    for (uint32_t i = 0; i < n; ++i) {
      if (distances[i] < kWeightless) histogram[bin_of(distances[i])] += units(weights[i]);
    }
  }
}

// The key of the last candidate to keep; 0: all.
uint64_t last_kept(const cpu::CandidateGrid& g, const sdk::Part& part, uint32_t row, const Scratch& s) {
  const cpu::Entries first = cpu::entries_of(g, part, row * g.blocks);
  const double p = part.ptr<TopP::Record>(cpu::kFilterParams)[first.slot].p;
  const float greatest = cpu::greatest_of_row(g, row, s.most);
  if (p >= 1 || !(greatest > cpu::kOut)) return 0;
  Histogram sum{};
  uint64_t total = 0;
  for (uint32_t b = 0; b < g.blocks; ++b) {
    for (uint32_t i = 0; i < kBins; ++i) sum[i] += s.histogram[row * g.blocks + b][i];
  }
  for (const uint64_t weight : sum) total += weight;
  const double wanted = p * static_cast<double>(total);
  uint64_t reached = 0;
  uint32_t bin = 0;
  while (bin + 1 < kBins && static_cast<double>(reached + sum[bin]) < wanted) reached += sum[bin++];

  uint64_t* keys = s.members + size_t{row} * g.width;
  uint32_t n = 0;
  for (uint32_t b = 0; b < g.blocks; ++b) {
    const cpu::Entries e = cpu::entries_of(g, part, row * g.blocks + b);
    for (uint32_t i = 0; i < e.n; ++i) {
      if (!(e.logit[i] > cpu::kOut) || bin_of(distance(e.logit[i], greatest)) != bin) continue;
      keys[n++] = cpu::candidate_key(e.logit[i], e.id_of(i));
    }
  }
  uint32_t last = 0;
  while (n - last > 1) {  // it is one of keys[last, n)
    const uint32_t middle = last + (n - last) / 2;
    std::nth_element(keys + last, keys + middle, keys + n, std::greater<>());
    uint64_t half = 0;
    for (uint32_t i = last; i < middle; ++i) half += weight_of(distance(cpu::value_of_key(keys[i]), greatest));
    if (static_cast<double>(reached + half) >= wanted) {
      n = middle;
    } else {
      reached += half, last = middle;
    }
  }
  return keys[last];
}

void keep(const cpu::CandidateGrid& g, const sdk::Part& part) {
  const Scratch s(g, part);
  switch (part.phase()) {
    case 0:
      cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) { s.most[e.chunk] = cpu::greatest(e); });
      break;
    case 1:
      cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) {
        weigh(e, cpu::greatest_of_row(g, e.row, s.most), s.histogram[e.chunk]);
      });
      break;
    case 2:
      cpu::for_each_row(part, [&](uint32_t row) { s.last[row] = last_kept(g, part, row, s); });
      break;
    default:
      cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) {
        const uint64_t last = s.last[e.row];
        cpu::write_kept(g, part, e, [&](float logit, int32_t id) {
          return logit > cpu::kOut && cpu::candidate_key(logit, id) >= last;
        });
      });
  }
}

}  // namespace

void TopP::record_apply(tenon_candidates& c, tenon_tid params, tenon_tid, sdk::Recorder& r) const {
  const tenon_candidates kept = cpu::temp_candidates(c, r);
  const cpu::CandidateOp op = cpu::filter_op(c, params, kept, r);
  const uint32_t chunks = op.grid.chunks();
  r.emit<keep>({.name = "keep_probable",
                .operands = op.operands,
                .chunks = {chunks, chunks, op.grid.rows, chunks},
                .cost = op.cost(25, true),
                .scratch_bytes = Scratch::bytes(op.grid)},
               op.grid);
  c = kept;
}

}  // namespace tenon::top_p

TENON_PLUGIN(tenon::top_p::TopP);
