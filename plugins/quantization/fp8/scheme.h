// This is quantization.fp8 on a device: Base multiplies x as it is given, and where x is to be rounded an op before the
// product does that. Matrices side by side whose x has a scale each are multiplied one by one, each by x rounded with
// its own scale. Where the device multiplies codes of x, a step of many rows is recorded by Ops instead.
//
// Ops(env) has the device's kernels:
//   void round(sdk::Recorder&, const sdk::OpSpec&, const RoundArgs&)       emits the op that rounds x
//   void observe(sdk::Recorder&, const sdk::OpSpec&, const LargestArgs&)   emits the op that finds the largest x
//   void put(void* to, const float& value, void* queue)                    value stays where it is
//   published::Matrix& matrix(Base::Site&)                                 the form of the site's first matrix
//   static constexpr bool kCodes                                           whether it has products of codes, and these:
//   uint32_t code(const Base&, tenon_linear&)                              how Base codes a site
//   bool multiplies_codes(const Base&, const Products&, uint32_t rows, CodedActivations)
//                                                                          whether so many rows are multiplied as codes
//   void record_codes(const Site&, const tenon_linear_call&, tenon_tid scales, sdk::Recorder&)    scales: of x, or 0
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "activations.h"
#include "published.h"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/quantization.h"

namespace tenon::fp8 {

// This is a site that has one of the matrices of another, in every set of experts.
class OneMatrix {
 public:
  OneMatrix(const tenon_linear& s, uint32_t mat) : site_(s) {
    for (uint32_t i = mat; i < std::max(s.experts, 1U) * s.n_mats; i += s.n_mats) matrices_.push_back(s.matrix[i]);
    site_.n_mats = 1;
    site_.out_dim = s.out_dim + mat;
    site_.matrix = matrices_.data();
    site_.epi = nullptr;
  }
  OneMatrix(const OneMatrix&) = delete;
  OneMatrix& operator=(const OneMatrix&) = delete;
  const tenon_linear& site() const { return site_; }

 private:
  std::vector<tenon_matrix> matrices_;
  tenon_linear site_;
};

// A site is multiplied by these products: one for each matrix whose x has a scale of its own, or one of all matrices.
struct Products {
  struct Part {
    uint32_t code;    // Base's code says how the weights are coded
    int64_t columns;  // the part has so many columns of y
  };
  uint32_t experts = 0;
  int64_t k = 0;
  std::vector<Part> parts;
};

// x says that it comes as rows of codes with a scale (tenon/sdk/linked_rows.h), and y that it is left so.
struct CodedActivations {
  bool x = false, y = false;
};

template <class Base, class Ops>
class Scheme : public sdk::Quantization<Scheme<Base, Ops>>, public PublishedSchema {
 public:
  static constexpr uint32_t kRowInvariantMax = Base::kRowInvariantMax;
  struct Part {
    std::unique_ptr<typename Base::Site> site;
    uint32_t first_store;
    int64_t columns;  // the part has so many columns of y
  };
  struct Site {
    Rounding rounding;
    uint32_t k = 0, experts = 0;
    std::vector<Part> parts;  // one of all matrices, or with static scales one a matrix
    Products products;        // they are the same parts, where the device has products of codes
    tenon_footprint footprint = sdk::abi_struct<tenon_footprint>();
    std::vector<float> scales;  // (sets, parts), the static scales of x
    // Returns the number of the store of scales, which comes after those of the parts.
    uint32_t scale_store() const { return footprint.n_stores - 1; }
  };

  Scheme(const sdk::Params& params, const sdk::Env& env)
      : base_(params, env), ops_(env), env_(env), wish_(params.text("activations")) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    const Activations a = rounding(s, wish_).by;
    const CodedActivations coded{s.x_format == TENON_F8E4M3, s.y_format == TENON_F8E4M3};
    const bool codes = has_codes(a) && multiplies_codes(products_of(s, a), b.rows, coded);
    if ((coded.x && a != Activations::kToken) || ((coded.x || coded.y) && !codes)) {
      throw sdk::Refused("activations in e4m3 where x is not multiplied as codes with a scale a row");
    }
    if (a != Activations::kF32 && s.x_format != TENON_F32 && !codes) {
      throw sdk::Refused("activations other than f32, which are to be rounded to e4m3");
    }
    tenon_linear site = s;
    // Codes stand where Base knows halves.
    if (coded.x) site.x_format = TENON_F16;
    if (coded.y) site.y_format = TENON_F16;
    // The epilogue of several products would have to wait for all of them, and only products of codes see to that.
    if (a == Activations::kStatic && s.n_mats > 1 && !codes) site.epi = nullptr;
    return base_.claim(site, b);
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    auto site = std::make_unique<Site>();
    site->rounding = rounding(s, wish_);
    if (wish_ == "auto" && s.product_wanted != 0 && site->rounding.by != Activations::kStatic) {
      for (std::string& name : x_scales(s)) unused_.insert(std::move(name));
    }
    site->k = static_cast<uint32_t>(s.in_dim);
    site->experts = s.experts;
    site->products = products_of(s, site->rounding.by);
    if (site->rounding.by != Activations::kStatic) {
      add_part(*site, s, claims);
      return site;
    }
    for (uint32_t i = 0; s.n_mats > 1 && i < s.n_mats; ++i) add_part(*site, OneMatrix(s, i).site(), {});
    if (s.n_mats == 1) add_part(*site, s, claims);
    site->scales.resize(std::max(s.experts, 1U) * site->parts.size());
    add_store(site->footprint, site->scales.size() * sizeof(float));
    return site;
  }

  tenon_footprint footprint(Site& site) const { return site.footprint; }

  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void* queue) const {
    tell_unused();
    if (site.rounding.by != Activations::kStatic) {
      return base_.load(*site.parts[0].site, src, store, scratch, queue);
    }
    const auto n = static_cast<uint32_t>(site.parts.size());
    Part& part = site.parts[src.mat % n];
    tenon_rows rows = src;
    rows.mat = src.mat / n;
    base_.load(*part.site, rows, store + part.first_store, scratch, queue);
    float& scale = site.scales[src.mat];
    scale = static_cast<const PublishedMatrix&>(ops_.matrix(*part.site)).x_scale();
    ops_.put(static_cast<float*>(store[site.scale_store()]) + src.mat, scale, queue);
  }

  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    if (site.rounding.by == Activations::kF32) return base_.record(*site.parts[0].site, call, rec);
    if constexpr (Ops::kCodes) {
      const auto rows = static_cast<uint32_t>(rec.describe(call.y).dim[0]);
      if (has_codes(site.rounding.by) && multiplies_codes(site.products, rows, {})) {
        const bool fixed = site.rounding.by == Activations::kStatic;
        return ops_.record_codes(site, call, fixed ? call.store[site.scale_store()] : 0, rec);
      }
    }
    const bool whole = site.parts.size() == 1;
    if (rec.describe(call.x).format != TENON_F32 || (!whole && !sdk::ops_of(call.epi).empty())) {
      throw sdk::Failed("x in halves, or ops after matrices side by side, which only products of codes take");
    }
    const tenon_tid x = record_round(site, call, rec);
    int64_t column = 0;
    for (size_t i = 0; i < site.parts.size(); ++i) {
      const Part& part = site.parts[i];
      tenon_linear_call product = call;
      product.pro = nullptr;
      product.x = whole ? x : columns_of(rec, x, static_cast<int64_t>(i) * site.k, site.k);
      product.y = whole ? call.y : columns_of(rec, call.y, column, part.columns);
      product.store = call.store + part.first_store;
      base_.record(*part.site, product, rec);
      column += part.columns;
    }
  }

  void record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, sdk::Recorder& rec) const {
    base_.record_rows(*site.parts[0].site, store, index, y, rec);
  }

  tenon_written describe(const tenon_linear& s) const
    requires requires(const Base& base) { base.describe(s); }
  {
    return base_.describe(s);
  }
  void encode(const tenon_linear& s, const tenon_encode& e) const
    requires requires(const Base& base) { base.encode(s, e); }
  {
    base_.encode(s, e);
  }

  // A matrix that is written with a static scale has the scale of the largest x that was observed.
  uint64_t observed_bytes(const tenon_linear&) const { return wish_ == "static" ? sizeof(float) : 0; }
  void observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& rec) const {
    const tenon_tensor x = rec.describe(call.x);
    const LargestArgs args{static_cast<uint32_t>(s.in_dim), static_cast<uint32_t>(x.dim[0]), std::max(s.experts, 1U),
                           rec.floats_of_row(call.x)};
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kLargestOperands, {{kLargest, call.state, TENON_READ | TENON_WRITE},
                                            {kLargestX, call.x, TENON_READ},
                                            {kLargestLive, live_of(call.row_live, rec), TENON_READ}});
    sdk::OpSpec spec{.name = "largest_x", .operands = operands, .chunks = {1}};
    spec.cost.read[sdk::kCostPerRow] = static_cast<double>(kFloatBytes * s.in_dim);
    ops_.observe(rec, spec, args);
  }

 private:
  static constexpr int64_t kFloatBytes = sizeof(float);

  // Products of codes have one scale for the whole of a row of x.
  static bool has_codes(Activations a) { return a == Activations::kToken || a == Activations::kStatic; }
  Products products_of(const tenon_linear& s, Activations a) const {
    Products all{s.experts, s.in_dim, {}};
    if constexpr (Ops::kCodes) {
      const bool apart = a == Activations::kStatic && s.n_mats > 1;
      for (uint32_t i = 0; i < (apart ? s.n_mats : 1); ++i) {
        const OneMatrix one(s, i);
        const tenon_linear& part = apart ? one.site() : s;
        int64_t columns = 0;
        for (uint32_t m = 0; m < part.n_mats; ++m) columns += part.out_dim[m];
        all.parts.push_back({ops_.code(base_, part), columns});
      }
    }
    return all;
  }
  bool multiplies_codes(const Products& products, uint32_t rows, CodedActivations coded) const {
    if constexpr (Ops::kCodes) return ops_.multiplies_codes(base_, products, rows, coded);
    return false;
  }

  static tenon_tid live_of(tenon_tid row_live, sdk::Recorder& rec) {
    return row_live != 0 ? row_live : rec.step(TENON_STEP_LIVE);
  }
  static tenon_tid columns_of(sdk::Recorder& rec, tenon_tid of, int64_t first, int64_t n) {
    tenon_tensor t = rec.describe(of);
    t.dim[1] = n;
    return rec.slice(of, t, static_cast<uint64_t>(first * kFloatBytes));
  }
  static void add_store(tenon_footprint& f, uint64_t bytes) {
    if (f.n_stores == TENON_MAX_STORES) throw sdk::Refused("a site of that many matrices whose x is rounded by scales");
    f.store_bytes[f.n_stores++] = bytes;
  }

  void add_part(Site& site, const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    tenon_footprint& all = site.footprint;
    Part part{base_.bind(s, claims), all.n_stores, 0};
    for (uint32_t i = 0; i < s.n_mats; ++i) part.columns += s.out_dim[i];
    const tenon_footprint f = base_.footprint(*part.site);
    for (uint32_t i = 0; i < f.n_stores; ++i) add_store(all, f.store_bytes[i]);
    // A site is exact if all of its parts are; one of them that wants whole matrices gets them.
    const uint32_t both = site.parts.empty() ? f.flags : all.flags & f.flags;
    all.flags = both | ((all.flags | f.flags) & TENON_FOOTPRINT_WHOLE);
    all.load_bytes = std::max(all.load_bytes, f.load_bytes);
    site.parts.push_back(std::move(part));
  }

  // Returns (rows, parts * k).
  tenon_tid record_round(const Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    const tenon_tensor x = rec.describe(call.x);
    const auto parts = static_cast<uint32_t>(site.parts.size()), rows = static_cast<uint32_t>(x.dim[0]);
    const tenon_tid to = rec.temp(sdk::tensor(TENON_F32, {x.dim[0], int64_t{parts} * site.k}));
    RoundArgs args{};
    args.k = site.k;
    args.rows = rows;
    args.parts = parts;
    args.experts = site.experts;
    args.group = site.rounding.group != 0 ? site.rounding.group : site.k;
    args.powers_of_two = site.rounding.powers_of_two ? 1 : 0;
    args.x_stride = rec.floats_of_row(call.x);
    tenon_tid norm = 0, scales = 0, expert = 0;
    for (const tenon_fop& op : sdk::ops_of(call.pro)) {
      if (op.id != TENON_F_RMSNORM || args.has_norm != 0) throw sdk::Failed("a prologue that was not claimed");
      args.has_norm = 1;
      args.eps = sdk::RmsNormOp(op).eps;
      norm = sdk::RmsNormOp(op).weight;
    }
    if (site.rounding.by == Activations::kStatic) {
      args.has_scales = 1;
      scales = call.store[site.scale_store()];
      if (site.experts != 0) expert = call.expert;
    }
    const tenon_tid live = live_of(call.row_live, rec);
    const std::vector<tenon_operand> operands = sdk::operands_by(
        kRoundOperands,
        {{kRounded, to, TENON_WRITE}, {kRoundedX, call.x, TENON_READ}, {kRoundedLive, live, TENON_READ}},
        {live, TENON_READ},
        {{kRoundedNorm, norm, TENON_READ}, {kRoundedScales, scales, TENON_READ}, {kRoundedExpert, expert, TENON_READ}});
    sdk::OpSpec spec{.name = "round_rows", .operands = operands, .chunks = {rows}};
    spec.cost.read[sdk::kCostPerRow] = double{sizeof(float)} * site.k;
    spec.cost.written[sdk::kCostPerRow] = double{sizeof(float)} * site.k * parts;
    ops_.round(rec, spec, args);
    return to;
  }

  // All sites are bound before the first is loaded. Programs that keep to config.json leave these scales alone, too.
  void tell_unused() const {
    if (unused_.empty()) return;
    const std::string others =
        unused_.size() == 1 ? " is" : " and " + std::to_string(unused_.size() - 1) + " scales of x like it are";
    env_.log(kWarning, "quantization.fp8: tensor " + *unused_.begin() + others +
                           " not used, since config.json does not say that x is rounded by the file's scales; "
                           "activations = \"static\" uses them");
    unused_.clear();
  }

  static constexpr uint32_t kWarning = 2;
  Base base_;
  Ops ops_;
  sdk::Env env_;
  std::string wish_;
  mutable std::set<std::string> unused_;  // [setup] only: scales of x in the file that "auto" does not use
};

}  // namespace tenon::fp8
