// A chunk is a tile of the products x_i x_j on or above the diagonal; chunks on the diagonal add the magnitudes, too. A
// routed site has these chunks for one expert after the other. The expert's rows lie anywhere in x, so a chunk gathers
// the columns of its tile from kGathered of them at a time.
#include "observe.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tenon/sdk/live.h"

namespace tenon::calibrated {
namespace {

constexpr uint32_t kTile = 96;      // columns of x
constexpr uint32_t kGathered = 64;  // rows of x

struct ObserveArgs {
  uint32_t k, rows, experts;  // experts: 0 if the site is not routed
  sdk::cpu::Isa isa;
  int64_t x_stride;  // elements
};
enum Operand : uint32_t { kState, kX, kLive, kExpert };

uint32_t tile_pairs(uint32_t k) {
  const uint32_t tiles = (k + kTile - 1) / kTile;
  return tiles * (tiles + 1) / 2;
}

// These are rows of x.
struct XRows {
  const float* x;  // its first column
  int64_t stride;  // elements
  uint32_t count;
};
struct TilePair {
  uint32_t i, j;  // the first columns, i <= j
};
// A thread adds to these moments, in this memory of its own.
struct Moments {
  uint8_t* state;
  void* scratch;
};
struct Gathered {
  alignas(64) float x[2][kGathered][kTile];  // [tile of the pair]: the rows' columns
};
constexpr size_t kGatheredOffset = (kProductScratch + 63) / 64 * 64;

// x_i and x_j begin at the columns of the pair; where both tiles are the same, they are the same rows.
void add_tile(const ObserveArgs& a, TilePair pair, const XRows& x_i, const XRows& x_j, const Moments& to) {
  const auto [i, j] = pair;
  const auto [state, scratch] = to;
  const uint32_t columns = std::min(kTile, a.k - i);
  products(a.isa).f32({.c = reinterpret_cast<float*>(state) + size_t{i} * a.k + j,
                       .c_row = a.k,
                       .rows = columns,
                       .columns = std::min(kTile, a.k - j),
                       .inner = x_i.count,
                       .scale = 1,
                       .a = {x_i.x, 1, x_i.stride},
                       .b = {x_j.x, x_j.stride, 1},
                       .scratch = scratch});
  if (i != j) return;
  auto* sums = reinterpret_cast<double*>(state + magnitudes_offset(a.k));
  for (uint32_t column = 0; column < columns; ++column) {
    double sum = 0;
    for (uint32_t r = 0; r < x_i.count; ++r) sum += std::abs(double{x_i.x[r * x_i.stride + column]});
    sums[i + column] += sum;
  }
  if (i == 0) sums[a.k] += x_i.count;
}

// Adds the rows of one expert.
void add_expert_tile(const ObserveArgs& a, const sdk::Part& part, TilePair pair, uint32_t expert, uint32_t live) {
  const auto* of_row = part.ptr<const int32_t>(kExpert);
  const auto* x = part.ptr<const float>(kX);
  auto* scratch = part.thread_scratch<uint8_t>();
  auto& gathered = *reinterpret_cast<Gathered*>(scratch + kGatheredOffset);
  uint8_t* state = part.ptr<uint8_t>(kState) + expert * moments_bytes(a.k);
  uint32_t count = 0;
  const auto add = [&] {
    if (count > 0) {
      const XRows x_i{&gathered.x[0][0][0], kTile, count}, x_j{&gathered.x[1][0][0], kTile, count};
      add_tile(a, pair, x_i, pair.i == pair.j ? x_i : x_j, {state, scratch});
    }
    count = 0;
  };
  for (uint32_t r = 0; r < live; ++r) {
    if (of_row[r] != static_cast<int32_t>(expert)) continue;
    const float* row = x + r * a.x_stride;
    std::copy_n(row + pair.i, std::min(kTile, a.k - pair.i), gathered.x[0][count]);
    if (pair.i != pair.j) std::copy_n(row + pair.j, std::min(kTile, a.k - pair.j), gathered.x[1][count]);
    if (++count == kGathered) add();
  }
  add();
}

void add_moments(const ObserveArgs& a, const sdk::Part& part) {
  const uint32_t live = std::min(part.ptr<const uint32_t>(kLive)[sdk::kLiveRows], a.rows), pairs = tile_pairs(a.k);
  const auto* x = part.ptr<const float>(kX);
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    uint32_t row_tile = 0, j_tile = chunk % pairs;  // the lower triangle's tiles in order, with i and j changed
    while (j_tile > row_tile) j_tile -= ++row_tile;
    const TilePair pair{j_tile * kTile, row_tile * kTile};
    if (a.experts != 0) {
      add_expert_tile(a, part, pair, chunk / pairs, live);
    } else {
      add_tile(a, pair, {x + pair.i, a.x_stride, live}, {x + pair.j, a.x_stride, live},
               {part.ptr<uint8_t>(kState), part.thread_scratch<void>()});
    }
  }
}

}  // namespace

void ObservesMoments::observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const {
  const tenon_tensor x = rec.describe(call.x);
  const auto k = static_cast<uint32_t>(s.in_dim);
  const ObserveArgs args{k, static_cast<uint32_t>(x.dim[0]), s.experts, isa_,
                         x.stride[0] / static_cast<int64_t>(sizeof(float))};
  const tenon_tid live = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
  std::vector<tenon_operand> operands = sdk::operands_by(
      kExpert, {{kState, call.state, TENON_READ | TENON_WRITE}, {kX, call.x, TENON_READ}, {kLive, live, TENON_READ}});
  if (s.experts != 0) operands.push_back({call.expert, TENON_READ});
  const uint32_t sets = std::max(s.experts, 1U);
  sdk::OpSpec spec{.name = "add_moments", .operands = operands, .chunks = {sets * tile_pairs(k)}};
  spec.thread_scratch_bytes = s.experts != 0 ? kGatheredOffset + sizeof(Gathered) : kProductScratch;
  spec.cost.read[sdk::kFixedCost] = spec.cost.written[sdk::kFixedCost] = double{sizeof(float)} / 2 * sets * k * k;
  spec.cost.read[sdk::kCostPerRow] = double{sizeof(float)} * k;
  spec.cost.flops[sdk::kCostPerRow] = static_cast<double>(k) * k;
  rec.emit<&add_moments>(spec, args);
}

}  // namespace tenon::calibrated
