// quantization.plain keeps weights as fp32, and sums each product in the order of the columns.
#include <algorithm>
#include <memory>
#include <string>

#include "tenon/sdk/cpu/linear.h"
#include "tenon/sdk/quantization.h"

namespace sdk = tenon::sdk;
namespace cpu = tenon::sdk::cpu;

namespace {

struct ProductArgs {
  uint32_t k, rows, n_mats, mat_rows[TENON_MAX_STORES];
  int64_t x_stride, y_stride;  // elements
};
enum ProductOperand { kY, kX, kLive, kStores };

// A chunk is one column of y, over all live rows.
void multiply(const ProductArgs& a, const sdk::Part& part) {
  const uint32_t live = std::min(*part.ptr<const uint32_t>(kLive), a.rows);
  for (uint32_t column = part.begin(); column < part.end(); ++column) {
    uint32_t mat = 0, row_of_mat = column;
    while (row_of_mat >= a.mat_rows[mat]) row_of_mat -= a.mat_rows[mat++];
    const float* w = part.ptr<const float>(kStores + mat) + size_t{row_of_mat} * a.k;
    for (uint32_t r = 0; r < live; ++r) {
      const float* x = part.ptr<const float>(kX) + r * a.x_stride;
      float sum = 0;
      for (uint32_t i = 0; i < a.k; ++i) sum += x[i] * w[i];
      part.ptr<float>(kY)[r * a.y_stride + column] = sum;
    }
  }
}

struct RowsArgs {
  uint32_t k, rows, mat_rows;
  int64_t y_stride;
};

enum RowsOperand { kOut, kIndex, kLiveRows, kStore, kRowsOperands };

// A chunk is one row of y: y[r] = row index[r] of the matrix.
void look_up(const RowsArgs& a, const sdk::Part& part) {
  const uint32_t end = std::min({part.end(), *part.ptr<const uint32_t>(kLiveRows), a.rows});
  for (uint32_t r = part.begin(); r < end; ++r) {
    const int32_t row = part.ptr<const int32_t>(kIndex)[r];
    if (row < 0 || static_cast<uint32_t>(row) >= a.mat_rows) throw sdk::Failed("no row " + std::to_string(row));
    std::copy_n(part.ptr<const float>(kStore) + size_t{static_cast<uint32_t>(row)} * a.k, a.k,
                part.ptr<float>(kOut) + r * a.y_stride);
  }
}

class Plain : public sdk::Quantization<Plain> {
 public:
  static constexpr const char* kName = "plain";
  static constexpr const char* kDoc = "Weights as fp32, multiplied as the formula says";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = UINT32_MAX;  // a row's sums do not look at other rows
  using Site = cpu::LinearSite;

  Plain(const sdk::Params&, const sdk::Env&) {}

  // Throws Refused for what it cannot do. It takes on nothing of what stands before and after the product.
  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    tenon_claim claim = cpu::claim_linear(s);
    claim.pro = claim.epi = 0;
    return claim;
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    site->exact = true;  // fp32 holds every value that a file may have
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->mats.push_back(cpu::stored_matrix(s, i, TENON_F32, site->k * sizeof(float), cpu::unpacked_source(s, i)));
    }
    return site;
  }

  tenon_footprint footprint(Site& site) const { return cpu::footprint_of(site, 0); }

  void load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
    cpu::each_loaded_row(site, src, store, [&](uint8_t* to, const cpu::FileRow& from) {
      tenon::sdk::unpack_row(site.mat(src).source, from[0], site.k, reinterpret_cast<float*>(to));
    });
  }

  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& r) const {
    const tenon_tensor x = r.describe(call.x), y = r.describe(call.y);
    ProductArgs args{};
    args.k = site.k;
    args.rows = static_cast<uint32_t>(y.dim[0]);
    args.x_stride = x.stride[0] / 4;
    args.y_stride = y.stride[0] / 4;
    std::vector<tenon_operand> operands =
        sdk::operands_by(kStores, {{kY, call.y, TENON_WRITE},
                                   {kX, call.x, TENON_READ},
                                   {kLive, call.row_live != 0 ? call.row_live : r.step(TENON_STEP_LIVE), TENON_READ}});
    for (const cpu::StoredMatrix& m : site.mats) {
      operands.push_back({call.store[args.n_mats], TENON_READ});
      args.mat_rows[args.n_mats++] = m.rows;
    }
    const auto columns = static_cast<uint32_t>(site.columns());
    tenon_cost cost{};
    cost.read[tenon::sdk::kFixedCost] = static_cast<double>(site.bytes());
    cost.read[tenon::sdk::kCostPerRow] = 4.0 * site.k;
    cost.written[tenon::sdk::kCostPerRow] = 4.0 * columns;
    cost.flops[tenon::sdk::kCostPerRow] = 2.0 * site.k * columns;
    r.emit<multiply>({.name = "multiply", .operands = operands, .chunks = {columns}, .cost = cost}, args);
  }

  // An embedding looks rows up.
  void record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, sdk::Recorder& r) const {
    const tenon_tensor out = r.describe(y);
    const RowsArgs args{site.k, static_cast<uint32_t>(out.dim[0]), site.mats[0].rows, out.stride[0] / 4};
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kRowsOperands, {{kOut, y, TENON_WRITE},
                                         {kIndex, index, TENON_READ},
                                         {kLiveRows, r.step(TENON_STEP_LIVE), TENON_READ},
                                         {kStore, store[0], TENON_READ}});
    r.emit<look_up>({.name = "look_up", .operands = operands, .chunks = {args.rows}}, args);
  }
};

}  // namespace

TENON_PLUGIN(Plain);
