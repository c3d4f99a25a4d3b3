// This scheme has tensors of its own, one of which has no rows, and takes two passes: "codes" u8 (n, k) and "levels"
// f32 (256). A weight is levels[code] less the mean of all weights of the matrix, which the first pass finds. With
// `whole` load() wants a matrix in one call.
#include <memory>
#include <vector>

#include "tenon/sdk/cpu/linear.h"
#include "tenon/sdk/quantization.h"

namespace acme {

namespace cpu = tenon::sdk::cpu;
namespace sdk = tenon::sdk;

struct Centred : sdk::Quantization<Centred> {
  static constexpr const char* kName = "acme.centred";
  static constexpr const char* kDoc = "Codes of 256 levels, less their mean.";
  static constexpr auto kParams =
      sdk::params(sdk::boolean({.name = "whole", .doc = "Whether a matrix comes in one call.", .value = false}));
  static constexpr uint32_t kRowInvariantMax = UINT32_MAX;
  enum { kCodes, kLevels };
  struct Site : cpu::LinearSite {
    std::vector<double> sum;  // by matrix
  };
  struct Args {
    uint32_t k, rows;
    int64_t x_stride, y_stride;  // elements
  };

  Centred(const sdk::Params& params, const sdk::Env&) : whole_(params.boolean("whole")) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    tenon_claim claim = cpu::claim_linear(s, &source);
    if (std::string_view(s.description) != R"({"quant_method":"centred"})") throw sdk::Refused("another description");
    claim.pro = claim.epi = 0;
    return claim;
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->mats.push_back(cpu::stored_matrix(s, i, TENON_F32, site->k * sizeof(float), source(s, i)));
    }
    site->sum.resize(s.n_mats);
    return site;
  }
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = cpu::footprint_of(site, 0);
    f.passes = 2;
    f.flags |= whole_ ? TENON_FOOTPRINT_WHOLE : 0;
    return f;
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
    const uint64_t rows = site.mat(src).rows;
    if (whole_ && src.rows != rows) throw sdk::Failed("not all rows in one call");
    cpu::each_loaded_row(site, src, store, [&](uint8_t* to, const cpu::FileRow& from) {
      auto* w = reinterpret_cast<float*>(to);
      for (uint32_t i = 0; i < site.k; ++i) {
        float level = 0;
        std::memcpy(&level, from[kLevels] + sizeof(float) * from[kCodes][i], sizeof(level));
        if (src.pass == 0) site.sum[src.mat] += static_cast<double>(level);
        const double mean = site.sum[src.mat] / static_cast<double>(rows * site.k);
        if (src.pass == 1) w[i] = level - static_cast<float>(mean);
      }
    });
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& r) const {
    const tenon_tensor x = r.describe(call.x), y = r.describe(call.y);
    const Args args{site.k, static_cast<uint32_t>(y.dim[0]), x.stride[0] / 4, y.stride[0] / 4};
    const std::vector<tenon_operand> operands{
        {call.y, TENON_WRITE},
        {call.x, TENON_READ},
        {call.row_live != 0 ? call.row_live : r.step(TENON_STEP_LIVE), TENON_READ},
        {call.store[0], TENON_READ}};
    r.emit<multiply>({.name = "multiply", .operands = operands, .chunks = {site.mats[0].rows}}, args);
  }

 private:
  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    if (s.n_mats != 1) throw sdk::Refused("several matrices");
    const tenon_stored expected[] = {{"codes", TENON_U8, 2, {s.out_dim[mat], s.in_dim, 0, 0}},
                                     {"levels", TENON_F32, 1, {256, 0, 0, 0}}};
    sdk::need_tensors(s.matrix[mat], expected);
    return TENON_FORMAT_NONE;
  }
  // A chunk is a column of y.
  static void multiply(const Args& a, const sdk::Part& part) {
    const uint32_t live = std::min(*part.ptr<const uint32_t>(2), a.rows);
    for (uint32_t column = part.begin(); column < part.end(); ++column) {
      const float* w = part.ptr<const float>(3) + size_t{column} * a.k;
      for (uint32_t r = 0; r < live; ++r) {
        const float* x = part.ptr<const float>(1) + r * a.x_stride;
        float sum = 0;
        for (uint32_t i = 0; i < a.k; ++i) sum += x[i] * w[i];
        part.ptr<float>(0)[r * a.y_stride + column] = sum;
      }
    }
  }

  bool whole_;
};

}  // namespace acme

TENON_PLUGIN(acme::Centred);
