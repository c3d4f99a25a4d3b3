// This gives rows of a site's first matrix as f32, by index: so an embedding is looked up. A chunk is a row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/sdk/cpu/linear_site.h"
#include "tenon/sdk/cpu/packed_rows.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk::cpu {

// This is looked up: rows `index` of the matrix in `store` become the rows of y.
struct RowLookup {
  tenon_tid store, index, y;
};

namespace detail {

enum RowLookupOperand : uint32_t { kRowsY, kRowsIndex, kRowsLive, kRowsStore, kRowLookupOperands };

struct RowLookupArgs {
  Isa isa;
  uint32_t packed;    // 1: the matrix is packed
  uint32_t code;      // the code of its format
  uint32_t k, rows;   // the sizes of y
  uint32_t mat_rows;  // the matrix has so many
  uint64_t row_bytes;
  int64_t y_stride;  // floats
};

template <KernelsOf kKernelsOf>
void run_row_lookup(const RowLookupArgs& a, const Part& p) {
  const Kernels kernels = kKernelsOf(a.isa);
  const Packing* packing = a.packed != 0 ? kernels.packing(a.code) : nullptr;
  const uint32_t live = std::min(p.ptr<const uint32_t>(kRowsLive)[kLiveRows], a.rows);
  const auto* store = p.ptr<const uint8_t>(kRowsStore);
  auto* w = p.thread_scratch<float>();  // (padded(k))
  for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) {
    const int32_t row = p.ptr<const int32_t>(kRowsIndex)[r];
    if (row < 0 || static_cast<uint32_t>(row) >= a.mat_rows) {
      throw Failed("row " + std::to_string(row) + " of an embedding of " + std::to_string(a.mat_rows) + " rows");
    }
    float* y = p.ptr<float>(kRowsY) + r * a.y_stride;
    if (packing != nullptr) {
      unpack_packed_row(*packing, store, a.k, static_cast<uint32_t>(row), y);
      continue;
    }
    const float scale = kernels.f32->find(a.code)->unpack(store + static_cast<size_t>(row) * a.row_bytes, a.k, w);
    for (uint32_t i = 0; i < a.k; ++i) y[i] = w[i] * scale;
  }
}

}  // namespace detail

template <KernelsOf kKernelsOf>
void record_row_lookup(const LinearSite& site, Isa isa, const RowLookup& call, Recorder& rec) {
  const StoredMatrix& m = site.mats.front();
  const tenon_tensor y = rec.describe(call.y);
  detail::RowLookupArgs a{};
  a.isa = isa;
  a.packed = site.packed() ? 1U : 0U;
  a.code = m.code;
  a.k = site.k;
  a.rows = static_cast<uint32_t>(y.dim[0]);
  a.mat_rows = m.rows;
  a.row_bytes = m.row_bytes;
  a.y_stride = rec.floats_of_row(call.y);
  using enum detail::RowLookupOperand;
  const std::vector<tenon_operand> operands =
      operands_by(kRowLookupOperands, {{kRowsY, call.y, TENON_WRITE},
                                       {kRowsIndex, call.index, TENON_READ},
                                       {kRowsLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                       {kRowsStore, call.store, TENON_READ}});
  OpSpec spec{.name = "rows", .operands = operands, .chunks = {a.rows}};
  spec.cost.read[kCostPerRow] = static_cast<double>(m.row_bytes);
  spec.cost.written[kCostPerRow] = double{sizeof(float)} * site.k;
  spec.thread_scratch_bytes = padded(site.k) * sizeof(float);
  rec.emit<&detail::run_row_lookup<kKernelsOf>>(spec, a);
}

}  // namespace tenon::sdk::cpu
