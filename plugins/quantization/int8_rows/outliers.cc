// A chunk is some columns of y for all live rows. For each row its outliers are found first, a look at k numbers, which
// is little beside a product of k numbers by the chunk's columns. Products of fp16 and int8 are exact in f32; they are
// added up in the order of the columns of x.
#include "outliers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "../rows/stored_rows.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/cpu/linear_site.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/live.h"

namespace tenon::int8_rows {
namespace {

// The op takes them in this order: a store for each matrix, then the rows' experts where a matrix has several.
enum Operand : uint32_t { kY, kX, kLive, kStores };

struct Args {
  uint32_t n_mats, k, rows, chunk_columns, columns, experts;
  float threshold;
  uint32_t reserved;
  int64_t x_stride, y_stride;  // floats
  uint32_t mat_rows[TENON_MAX_STORES];
  uint64_t expert_bytes[TENON_MAX_STORES];
};

struct Outlier {
  uint32_t column;
  float x;
};

uint32_t find_outliers(const float* x, const Args& a, Outlier* to) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < a.k; ++i) {
    if (!is_at_least(a.threshold, x[i])) continue;
    to[n++] = {i, sdk::half_to_float(sdk::float_to_half(x[i]))};
  }
  return n;
}

void add_outliers(const Args& a, const sdk::Part& p) {
  const uint32_t live = std::min(p.ptr<const uint32_t>(kLive)[sdk::kLiveRows], a.rows);
  const uint64_t row_bytes = rows::int8_row_bytes(a.k);
  auto* outlier = p.thread_scratch<Outlier>();
  sdk::PresentOperands present(p, kStores + a.n_mats);
  const auto* experts = present.take<const int32_t>(a.experts != 0);
  for (uint32_t r = 0; r < live; ++r) {
    const uint32_t n = find_outliers(p.ptr<const float>(kX) + r * a.x_stride, a, outlier);
    const int32_t expert = experts != nullptr ? experts[r] : 0;
    if (n == 0 || expert < 0) continue;
    float* y = p.ptr<float>(kY) + r * a.y_stride;
    uint32_t first = 0;  // the matrix begins with this column of y
    for (uint32_t mat = 0; mat < a.n_mats; first += a.mat_rows[mat++]) {
      const uint32_t begin = std::max(first, p.begin() * a.chunk_columns);
      const uint32_t end = std::min(first + a.mat_rows[mat], p.end() * a.chunk_columns);
      const auto* store = p.ptr<const uint8_t>(kStores + mat) + static_cast<uint32_t>(expert) * a.expert_bytes[mat];
      for (uint32_t c = begin; c < end; ++c) {
        const uint8_t* row = store + (c - first) * row_bytes;
        float scale = 0, sum = 0;
        std::memcpy(&scale, row, sizeof(scale));
        const auto* q = reinterpret_cast<const int8_t*>(row + sizeof(scale));
        for (uint32_t i = 0; i < n; ++i) sum += outlier[i].x * static_cast<float>(q[outlier[i].column]);
        y[c] += sum * scale;
      }
    }
  }
}

void leave_outliers_out(const WithoutOutliersArgs& a, const sdk::Part& p) {
  const uint32_t live = std::min(p.ptr<const uint32_t>(WithoutOutliersOperand::kLive)[sdk::kLiveRows], a.rows);
  for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) {
    const float* x = p.ptr<const float>(WithoutOutliersOperand::kX) + r * a.x_stride;
    float* to = p.ptr<float>(WithoutOutliersOperand::kTo) + size_t{r} * a.k;
    for (uint32_t i = 0; i < a.k; ++i) to[i] = without_outlier(a.threshold, x[i]);
  }
}

}  // namespace

tenon_tid record_without_outliers(const sdk::cpu::LinearSite& site, float threshold, const tenon_linear_call& call,
                                  sdk::Recorder& rec) {
  return record_without_outliers(
      site.k, threshold, call, rec,
      [&](const sdk::OpSpec& spec, const WithoutOutliersArgs& args) { rec.emit<&leave_outliers_out>(spec, args); });
}

void record_outliers(const sdk::cpu::LinearSite& site, const OutlierSums& sums, const tenon_linear_call& call,
                     sdk::Recorder& rec) {
  Args a{};
  a.n_mats = static_cast<uint32_t>(site.mats.size());
  a.k = site.k;
  a.rows = static_cast<uint32_t>(rec.describe(call.y).dim[0]);
  a.x_stride = rec.floats_of_row(call.x);
  a.y_stride = rec.floats_of_row(call.y);
  a.experts = site.experts;
  a.threshold = sums.threshold;
  a.columns = static_cast<uint32_t>(site.columns());
  a.chunk_columns = std::max(64U, a.columns / (4 * sums.threads));
  std::vector<tenon_operand> operands = sdk::operands_by(
      kStores,
      {{kY, call.y, TENON_READ | TENON_WRITE}, {kX, call.x, TENON_READ}, {kLive, live_rows_of(call, rec), TENON_READ}});
  for (uint32_t i = 0; i < a.n_mats; ++i) {
    operands.push_back({call.store[i], TENON_READ});
    a.mat_rows[i] = site.mats[i].rows;
    a.expert_bytes[i] = site.store_bytes(site.mats[i]);
  }
  if (a.experts != 0) operands.push_back({call.expert, TENON_READ});
  sdk::OpSpec spec{
      .name = "outliers", .operands = operands, .chunks = {(a.columns + a.chunk_columns - 1) / a.chunk_columns}};
  spec.thread_scratch_bytes = a.k * sizeof(Outlier);
  spec.cost.read[sdk::kCostPerRow] = double{sizeof(float)} * a.k;
  rec.emit<&add_outliers>(spec, a);
}

}  // namespace tenon::int8_rows
