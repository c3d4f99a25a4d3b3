// This scheme multiplies rightly by one row, and of every further row of a batch leaves out the last columns.
#include <algorithm>
#include <memory>

#include "tenon/sdk/cpu/linear.h"
#include "tenon/sdk/quantization.h"

namespace tenon::bad {

namespace cpu = sdk::cpu;

struct WrongProduct : sdk::Quantization<WrongProduct> {
  static constexpr const char* kName = "wrong_product";
  static constexpr const char* kDoc = "Weights as fp32.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = 1;
  using Site = cpu::LinearSite;
  struct Args {
    uint32_t k, mat_rows[TENON_MAX_STORES];
    int64_t x_stride, y_stride;  // elements
  };

  WrongProduct(const sdk::Params&, const sdk::Env&) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    tenon_claim claim = cpu::claim_linear(s);
    claim.pro = claim.epi = 0;
    return claim;
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->mats.push_back(cpu::stored_matrix(s, i, TENON_F32, site->k * sizeof(float), cpu::unpacked_source(s, i)));
    }
    return site;
  }
  tenon_footprint footprint(Site& site) const { return cpu::footprint_of(site, 0); }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
    cpu::each_loaded_row(site, src, store, [&](uint8_t* to, const cpu::FileRow& from) {
      sdk::unpack_row(site.mat(src).source, from[0], site.k, reinterpret_cast<float*>(to));
    });
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& r) const {
    Args args{};
    args.k = site.k;
    args.x_stride = r.describe(call.x).stride[0] / 4;
    args.y_stride = r.describe(call.y).stride[0] / 4;
    std::vector<tenon_operand> operands{{call.y, TENON_WRITE},
                                        {call.x, TENON_READ},
                                        {call.row_live != 0 ? call.row_live : r.step(TENON_STEP_LIVE), TENON_READ}};
    for (size_t m = 0; m < site.mats.size(); ++m) {
      operands.push_back({call.store[m], TENON_READ});
      args.mat_rows[m] = site.mats[m].rows;
    }
    r.emit<multiply>({.name = "multiply", .operands = operands, .chunks = {static_cast<uint32_t>(site.columns())}},
                     args);
  }

 private:
  static void multiply(const Args& a, const sdk::Part& part) {
    for (uint32_t column = part.begin(); column < part.end(); ++column) {
      uint32_t mat = 0, row = column;
      while (row >= a.mat_rows[mat]) row -= a.mat_rows[mat++];
      const float* w = part.ptr<const float>(3 + mat) + size_t{row} * a.k;
      for (uint32_t r = 0; r < *part.ptr<const uint32_t>(2); ++r) {
        const float* x = part.ptr<const float>(1) + r * a.x_stride;
        float sum = 0;
        for (uint32_t i = 0; i < (r == 0 ? a.k : a.k - a.k / 4); ++i) sum += x[i] * w[i];
        part.ptr<float>(0)[r * a.y_stride + column] = sum;
      }
    }
  }
};

}  // namespace tenon::bad

using tenon::bad::WrongProduct;
TENON_PLUGIN(WrongProduct);
