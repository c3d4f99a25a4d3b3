// Phase 0 finds the greatest logit of each block; phase 1 sums each block's weights by distance from the greatest, in
// bins of 1/8; phase 2 finds the row's bin in which the sum reaches p, and by halving it the last member kept; phase 3
// writes everything that comes no later than that one.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "plugin.h"
#include "tenon/sdk/cpu/candidates.h"
#include "tenon/sdk/cpu/filter.h"
#include "weight.h"

namespace tenon::top_p {
namespace {

namespace cpu = sdk::cpu;

constexpr uint32_t kGroup = 64;
using Histogram = std::array<uint64_t, kBins>;

struct Last {  // it is the last one in the order of candidates
  float logit;
  int32_t id;
};

struct Scratch {
  Scratch(const cpu::CandidateGrid& g, const sdk::Part& part)
      : histogram(part.scratch<Histogram>()),
        members(reinterpret_cast<uint64_t*>(histogram + g.chunks())),
        last(reinterpret_cast<Last*>(members + size_t{g.rows} * g.width)),
        most(reinterpret_cast<float*>(last + g.rows)) {}
  static uint64_t bytes(const cpu::CandidateGrid& g) {
    return g.chunks() * (sizeof(Histogram) + sizeof(float)) + uint64_t{g.rows} * (g.width + 1) * sizeof(uint64_t);
  }

  Histogram* histogram;  // each chunk has one
  uint64_t* members;     // it has room for a row's keys
  Last* last;            // each row has one
  float* most;           // each chunk has one
};

float finite_greatest(const cpu::CandidateGrid& g, uint32_t row, const float* of_chunk) {
  return std::min(cpu::greatest_of_row(g, row, of_chunk), std::numeric_limits<float>::max());
}

void weigh(const cpu::Entries& e, float greatest, Histogram& histogram) {
  histogram.fill(0);
  std::array<float, kGroup> distances, weights;
  for (uint32_t begin = 0; begin < e.n; begin += kGroup) {
    const uint32_t n = std::min(kGroup, e.n - begin);
    for (uint32_t i = 0; i < n; ++i) distances[i] = distance(e.logit[begin + i], greatest);
    for (uint32_t i = 0; i < n; ++i) weights[i] = weight_of(distances[i]);
    for (uint32_t i = 0; i < n; ++i) {
      if (e.logit[begin + i] > cpu::kOut) histogram[bin_of(distances[i])] += units(weights[i]);
    }
  }
}

// Collects the keys of a bin's members and returns how many there are.
uint32_t collect(const cpu::Entries& e, float greatest, uint32_t bin, uint64_t* keys) {
  const float from = bin == 0 ? cpu::kOut : static_cast<float>(bin), to = static_cast<float>(bin + 1);
  uint32_t n = 0;
  for (uint32_t begin = 0; begin < e.n; begin += kGroup) {
    const uint32_t end = std::min(begin + kGroup, e.n);
    const auto member = [&](uint32_t i) {
      const float d = distance(e.logit[i], greatest);
      return (d >= from) & (d < to);
    };
    bool any = false;
    for (uint32_t i = begin; i < end; ++i) any |= member(i);
    for (uint32_t i = begin; any && i < end; ++i) {
      if (member(i)) keys[n++] = cpu::candidate_key(e.logit[i], e.id_of(i));
    }
  }
  return n;
}

// Returns the last of keys[0, n) to keep, if those before weigh `reached` and `wanted` is to be reached.
Last find_last(uint64_t* keys, uint32_t n, float greatest, uint64_t reached, double wanted) {
  uint32_t first = 0;
  while (n - first > 1) {  // it is one of keys[first, n)
    const uint32_t middle = first + (n - first) / 2;
    std::nth_element(keys + first, keys + middle, keys + n, std::greater<>());
    uint64_t half = 0;
    for (uint32_t i = first; i < middle; ++i) {
      half += units(weight_of(distance(cpu::value_of_key(keys[i]), greatest)));
    }
    if (static_cast<double>(reached + half) >= wanted) {
      n = middle;
    } else {
      reached += half;
      first = middle;
    }
  }
  return {cpu::value_of_key(keys[first]), cpu::id_of_key(keys[first])};
}

Last last_kept(const cpu::CandidateGrid& g, const sdk::Part& part, uint32_t row, const Scratch& s) {
  const uint32_t chunk = row * g.blocks;
  const double p = part.ptr<TopP::Record>(cpu::kFilterParams)[cpu::entries_of(g, part, chunk).slot].p;
  const float greatest = finite_greatest(g, row, s.most);
  if (p >= 1 || !(greatest > cpu::kOut)) return {cpu::kOut, -1};
  Histogram sum{};
  uint64_t total = 0, reached = 0;
  for (uint32_t b = 0; b < g.blocks; ++b) {
    for (uint32_t i = 0; i < kBins; ++i) sum[i] += s.histogram[chunk + b][i];
  }
  for (const uint64_t weight : sum) total += weight;
  const double wanted = p * static_cast<double>(total);
  uint32_t bin = 0, n = 0;
  while (static_cast<double>(reached + sum[bin]) < wanted) reached += sum[bin++];  // ends: p < 1
  uint64_t* keys = s.members + size_t{row} * g.width;
  for (uint32_t b = 0; b < g.blocks; ++b) n += collect(cpu::entries_of(g, part, chunk + b), greatest, bin, keys + n);
  return find_last(keys, n, greatest, reached, wanted);
}

void keep(const cpu::CandidateGrid& g, const sdk::Part& part) {
  const Scratch s(g, part);
  switch (part.phase()) {
    case 0:
      cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) { s.most[e.chunk] = cpu::greatest(e); });
      break;
    case 1:
      cpu::for_each_chunk(
          g, part, [&](const cpu::Entries& e) { weigh(e, finite_greatest(g, e.row, s.most), s.histogram[e.chunk]); });
      break;
    case 2:
      cpu::for_each_row(part, [&](uint32_t row) { s.last[row] = last_kept(g, part, row, s); });
      break;
    default:
      cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) {
        const Last last = s.last[e.row];
        cpu::write_kept(g, part, e, [&](float logit, int32_t id) {
          return (logit > last.logit) | ((logit == last.logit) & (id <= last.id));
        });
      });
  }
}

}  // namespace

void TopP::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const tenon_candidates kept = cpu::temp_candidates(c, r);
  const cpu::CandidateOp op = cpu::filter_op(c, s.params, kept, r);
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
