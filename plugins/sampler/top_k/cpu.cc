// Phase 0 finds, block by block, entries that can be among the row's k largest, as keys whose order is that of the
// candidates. Phase 1 finds, row by row, the k largest of those, sorted. A block has a floor below which nothing
// matters, so that most entries cost two comparisons.
#include <algorithm>
#include <cstring>
#include <functional>

#include "op.h"
#include "plugin.h"
#include "tenon/sdk/cpu/candidates.h"

namespace tenon::top_k {
namespace {

namespace cpu = sdk::cpu;

constexpr uint32_t kLook = 16;     // so many entries are looked at together
constexpr uint32_t kGroups = 512;  // a block's entries are dealt out to so many in turn

// Drops what is smaller than the k-th largest value; n > k > 0. Returns how many remain; the k-th is keys[k - 1].
uint32_t keep_largest(uint64_t* keys, uint32_t n, uint32_t k) {
  std::nth_element(keys, keys + k - 1, keys + n, std::greater<>());
  const auto last = cpu::value_of_key(keys[k - 1]);
  const auto ties = [&](uint64_t key) { return cpu::value_of_key(key) == last; };
  return static_cast<uint32_t>(std::partition(keys + k, keys + n, ties) - keys);
}

// Returns the k-th largest of the largest entries of groups: k entries at least are no
// smaller. kOut if there are too few groups.
float floor_of(const cpu::Entries& e, uint32_t k) {
  float largest[kGroups];
  const uint32_t groups = std::min(kGroups, e.n);
  if (k == 0 || k > groups) return cpu::kOut;
  std::fill_n(largest, groups, cpu::kOut);
  for (uint32_t begin = 0; begin < e.n; begin += groups) {
    const uint32_t n = std::min(groups, e.n - begin);
    for (uint32_t g = 0; g < n; ++g) largest[g] = e.logit[begin + g] > largest[g] ? e.logit[begin + g] : largest[g];
  }
  std::nth_element(largest, largest + k - 1, largest + groups, std::greater<>());
  return largest[k - 1];
}

uint32_t collect(const cpu::Entries& e, uint32_t k, uint64_t* keys) {
  const float floor = floor_of(e, k);
  uint32_t n = 0;
  for (uint32_t begin = 0; begin < e.n; begin += kLook) {
    const uint32_t end = std::min(begin + kLook, e.n);
    bool promising = false;
    for (uint32_t i = begin; i < end; ++i) promising |= e.logit[i] >= floor;
    if (!promising) continue;
    for (uint32_t i = begin; i < end; ++i) {
      if (e.logit[i] >= floor && e.logit[i] > cpu::kOut) keys[n++] = cpu::candidate_key(e.logit[i], e.id_of(i));
    }
  }
  return n;
}

void sort_row(const cpu::CandidateGrid& g, const sdk::Part& part, uint32_t row, uint64_t* keys,
              const uint32_t* counts) {
  const int32_t slot = part.ptr<int32_t>(cpu::kSlot)[part.ptr<int32_t>(cpu::kOutRow)[row]];
  const uint32_t k = part.ptr<TopK::Record>(kParams)[slot].k;
  uint32_t n = counts[0];
  for (uint32_t b = 1; b < g.blocks; ++b) {
    std::memmove(keys + n, keys + size_t{b} * g.block, counts[b] * sizeof(uint64_t));
    n += counts[b];
  }
  if (k > 0 && n > k) n = keep_largest(keys, n, k);
  std::sort(keys, keys + n, std::greater<>());
  float* logit = part.ptr<float>(kKeptLogit) + size_t{row} * g.width;
  int32_t* id = part.ptr<int32_t>(kKeptId) + size_t{row} * g.width;
  for (uint32_t i = 0; i < n; ++i) {
    logit[i] = cpu::value_of_key(keys[i]);
    id[i] = cpu::id_of_key(keys[i]);
  }
  part.ptr<int32_t>(kKeptCount)[row] = static_cast<int32_t>(n);
}

void keep(const cpu::CandidateGrid& g, const sdk::Part& part) {
  auto* keys = part.scratch<uint64_t>();
  auto* counts = reinterpret_cast<uint32_t*>(keys + size_t{g.rows} * g.width);
  if (part.phase() == 0) {
    cpu::for_each_chunk(g, part, [&](const cpu::Entries& e) {
      const uint32_t k = part.ptr<TopK::Record>(kParams)[e.slot].k;
      counts[e.chunk] = collect(e, k < e.n ? k : 0, keys + size_t{e.row} * g.width + e.first);
    });
  } else {
    cpu::for_each_row(part, [&](uint32_t row) {
      sort_row(g, part, row, keys + size_t{row} * g.width, counts + size_t{row} * g.blocks);
    });
  }
}

}  // namespace

void TopK::record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const cpu::CandidateOp op = sorted_op(c, s.params, r);
  const cpu::CandidateGrid& g = op.grid;
  r.emit<keep>(
      {.name = "keep_largest",
       .operands = op.operands,
       .chunks = {g.chunks(), g.rows},
       .cost = op.cost(2, false),
       .scratch_bytes = uint64_t{g.rows} * (uint64_t{g.width} * sizeof(uint64_t) + g.blocks * sizeof(uint32_t))},
      g);
}

}  // namespace tenon::top_k

TENON_PLUGIN(tenon::top_k::TopK);
