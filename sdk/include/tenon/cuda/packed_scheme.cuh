// PackedScheme is the base of a quantization scheme on CUDA that packs a site's weights (packed.cuh). The concept
// PackingScheme lists what the scheme has to have. How a step is multiplied depends on its rows:
//
//   up to 8       by matvec.cuh
//   up to 16      by matvec.cuh if the GPU is not Hopper, the weights are sparse, or the site has few tiles and no links,
//                 else by tile_gemm.cuh
//   up to 1024    by tile_gemm.cuh on Hopper; up to 128, of codes 256, where the site keeps plain weights, too
//   otherwise     by plain weights (gemm.h), which the site keeps or which are unpacked into a temporary
#pragma once

#include <algorithm>
#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tenon/cuda/gemm.h"
#include "tenon/cuda/packed_ops.cuh"
#include "tenon/cuda/packed_site.cuh"
#include "tenon/cuda/unpack.cuh"
#include "tenon/sdk/linked_rows.h"

namespace tenon::cuda {

namespace detail {

// Takes a format of any type.
struct AnyFormat {
  template <class F>
  void operator()(F) const {}
};

}  // namespace detail

// These are the members of a scheme. The base has a source() that takes plain matrices of floats, and kRouted = false.
// Example: Int8wo has code() = 0 for any matrices, and with_format(0, f) calls f(Int8Format<>{}).
template <class T>
concept PackingScheme = requires(const T& scheme, std::span<const tenon_format> sources, PackedSite& site,
                                 const tenon_rows& rows, void* const* store, const tenon_linear& linear) {
  // If true, it takes routed sites, too.
  { T::kRouted } -> std::convertible_to<bool>;
  // Returns the format that the file has a matrix in, of a routed site the first expert's; throws Refused.
  { T::source(linear, 0U) } -> std::same_as<tenon_format>;
  // Returns the code of the format that a site gets, from the formats of its matrices in the file.
  { scheme.code(sources) } -> std::convertible_to<uint32_t>;
  // Returns true if each weight of the site has the value that it has in the file.
  { scheme.exact(site) } -> std::same_as<bool>;
  // Calls f with an object of the format (formats.cuh) of a code.
  T::with_format(0U, detail::AnyFormat{});
  // Loads rows into the stores. The last two arguments are scratch memory and the queue.
  scheme.load(site, rows, store, nullptr, nullptr);
};

template <class T>
class PackedScheme : public sdk::Quantization<T> {
 public:
  // Steps of one row a sequence keep to it up to kSteadySequences.
  static constexpr uint32_t kRowInvariantMax = kPairedRows, kSteadySequences = 4;
  static constexpr bool kRouted = false;
  // Many rows of x and y may have this type; 0: that of the unpacked weights. A scheme
  // hides it that records such steps itself.
  static constexpr tenon_format kManyRowsFormat = 0;
  using Site = PackedSite;

  // If `plain_copy`, sites keep plain weights (tenon/sdk/plain_copy.h), and load() ends with load_plain().
  explicit PackedScheme(const sdk::Env& env, bool plain_copy = false)
      : plain_copy_(plain_copy),
        arch_(env.device().arch),
        blocks_(env.device().units),
        most_block_bytes_(static_cast<uint32_t>(env.device().shared_per_unit) - kReservedBytes) {
    static_assert(PackingScheme<T>);
  }
  static tenon_format source(const tenon_linear& s, uint32_t mat) { return plain_source(s, mat, &is_float); }

  // The claim is the same for every batch shape, since SILU_MUL decides how tiles are made.
  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    detail::check_site(s, &T::source, T::kRouted);
    auto claim = sdk::abi_struct<tenon_claim>();
    const std::vector<tenon_fop> pro = sdk::ops_of(s.pro);
    // SILU_MUL is taken where y has two equal halves.
    const bool halves = s.n_mats == 2 ? s.out_dim[0] == s.out_dim[1] : s.n_mats == 1 && s.out_dim[0] % 2 == 0;
    claim.pro = !pro.empty() && pro.back().id == TENON_F_RMSNORM ? 1 : 0;
    claim.epi = detail::taken_of(sdk::ops_of(s.epi), halves);
    if (s.x_format != TENON_F32 || s.y_format != TENON_F32) check_activations(s, b, claim);
    return claim;
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    site->experts = s.experts;
    site->keeps_plain = keeps_plain(s);
    for (uint32_t i = 0; i < s.n_mats; ++i) site->source.push_back(T::source(s, i));
    site->code = self().code(site->source);
    site->exact = self().exact(*site);
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->first.push_back(site->map.columns);
      site->rows.push_back(static_cast<uint32_t>(s.out_dim[i]));
      site->map.columns += site->rows.back();
    }
    const std::vector<tenon_fop> epi = sdk::ops_of(s.epi);
    for (const tenon_claim* c : claims) {
      for (uint32_t i = 0; i < sdk::read_abi(c).epi; ++i) site->map.halves |= epi[i].id == TENON_F_SILU_MUL ? 1 : 0;
    }
    T::with_format(site->code, [&]<class F>(F) {
      site->weight_bytes = uint64_t{site->map.tiles()} * segments_of<F>(site->k) * F::kSegmentBytes;
      site->stores = kStores<F>;
    });
    return site;
  }

  // Says whether so many rows are multiplied by plain weights.
  template <PackedFormat F>
  bool takes_plain(uint32_t experts, bool keeps_plain, uint32_t rows) const {
    return rows > kMatvecRows && experts == 0 && !(prefers_tiles<F>(rows, keeps_plain) && has_tiles<F>());
  }

  tenon_footprint footprint(Site& site) const {
    auto f = sdk::abi_struct<tenon_footprint>();
    f.n_stores = site.stores;
    f.flags = site.exact ? TENON_FOOTPRINT_EXACT : 0;
    const uint32_t sets = std::max(site.experts, 1U);
    f.store_bytes[0] = sets * site.weight_bytes;
    if (site.stores == 2) f.store_bytes[1] = sets * scale_bytes(site);
    if (site.keeps_plain) f.store_bytes[f.n_stores++] = plain_bytes(site);
    return f;
  }

  // Fills the plain weights of rows that have been loaded, if the site keeps such.
  static void load_plain(const Site& site, const tenon_rows& src, void* const* store, void* queue) {
    if (!site.keeps_plain || src.rows == 0) return;
    T::with_format(site.code, [&]<class F>(F) {
      UnpackArgs a{};
      a.map = site.map;
      a.k = site.k;
      a.rows = static_cast<uint32_t>(src.rows);
      a.first_column = site.first[src.mat] + static_cast<uint32_t>(src.row0);
      copy_rows<F>(a, store[0], site.stores == 2 ? store[1] : nullptr, store[site.stores], queue);
    });
  }

  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    const auto rows = static_cast<uint32_t>(sdk::rows_of(rec.describe(call.y)));
    T::with_format(site.code, [&]<class F>(F) {
      if (takes_plain<F>(site.experts, site.keeps_plain, rows)) {
        record_plain<F>(site, call, rec);
      } else {
        record_packed<F>(site, call, rows, rec);
      }
    });
  }

  // Returns the code of the format that a site gets; throws Refused.
  uint32_t code_of(const tenon_linear& s) const {
    std::vector<tenon_format> sources;
    for (uint32_t i = 0; i < s.n_mats; ++i) sources.push_back(T::source(s, i));
    return self().code(sources);
  }
  // Says whether such products of a format's code take columns in an order of their own (RowSource::order).
  struct OrderedProduct {
    uint32_t k, experts, rows;
  };
  static bool takes_order(uint32_t code, const OrderedProduct& of) {
    bool takes = false;
    T::with_format(code, [&]<class F>(F) { takes = kTakesOrder<F>; });
    return takes && of.k <= kMostOrdered && of.experts == 0 && of.rows <= kPairedRows;
  }
  // Records a product that does. order: u16 (k).
  void record_in_order(Site& site, const tenon_linear_call& call, tenon_tid order, sdk::Recorder& rec) const {
    const auto rows = static_cast<uint32_t>(sdk::rows_of(rec.describe(call.y)));
    T::with_format(site.code, [&]<class F>(F) { record_packed<F>(site, call, rows, rec, order); });
  }

  void record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, sdk::Recorder& rec) const {
    const tenon_tensor out = rec.describe(y);
    const UnpackArgs a{.map = site.map,
                       .k = site.k,
                       .rows = static_cast<uint32_t>(out.dim[0]),
                       .matrix_rows = site.rows[0],
                       .first_column = 0,
                       .y_stride = rec.floats_of_row(y)};
    using Operand = LookupOperand;
    const std::vector<tenon_operand> operands =
        sdk::operands_by(Operand::kCount,
                         {{Operand::kY, y, TENON_WRITE},
                          {Operand::kIndex, index, TENON_READ},
                          {Operand::kLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                          {Operand::kWeights, store[0], TENON_READ}},
                         {store[0], TENON_READ}, {{Operand::kScales, site.scale_store(store), TENON_READ}});
    sdk::OpSpec spec{.name = "rows", .operands = operands, .chunks = {}};
    spec.cost.read[kCostPerRow] = static_cast<double>(site.weight_bytes) / (site.map.tiles() * kTileRows);
    spec.cost.written[kCostPerRow] = 4.0 * site.k;
    T::with_format(site.code, [&]<class F>(F) { emit<&run_lookup<F>>(rec, spec, a); });
  }

 private:
  const T& self() const { return static_cast<const T&>(*this); }
  bool keeps_plain(const tenon_linear& s) const { return plain_copy_ && s.product_wanted != 0 && s.experts == 0; }
  static uint64_t scale_bytes(const Site& site) { return uint64_t{site.map.tiles()} * kTileRows * sizeof(float); }
  static uint64_t plain_bytes(const Site& site) {
    uint64_t bytes = 0;
    T::with_format(site.code, [&]<class F>(F) { bytes = uint64_t{site.map.columns} * site.k * sizeof(PlainOf<F>); });
    return bytes;
  }
  // Says whether tiles multiply so many rows sooner than cuBLASLt does, which beside a plain copy has nothing to unpack.
  // Codes bring fewer bytes through L2 than plain weights; at 192 rows, two whole bands, their products link as well.
  template <PackedFormat F>
  static constexpr bool prefers_tiles(uint32_t rows, bool keeps_plain) {
    constexpr bool kCodes = F::kSegmentBytes < sizeof(PlainOf<F>) * kTileRows * F::kSegmentK;
    if (!keeps_plain) return rows <= kTileGemmRows;
    return rows <= 128 || (kCodes && rows == 192);
  }

  template <PackedFormat F>
  bool has_tiles() const {
    if constexpr (std::is_void_v<typename F::Half>) return false;
    return TileGemm<F>::fits(TENON_PLUGIN_TARGETS, arch_);
  }
  // If `linked`, the product takes x or leaves y as only tile_gemm.cuh does. That fills in the zeros of sparse weights.
  template <PackedFormat F>
  bool takes_tiles(const MatvecArgs& a, bool keeps_plain, bool linked) const {
    constexpr uint32_t kSince = kSparse<F> ? kMatvecRows + 1 : kTileGemmSince;
    return a.rows >= kSince && prefers_tiles<F>(a.rows, keeps_plain) && (linked || !has_few_tiles(a)) &&
           a.experts == 0 && has_tiles<F>();
  }
  // Other activations than f32 are those that a product multiplies as they are, or those before a norm that it does;
  // and those that silu makes of what it gives, or that it leaves for a norm beside y.
  void check_activations(const tenon_linear& s, const tenon_bounds& b, const tenon_claim& claim) const {
    const std::vector<tenon_fop> pro = sdk::ops_of(s.pro), epi = sdk::ops_of(s.epi);
    const bool as_it_is = sdk::is_normed(s.x_format) ? pro.size() == 1 && claim.pro == 1 : pro.empty(),
               done = claim.epi == epi.size();
    const tenon_id last = epi.empty() ? 0 : epi.back().id;
    bool reads = false, writes = false;
    T::with_format(code_of(s), [&]<class F>(F) {
      reads = as_it_is && reads_halves<F>(s, b.rows);
      writes = done && (sdk::is_normed(s.y_format) ? leaves_normed<F>(s, b.rows, last)
                                                   : last == TENON_F_SILU_MUL && writes_halves<F>(s, b.rows));
    });
    if ((s.x_format == TENON_F32 || reads) && (s.y_format == TENON_F32 || writes)) return;
    throw sdk::Refused(std::string("activations in ") + tenon_format_name(sdk::element_of(s.x_format)) + " and " +
                       tenon_format_name(sdk::element_of(s.y_format)) + "; here they must be f32");
  }
  template <PackedFormat F>
  bool reads_halves(const tenon_linear& s, uint32_t rows) const {
    constexpr int64_t kWhole = 8;  // values of 16 bytes
    if (!sdk::is_tiled(s.x_format)) return s.x_format == many_rows_format<F>(s, rows) && s.in_dim % kWhole == 0;
    if constexpr (has_links<F>()) {
      constexpr uint32_t kOwn = kPlainFormat<F> | sdk::kTiled | (F::kStaggered ? sdk::kStaggered : 0);
      const PackedArgs a = tiled_args(s, rows, 0);
      return (s.x_format & ~sdk::kNormed) == kOwn && takes_tiles<F>(a, keeps_plain(s), true) &&
             (sdk::is_normed(s.x_format) ? TileGemm<F>::takes_normed(a) : TileGemm<F>::takes_tiled(a));
    }
    return false;
  }
  template <PackedFormat F>
  bool writes_halves(const tenon_linear& s, uint32_t rows) const {
    if (!sdk::is_tiled(s.y_format)) return s.y_format == many_rows_format<F>(s, rows);
    if constexpr (has_links<F>()) {
      const PackedArgs a = tiled_args(s, rows, 1);
      return sdk::element_of(s.y_format) == kPlainFormat<F> && takes_tiles<F>(a, keeps_plain(s), true) &&
             TileGemm<F>::leaves_tiled(a);
    }
    return false;
  }
  template <PackedFormat F>
  bool leaves_normed(const tenon_linear& s, uint32_t rows, tenon_id last_op) const {
    if (last_op == TENON_F_SILU_MUL) return false;
    if constexpr (has_links<F>()) {
      const PackedArgs a = tiled_args(s, rows, 0);
      return sdk::is_tiled(s.y_format) && sdk::element_of(s.y_format) == kPlainFormat<F> &&
             takes_tiles<F>(a, keeps_plain(s), true) && TileGemm<F>::leaves_normed(a, last_op == TENON_F_ADD);
    }
    return false;
  }
  // Returns the format in which cuBLASLt takes x and, where silu follows, in which y is left.
  template <PackedFormat F>
  tenon_format many_rows_format(const tenon_linear& s, uint32_t rows) const {
    if (!takes_plain<F>(s.experts, keeps_plain(s), rows)) return TENON_F32;
    return T::kManyRowsFormat != 0 ? T::kManyRowsFormat : kPlainFormat<F>;
  }
  // Says whether products of the format pass halves to each other in steps that tile_gemm.cuh multiplies.
  template <PackedFormat F>
  static constexpr bool has_links() {
    return !std::is_void_v<typename F::Half> && T::kManyRowsFormat == 0;
  }
  PackedArgs tiled_args(const tenon_linear& s, uint32_t rows, uint32_t silu) const {
    PackedArgs a{};
    for (uint32_t i = 0; i < s.n_mats; ++i) a.map.columns += static_cast<uint32_t>(s.out_dim[i]);
    a.map.halves = a.silu = silu;
    a.k = static_cast<uint32_t>(s.in_dim);
    a.rows = rows;
    a.blocks = blocks_;
    a.experts = s.experts;
    return a;
  }

  template <PackedFormat F>
  void record_packed(const Site& site, const tenon_linear_call& call, uint32_t rows, sdk::Recorder& rec,
                     tenon_tid order = 0) const {
    if ((site.experts != 0) != (call.expert != 0)) {
      throw sdk::Failed("a routed site needs the rows' experts, and no other takes them");
    }
    PackedArgs a = packed_args(site, rows);
    const tenon_tensor x = rec.describe(call.x), y = rec.describe(call.y);
    a.x_stride = rec.floats_of_row(call.x);
    a.y_stride = rec.floats_of_row(call.y);
    a.x_tiled = sdk::is_tiled(x) ? 1 : 0;
    a.x_normed = sdk::is_normed(x) ? 1 : 0;
    a.y_tiled = order_of(y);
    a.has_order = order != 0 ? 1 : 0;
    const ClaimedTensors claimed = take_chains(site, call, a, rec);
    if (call.normed != 0) {
      if (a.silu != 0) throw sdk::Failed("rows for a norm are left beside what silu makes");
      a.normed = order_of(rec.describe(call.normed));
    }
    const tenon_tid live = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
    using Operand = PackedOperand;
    std::vector<tenon_operand> operands = sdk::operands_by(
        Operand::kCount,
        {{Operand::kY, call.y, TENON_WRITE},
         {Operand::kX, call.x, TENON_READ},
         {Operand::kLive, live, TENON_READ},
         {Operand::kWeights, call.store[0], TENON_READ}},
        {live, TENON_READ},
        {{Operand::kScales, site.scale_store(call.store), TENON_READ},
         {Operand::kRouting, call.expert, TENON_READ},
         {Operand::kNorm, claimed.norm, TENON_READ},
         {Operand::kBias, claimed.bias, TENON_READ},
         {Operand::kAddend, claimed.addend, TENON_READ},
         {Operand::kNormed, call.normed, TENON_WRITE},
         {Operand::kNormedWeights, call.normed != 0 ? sdk::RmsNormOp(*call.norm).weight : 0, TENON_READ},
         {Operand::kOrder, order, TENON_READ}});
    // Drafts and prompts keep every bit of a row for longer.
    a.unpaired = rec.bounds().rows_per_seq == 1 && rows > kSteadySequences && a.experts == 0 ? 1 : 0;
    // Where no program has several rows whose tokens are wanted, none has to have the bits of a single row. Routed
    // products take no digits.
    a.digits = rec.largest().out_rows == 1 && a.experts == 0 ? 1 : 0;

    if constexpr (T::kRouted) {
      if (a.experts != 0) {
        return emit_product<F, RoutedMatvec<F>, &run_routed<F>, &run_routed_prepare<F>>(site, a, operands, rec);
      }
    }
    if constexpr (!std::is_void_v<typename F::Half>) {
      const bool linked = a.x_tiled != 0 || a.y_tiled != Tiled::kNo || a.normed != Tiled::kNo;
      if (takes_tiles<F>(a, site.keeps_plain, linked)) {
        a.own_panels = TileGemm<F>::has_own_panels(a) ? 1 : 0;
        return emit_product<F, TileGemm<F>, &run_tiles<F>, &run_prepare_halves<F>>(site, a, operands, rec);
      }
    }
    emit_product<F, Matvec<F>, &run_packed<F>, &run_prepare<F>>(site, a, operands, rec);
  }
  PackedArgs packed_args(const Site& site, uint32_t rows) const {
    PackedArgs a{};
    a.map = site.map;
    a.k = site.k;
    a.rows = rows;
    a.blocks = blocks_;
    a.stages = kMostStages;
    a.experts = site.experts;
    a.most_block_bytes = most_block_bytes_;
    return a;
  }
  // The claimed ops read these; one that is not there is 0.
  struct ClaimedTensors {
    tenon_tid norm = 0, bias = 0, addend = 0;
  };
  // Puts the claimed ops before and after the product into its arguments, and returns what they read.
  static ClaimedTensors take_chains(const Site& site, const tenon_linear_call& call, PackedArgs& a,
                                    sdk::Recorder& rec) {
    const std::vector<tenon_fop> pro = sdk::ops_of(call.pro), epi = sdk::ops_of(call.epi);
    if (pro.size() > 1 || (!pro.empty() && pro[0].id != TENON_F_RMSNORM) ||
        detail::taken_of(epi, site.map.halves != 0) != epi.size()) {
      throw sdk::Failed("ops around the product that were not claimed when the site was bound");
    }
    ClaimedTensors claimed;
    if (!pro.empty()) {
      const sdk::RmsNormOp norm(pro[0]);
      a.has_norm = 1;
      a.eps = norm.eps;
      claimed.norm = norm.weight;
    }
    for (const tenon_fop& op : epi) {
      if (op.id == TENON_F_SILU_MUL) {
        a.silu = 1;
      } else if (op.id == TENON_F_BIAS) {
        a.has_bias = 1;
        claimed.bias = sdk::AddOp(op).addend;
      } else {
        a.has_addend = 1;
        claimed.addend = sdk::AddOp(op).addend;
        a.addend_stride = rec.floats_of_row(claimed.addend);
      }
    }
    return claimed;
  }

  // If x has to be prepared, that is an op of its own: its blocks are small, the product's large.
  template <PackedFormat F, PackedProduct Product, auto Multiply, auto Prepare>
  static void emit_product(const Site& site, PackedArgs& a, std::vector<tenon_operand>& operands, sdk::Recorder& rec) {
    const uint32_t classes = Product::direct_classes(a);
    if (classes == 0 && a.x_tiled == 0) record_prepare<Product, Prepare>(a, operands, rec);
    if (a.x_tiled != 0) a.prepared = 1;
    sdk::OpSpec spec{.name = Product::kName, .operands = operands, .chunks = {}};
    spec.blocks = classes == 0 ? Product::prepared_classes(a) : classes;
    spec.scratch_bytes = Product::scratch_bytes(a);
    spec.zeroed_bytes = Product::zeroed_bytes(a);
    spec.cost = cost(site, a);
    emit<Multiply>(rec, spec, a);
  }
  // Each row of a routed site reads its expert's matrices, until there may be as many rows as experts.
  static tenon_cost cost(const Site& site, const PackedArgs& a) {
    const double n = site.map.columns, k = site.k, out = a.silu != 0 ? n / 2 : n;
    const auto expert_bytes = static_cast<double>(site.weight_bytes + (site.stores == 2 ? scale_bytes(site) : 0));
    const bool few = a.rows < a.experts;
    tenon_cost cost{};
    cost.read[few ? kCostPerRow : kFixedCost] = expert_bytes * (few ? 1 : std::max(a.experts, 1U));
    constexpr int64_t kHalfBytes = 2;
    cost.read[kCostPerRow] += static_cast<double>(a.x_tiled != 0 ? kHalfBytes : kFloatBytes) * k +
                              (a.has_addend != 0 ? kFloatBytes * out : 0);
    cost.written[kCostPerRow] = static_cast<double>(a.y_tiled != Tiled::kNo ? kHalfBytes : kFloatBytes) * out +
                                (a.normed != Tiled::kNo ? kHalfBytes * out : 0);
    cost.flops[kCostPerRow] = 2 * n * k;
    return cost;
  }

  // Emits the op that prepares x for a product. The product then reads what that has made, and a routed one the
  // groups of its rows instead of their experts.
  template <PackedProduct Product, auto Prepare>
  static void record_prepare(PackedArgs& a, std::vector<tenon_operand>& product, sdk::Recorder& rec) {
    if (a.experts != 0) {
      const GroupRowsArgs grouping{a.rows, a.experts, ExpertGroups::most(a.rows, a.experts)};
      const tenon_tid groups = rec.temp(sdk::tensor(TENON_I32, {grouping.groups, ExpertGroups::kWords}));
      tenon_operand operands[GroupRowsOperand::kCount];
      operands[GroupRowsOperand::kGroups] = {groups, TENON_WRITE};
      operands[GroupRowsOperand::kExperts] = product[PackedOperand::kRouting];
      operands[GroupRowsOperand::kLive] = product[PackedOperand::kLive];
      emit<&run_group_rows>(rec, {.name = "group_rows", .operands = operands, .chunks = {}}, grouping);
      product[PackedOperand::kRouting].tensor = groups;
    }
    a.prepared = 1;
    const uint64_t bytes = Product::prepared_bytes(a);
    const tenon_tid prepared = rec.temp(sdk::tensor(TENON_U8, {static_cast<int64_t>(bytes)}));
    tenon_operand operands[PrepareOperand::kCount];
    operands[PrepareOperand::kPrepared] = {prepared, TENON_WRITE};
    operands[PrepareOperand::kX] = product[PackedOperand::kX];
    operands[PrepareOperand::kLive] = product[PackedOperand::kLive];
    operands[PrepareOperand::kRouting] = product[PackedOperand::kRouting];
    operands[PrepareOperand::kNorm] = product[PackedOperand::kNorm];
    operands[PrepareOperand::kOrder] = product[PackedOperand::kOrder];
    sdk::OpSpec spec{.name = "prepare", .operands = operands, .chunks = {}};
    spec.cost.read[kCostPerRow] = kFloatBytes * static_cast<double>(a.k);
    spec.cost.written[kCostPerRow] = static_cast<double>(bytes) / a.rows;
    emit<Prepare>(rec, spec, a);
    product[PackedOperand::kX].tensor = prepared;
  }

  template <PackedFormat F>
  void record_plain(const Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    GemmCall gemm{};
    gemm.name = "gemm";
    gemm.x = call.x;
    gemm.w = site.keeps_plain ? call.store[site.stores] : record_unpack<F>(site, call, rec);
    gemm.y = call.y;
    gemm.row_live = call.row_live;
    gemm.w_format = kPlainFormat<F>;
    gemm.n = site.map.columns;
    gemm.k = site.k;
    gemm.pro = call.pro;
    gemm.epi = call.epi;
    record_gemm(rec, gemm);
  }
  // Returns the plain weights that the op makes.
  template <PackedFormat F>
  static tenon_tid record_unpack(const Site& site, const tenon_linear_call& call, sdk::Recorder& rec) {
    const tenon_tid plain = rec.temp(sdk::tensor(kPlainFormat<F>, {site.map.columns, site.k}));
    using Operand = UnpackOperand;
    const std::vector<tenon_operand> operands = sdk::operands_by(
        Operand::kCount, {{Operand::kTo, plain, TENON_WRITE}, {Operand::kWeights, call.store[0], TENON_READ}},
        {call.store[0], TENON_READ}, {{Operand::kScales, site.scale_store(call.store), TENON_READ}});
    sdk::OpSpec spec{.name = "unpack", .operands = operands, .chunks = {}};
    spec.cost.read[kFixedCost] = static_cast<double>(site.weight_bytes);
    spec.cost.written[kFixedCost] = static_cast<double>(plain_bytes(site));
    UnpackArgs unpack{};
    unpack.map = site.map;
    unpack.k = site.k;
    emit<&run_unpack<F, PlainOf<F>>>(rec, spec, unpack);
    return plain;
  }

  static constexpr uint32_t kMostStages = 8;  // a warp's ring has at most so many
  static constexpr int64_t kFloatBytes = sizeof(float);
  static constexpr uint32_t kReservedBytes = 1024;  // CUDA keeps so much shared memory of each block

  bool plain_copy_;
  uint32_t arch_;              // 90 for sm_90
  uint32_t blocks_;            // blocks of a grid: the multiprocessors
  uint32_t most_block_bytes_;  // shared memory of a block
};

}  // namespace tenon::cuda
