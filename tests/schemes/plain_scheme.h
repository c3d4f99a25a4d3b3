// The schemes of this folder share this: weights held as f32, each product summed in the order of the columns.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "tenon/sdk/cpu/linear.h"
#include "tenon/sdk/quantization.h"

namespace sdk = tenon::sdk;
namespace cpu = tenon::sdk::cpu;

namespace tenon::test {

struct ProductArgs {
  uint32_t k, rows, n_mats, mat_rows[TENON_MAX_STORES];
  int64_t x_stride, y_stride;  // elements
  bool routed;                 // rows have experts, whose matrices lie in a store one after the other
};
enum { kY, kX, kLive, kExpert, kStores };  // operands; without experts kExpert is kLive once more

// A chunk is one column of y, over all live rows.
void multiply(const ProductArgs& a, const sdk::Part& part) {
  const uint32_t live = std::min(*part.ptr<const uint32_t>(kLive), a.rows);
  for (uint32_t column = part.begin(); column < part.end(); ++column) {
    uint32_t mat = 0, row_of_mat = column;
    while (row_of_mat >= a.mat_rows[mat]) row_of_mat -= a.mat_rows[mat++];
    for (uint32_t r = 0; r < live; ++r) {
      const int32_t expert = a.routed ? part.ptr<const int32_t>(kExpert)[r] : 0;
      const float* x = part.ptr<const float>(kX) + r * a.x_stride;
      float sum = 0;
      if (expert >= 0) {
        const size_t row = static_cast<size_t>(expert) * a.mat_rows[mat] + row_of_mat;
        const float* w = part.ptr<const float>(kStores + mat) + row * a.k;
        for (uint32_t i = 0; i < a.k; ++i) sum += x[i] * w[i];
      }
      part.ptr<float>(kY)[r * a.y_stride + column] = sum;
    }
  }
}

struct RowsArgs {
  uint32_t k, rows;
  int64_t y_stride;
};

// A chunk is one row of y: y[r] = row index[r] of the matrix.
void look_up(const RowsArgs& a, const sdk::Part& part) {
  enum { kOut, kIndex, kLiveRows, kStore };
  const uint32_t end = std::min({part.end(), *part.ptr<const uint32_t>(kLiveRows), a.rows});
  for (uint32_t r = part.begin(); r < end; ++r) {
    const auto row = static_cast<size_t>(part.ptr<const int32_t>(kIndex)[r]);
    std::copy_n(part.ptr<const float>(kStore) + row * a.k, a.k, part.ptr<float>(kOut) + r * a.y_stride);
  }
}

// T has source(), the format of a matrix's first tensor as cpu::claim_linear() wants it, and what
// Quantization asks for beside what is here.
template <class T>
class PlainScheme : public sdk::Quantization<T> {
 public:
  static constexpr uint32_t kRowInvariantMax = UINT32_MAX;
  using Site = cpu::LinearSite;

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    tenon_claim claim = cpu::claim_linear(s, &T::source, true);
    claim.pro = claim.epi = 0;
    return claim;
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    site->experts = s.experts;
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->mats.push_back(cpu::stored_matrix(s, i, TENON_F32, site->k * sizeof(float), T::source(s, i)));
    }
    return site;
  }

  // Every weight is held as it is meant. All rows come in one call: of a square matrix column_scale has the form of a
  // tensor by row, and would come in pieces.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = cpu::footprint_of(site, 0);
    f.flags |= TENON_FOOTPRINT_WHOLE | TENON_FOOTPRINT_EXACT;
    return f;
  }

  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& r) const {
    const tenon_tensor x = r.describe(call.x), y = r.describe(call.y);
    ProductArgs args{};
    args.k = site.k;
    args.rows = static_cast<uint32_t>(y.dim[0]);
    args.x_stride = x.stride[0] / 4;
    args.y_stride = y.stride[0] / 4;
    args.routed = site.experts != 0;
    const tenon_tid live = live_rows(call.row_live, r);
    std::vector<tenon_operand> operands{{call.y, TENON_WRITE},
                                        {call.x, TENON_READ},
                                        {live, TENON_READ},
                                        {args.routed ? call.expert : live, TENON_READ}};
    for (const cpu::StoredMatrix& m : site.mats) {
      operands.push_back({call.store[args.n_mats], TENON_READ});
      args.mat_rows[args.n_mats++] = m.rows;
    }
    r.emit<multiply>({.name = "multiply", .operands = operands, .chunks = {static_cast<uint32_t>(site.columns())}},
                     args);
  }

  void record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, sdk::Recorder& r) const {
    const tenon_tensor out = r.describe(y);
    const RowsArgs args{site.k, static_cast<uint32_t>(out.dim[0]), out.stride[0] / 4};
    const tenon_operand operands[] = {
        {y, TENON_WRITE}, {index, TENON_READ}, {r.step(TENON_STEP_LIVE), TENON_READ}, {store[0], TENON_READ}};
    r.emit<look_up>({.name = "look_up", .operands = operands, .chunks = {args.rows}}, args);
  }

 protected:
  static tenon_tid live_rows(tenon_tid given, sdk::Recorder& r) { return given != 0 ? given : r.step(TENON_STEP_LIVE); }
};

}  // namespace tenon::test
