// A chunk is a tile of the products x_i x_j on or above the diagonal; chunks on the diagonal add the magnitudes, too.
#include "observe.h"

#include <algorithm>
#include <cmath>

#include "tenon/sdk/live.h"

namespace tenon::calibrated {
namespace {

constexpr uint32_t kTile = 96;  // columns of x

struct ObserveArgs {
  uint32_t k, rows;
  sdk::cpu::Isa isa;
  int64_t x_stride;  // elements
};
enum Operand : uint32_t { kState, kX, kLive };

void add_magnitudes(const ObserveArgs& a, const float* x, uint32_t live, uint32_t first, double* sums) {
  for (uint32_t i = first; i < std::min(a.k, first + kTile); ++i) {
    double sum = 0;
    for (uint32_t r = 0; r < live; ++r) sum += std::abs(double{x[r * a.x_stride + i]});
    sums[i] += sum;
  }
  if (first == 0) sums[a.k] += live;
}

void add_moments(const ObserveArgs& a, const sdk::Part& part) {
  const uint32_t live = std::min(part.ptr<const uint32_t>(kLive)[sdk::kLiveRows], a.rows);
  const auto* x = part.ptr<const float>(kX);
  auto* state = part.ptr<uint8_t>(kState);
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    uint32_t row_tile = 0, j_tile = chunk;  // the lower triangle's tiles in order, with i and j changed
    while (j_tile > row_tile) j_tile -= ++row_tile;
    const uint32_t i = j_tile * kTile, j = row_tile * kTile;
    products(a.isa).f32({.c = reinterpret_cast<float*>(state) + size_t{i} * a.k + j,
                         .c_row = a.k,
                         .rows = std::min(kTile, a.k - i),
                         .columns = std::min(kTile, a.k - j),
                         .inner = live,
                         .scale = 1,
                         .a = {x + i, 1, a.x_stride},
                         .b = {x + j, a.x_stride, 1},
                         .scratch = part.thread_scratch<void>()});
    if (i == j) add_magnitudes(a, x, live, i, reinterpret_cast<double*>(state + magnitudes_offset(a.k)));
  }
}

}  // namespace

void ObservesMoments::observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const {
  const tenon_tensor x = rec.describe(call.x);
  const auto k = static_cast<uint32_t>(s.in_dim), tiles = (k + kTile - 1) / kTile;
  const ObserveArgs args{k, static_cast<uint32_t>(x.dim[0]), isa_, x.stride[0] / static_cast<int64_t>(sizeof(float))};
  const tenon_tid live = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
  const tenon_operand operands[] = {{call.state, TENON_READ | TENON_WRITE}, {call.x, TENON_READ}, {live, TENON_READ}};
  sdk::OpSpec spec{.name = "add_moments", .operands = operands, .chunks = {tiles * (tiles + 1) / 2}};
  spec.thread_scratch_bytes = kProductScratch;
  spec.cost.read[sdk::kFixedCost] = spec.cost.written[sdk::kFixedCost] = double{sizeof(float)} / 2 * k * k;
  spec.cost.read[sdk::kCostPerRow] = double{sizeof(float)} * k;
  spec.cost.flops[sdk::kCostPerRow] = static_cast<double>(k) * k;
  rec.emit<&add_moments>(spec, args);
}

}  // namespace tenon::calibrated
