// Base of a quantization scheme on CUDA that packs a site's weights (packed.cuh): up to 16 rows run matvec.cuh, up to 256
// on Hopper tile_gemm.cuh, more are multiplied by weights unpacked into a temporary (gemm.h). T has
//   static constexpr uint32_t kStores;                    1, or 2: the second holds Int8Format's scales
//   uint32_t code(std::span<const tenon_format> sources) const;   of the format that a site gets
//   bool exact(const Site&) const;                        whether each weight has the value that it has in the file
//   static void with_format(uint32_t code, f);            f(Format{}), see formats.cuh
//   void load(Site&, const tenon_rows&, void* const* store, void* scratch, void* queue);
//   static tenon_format source(const tenon_linear&, uint32_t mat);   optional: how the file has matrix `mat` of the first
//                                                         set, throws Refused; else plain matrices of floats
//   static constexpr bool kRouted = true;                 optional: routed sites too (routed_matvec.cuh)
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tenon/cuda/gemm.h"
#include "tenon/cuda/routed_matvec.cuh"
#include "tenon/cuda/tile_gemm.cuh"
#include "tenon/cuda/unpack.cuh"
#include "tenon/sdk/gguf_blocks.h"
#include "tenon/sdk/quantization.h"

namespace tenon::cuda {

struct PackedSite {
  uint32_t code = 0;
  TileMap map{};
  uint32_t k = 0, experts = 0;        // 0: not routed
  std::vector<uint32_t> first, rows;  // of each matrix of an expert: its column in y, its rows
  std::vector<tenon_format> source;   // of each matrix of an expert: what T::source() says of it
  bool exact = false;                 // each weight has the value that it has in the file
  uint64_t weight_bytes = 0;          // of an expert

  tenon_format source_of(const tenon_rows& src) const { return source[src.mat % rows.size()]; }
  uint32_t expert_of(const tenon_rows& src) const { return src.mat / static_cast<uint32_t>(rows.size()); }
  // Where the scales of the rows' expert begin, of a store of scales.
  float* scales(void* store, const tenon_rows& src) const {
    return static_cast<float*>(store) + size_t{expert_of(src)} * map.tiles() * kTileRows;
  }
};

// A plain matrix in one of the formats that a scheme reads, for its source().
inline tenon_format plain_source(const tenon_linear& s, uint32_t mat, bool (*reads)(tenon_format)) {
  const tenon_format format = sdk::need_plain(s, mat);
  const std::string name = tenon_format_name(format);
  if (!reads(format)) {
    throw sdk::Refused("tensor " + sdk::full_name(s.matrix[mat], "weight") + " is stored as " + name +
                       "; on a GPU this scheme reads " + sdk::readable_formats(reads));
  }
  if (sdk::plain_row_bytes(format, static_cast<uint64_t>(s.in_dim)) == 0) {
    throw sdk::Refused("a width of " + std::to_string(s.in_dim) + " is not whole blocks of " +
                       std::to_string(tenon_format_block(format).elements) + " (" + name + ")");
  }
  return format;
}

__host__ __device__ inline bool is_float(tenon_format format) {
  return format == TENON_F32 || format == TENON_F16 || format == TENON_BF16;
}

namespace detail {

// How much of an epilogue a product takes: [BIAS] [ADD or SILU_MUL].
inline uint32_t taken_of(const std::vector<tenon_fop>& ops, bool halves) {
  uint32_t n = !ops.empty() && ops[0].id == TENON_F_BIAS ? 1 : 0;
  if (n < ops.size() && (ops[n].id == TENON_F_ADD || (ops[n].id == TENON_F_SILU_MUL && halves))) ++n;
  return n;
}

template <class Source>
void check_site(const tenon_linear& s, const Source& source, bool routed) {
  // Products of 32 bits hold; a row of x fits in shared memory.
  constexpr int64_t kMostRows = 1 << 24, kMostColumns = 56 << 10;
  if (s.experts != 0 && !routed) {
    throw sdk::Refused("expert matrices are not supported; only dense models run with this scheme");
  }
  if (s.experts > kMostExperts) throw sdk::Refused(std::to_string(s.experts) + " experts; at most 1024");
  if (s.experts != 0 && s.rows_wanted != 0) throw sdk::Refused("an embedding has no experts");
  if (s.x_format != TENON_F32 || s.y_format != TENON_F32) {
    throw sdk::Refused(std::string("activations in ") + tenon_format_name(s.x_format) + "; they must be f32");
  }
  int64_t columns = 0;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    (void)source(s, i);
    columns += s.out_dim[i];
  }
  if (s.n_mats == 0 || columns <= 0 || columns > kMostRows || s.in_dim <= 0 || s.in_dim > kMostColumns) {
    throw sdk::Refused("a site of " + std::to_string(columns) + " rows and " + std::to_string(s.in_dim) +
                       " columns; rows must be 1 to 2^24, columns 1 to 57344");
  }
}

}  // namespace detail

// Operands: y, x or prepared x, live rows, the stores, then what there is of experts or their groups, norm, bias,
// addend.
struct PackedArgs : MatvecArgs {
  uint32_t has_norm, has_bias, has_addend, padding;
};
template <class F>
MatvecPointers packed_pointers(const PackedArgs& a, const Launch& launch) {
  MatvecPointers p{};
  size_t next = 3;
  p.y = launch.ptr<float>(0), p.x = launch.ptr<const float>(1), p.live = launch.ptr<const uint32_t>(2);
  p.weights = launch.ptr<const uint8_t>(next++);
  if (F::kTotal) p.scales = launch.ptr<const float>(next++);
  if (a.experts != 0) p.routing = launch.ptr<const int32_t>(next++);
  if (a.has_norm != 0) p.norm = launch.ptr<const float>(next++);
  if (a.has_bias != 0) p.bias = launch.ptr<const float>(next++);
  if (a.has_addend != 0) p.addend = launch.ptr<const float>(next++);
  if (a.prepared != 0) p.prepared = launch.ptr<uint8_t>(1);
  return p;
}
// Operands: prepared x, x, live rows, expert groups if routed, norm.
inline MatvecPointers prepare_pointers(const PackedArgs& a, const Launch& launch) {
  MatvecPointers p{};
  size_t next = 3;
  p.prepared = launch.ptr<uint8_t>(0), p.x = launch.ptr<const float>(1), p.live = launch.ptr<const uint32_t>(2);
  if (a.experts != 0) p.routing = launch.ptr<const int32_t>(next++);
  if (a.has_norm != 0) p.norm = launch.ptr<const float>(next++);
  return p;
}
template <class F>
void run_packed(const PackedArgs& a, const Launch& launch) {
  Matvec<F>::multiply(a, packed_pointers<F>(a, launch), launch.large_blocks(), launch);
}
template <class F>
void run_prepare(const PackedArgs& a, const Launch& launch) {
  Matvec<F>::prepare(a, prepare_pointers(a, launch), launch);
}
template <class F>
void run_tiles(const PackedArgs& a, const Launch& launch) {
  TileGemm<F>::multiply(a, packed_pointers<F>(a, launch), false, launch);
}
template <class F>
void run_prepare_halves(const PackedArgs& a, const Launch& launch) {
  TileGemm<F>::prepare(a, prepare_pointers(a, launch), launch);
}
template <class F>
void run_routed(const PackedArgs& a, const Launch& launch) {
  RoutedMatvec<F>::multiply(a, packed_pointers<F>(a, launch), launch.large_blocks(), launch);
}
template <class F>
void run_routed_prepare(const PackedArgs& a, const Launch& launch) {
  RoutedMatvec<F>::prepare(a, prepare_pointers(a, launch), launch);
}
// What weights of a format become before a large product: halves stay as they are, others become fp16.
template <class F>
using PlainOf = std::conditional_t<std::is_void_v<typename F::Half>, float, typename F::Half>;

template <class T>
class PackedScheme : public sdk::Quantization<T> {
 public:
  static constexpr uint32_t kRowInvariantMax = kMatvecRows;
  static constexpr bool kRouted = false;
  using Site = PackedSite;

  explicit PackedScheme(const sdk::Env& env)
      : arch_(env.device().arch),
        blocks_(env.device().units),
        most_block_bytes_(static_cast<uint32_t>(env.device().shared_per_unit) - kReservedBytes) {}
  static tenon_format source(const tenon_linear& s, uint32_t mat) { return plain_source(s, mat, &is_float); }

  // The same for every batch shape, since SILU_MUL decides how tiles are made.
  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    detail::check_site(s, &T::source, T::kRouted);
    auto claim = sdk::abi_struct<tenon_claim>();
    const std::vector<tenon_fop> pro = sdk::ops_of(s.pro);
    const bool halves = s.n_mats == 2 ? s.out_dim[0] == s.out_dim[1] : s.n_mats == 1 && s.out_dim[0] % 2 == 0;
    claim.pro = !pro.empty() && pro.back().id == TENON_F_RMSNORM ? 1 : 0;
    claim.epi = detail::taken_of(sdk::ops_of(s.epi), halves);
    return claim;
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim), site->experts = s.experts;
    for (uint32_t i = 0; i < s.n_mats; ++i) site->source.push_back(T::source(s, i));
    site->code = self().code(site->source), site->exact = self().exact(*site);
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->first.push_back(site->map.columns), site->rows.push_back(static_cast<uint32_t>(s.out_dim[i]));
      site->map.columns += site->rows.back();
    }
    const std::vector<tenon_fop> epi = sdk::ops_of(s.epi);
    for (const tenon_claim* c : claims) {
      for (uint32_t i = 0; i < sdk::read_abi(c).epi; ++i) site->map.halves |= epi[i].id == TENON_F_SILU_MUL ? 1 : 0;
    }
    T::with_format(site->code, [&]<class F>(F) {
      site->weight_bytes = uint64_t{site->map.tiles()} * segments_of<F>(site->k) * F::kSegmentBytes;
    });
    return site;
  }

  tenon_footprint footprint(Site& site) const {
    auto f = sdk::abi_struct<tenon_footprint>();
    f.n_stores = T::kStores, f.flags = site.exact ? TENON_FOOTPRINT_EXACT : 0;
    const uint32_t sets = std::max(site.experts, 1U);
    f.store_bytes[0] = sets * site.weight_bytes;
    if (T::kStores == 2) f.store_bytes[1] = sets * scale_bytes(site);
    return f;
  }

  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    const auto rows = static_cast<uint32_t>(rec.describe(call.y).dim[0]);
    T::with_format(site.code, [&]<class F>(F) {
      const bool packed = rows <= kMatvecRows || site.experts != 0 || fits_tiles<F>(rows);
      packed ? record_packed<F>(site, call, rows, rec) : record_large<F>(site, call, rec);
    });
  }

  void record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, sdk::Recorder& rec) const {
    const tenon_tensor out = rec.describe(y);
    const UnpackArgs a{site.map, site.k, static_cast<uint32_t>(out.dim[0]), site.rows[0], 0, out.stride[0] / 4};
    std::vector<tenon_operand> operands = {
        {y, TENON_WRITE}, {index, TENON_READ}, {rec.step(TENON_STEP_LIVE), TENON_READ}};
    for (uint32_t i = 0; i < T::kStores; ++i) operands.push_back({store[i], TENON_READ});
    sdk::OpSpec spec{.name = "rows", .operands = operands, .chunks = {}};
    spec.cost.read[1] = static_cast<double>(site.weight_bytes) / (site.map.tiles() * kTileRows);
    spec.cost.written[1] = 4.0 * site.k;
    T::with_format(site.code, [&]<class F>(F) { emit<&run_lookup<F>>(rec, spec, a); });
  }

 private:
  const T& self() const { return static_cast<const T&>(*this); }
  static uint64_t scale_bytes(const Site& site) { return uint64_t{site.map.tiles()} * kTileRows * sizeof(float); }

  template <class F>
  bool fits_tiles(uint32_t rows) const {
    if constexpr (std::is_void_v<typename F::Half>) return false;
    return rows <= kTileGemmRows && TileGemm<F>::fits(TENON_PLUGIN_TARGETS, arch_);
  }

  template <class F>
  void record_packed(const Site& site, const tenon_linear_call& call, uint32_t rows, sdk::Recorder& rec) const {
    const std::vector<tenon_fop> pro = sdk::ops_of(call.pro), epi = sdk::ops_of(call.epi);
    if (pro.size() > 1 || (!pro.empty() && pro[0].id != TENON_F_RMSNORM) ||
        detail::taken_of(epi, site.map.halves != 0) != epi.size()) {
      throw sdk::Failed("ops around the product that were not claimed when the site was bound");
    }
    std::vector<tenon_operand> operands = {
        {call.y, TENON_WRITE},
        {call.x, TENON_READ},
        {call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE), TENON_READ}};
    for (uint32_t i = 0; i < T::kStores; ++i) operands.push_back({call.store[i], TENON_READ});
    if ((site.experts != 0) != (call.expert != 0)) {
      throw sdk::Failed("a routed site needs the rows' experts, and no other takes them");
    }
    if (site.experts != 0) operands.push_back({call.expert, TENON_READ});
    PackedArgs a{};
    a.map = site.map, a.k = site.k, a.rows = rows, a.blocks = blocks_, a.stages = kMostStages, a.experts = site.experts;
    a.most_block_bytes = most_block_bytes_;
    a.x_stride = rec.describe(call.x).stride[0] / 4, a.y_stride = rec.describe(call.y).stride[0] / 4;
    if (!pro.empty()) {
      a.has_norm = 1, a.eps = pro[0].f[0];
      operands.push_back({pro[0].t[0], TENON_READ});
    }
    for (const tenon_fop& op : epi) {
      if (op.id == TENON_F_SILU_MUL) {
        a.silu = 1;
        continue;
      }
      operands.push_back({op.t[0], TENON_READ});
      if (op.id == TENON_F_BIAS) {
        a.has_bias = 1;
      } else {
        a.has_addend = 1, a.addend_stride = rec.describe(op.t[0]).stride[0] / 4;
      }
    }
    if constexpr (T::kRouted) {
      if (a.experts != 0)
        return emit_product<F, RoutedMatvec<F>, &run_routed<F>, &run_routed_prepare<F>>(site, a, operands, rec);
    }
    if constexpr (!std::is_void_v<typename F::Half>) {
      if (rows > kMatvecRows) {
        return emit_product<F, TileGemm<F>, &run_tiles<F>, &run_prepare_halves<F>>(site, a, operands, rec);
      }
    }
    emit_product<F, Matvec<F>, &run_packed<F>, &run_prepare<F>>(site, a, operands, rec);
  }

  // x may have to be prepared, which is an op of its own: its blocks are small, the product's large.
  template <class F, class Product, auto Multiply, auto Prepare>
  static void emit_product(const Site& site, PackedArgs& a, std::vector<tenon_operand>& operands, sdk::Recorder& rec) {
    const uint32_t classes = Product::direct_classes(a);
    if (classes == 0) record_prepare<Product, Prepare>(a, operands, rec);
    sdk::OpSpec spec{.name = Product::kName, .operands = operands, .chunks = {}};
    spec.blocks = classes == 0 ? Product::prepared_classes(a) : classes;
    spec.scratch_bytes = Product::scratch_bytes(a), spec.zeroed_bytes = Product::zeroed_bytes(a);
    const double n = site.map.columns, k = site.k, out = a.silu != 0 ? n / 2 : n;
    // Of a routed site each row reads its expert's matrices, until there may be as many rows as experts.
    const auto set = static_cast<double>(site.weight_bytes + (T::kStores == 2 ? scale_bytes(site) : 0));
    const bool few = a.rows < a.experts;
    spec.cost.read[few ? 1 : 0] = set * (few ? 1 : std::max(a.experts, 1U));
    spec.cost.read[1] += 4 * (k + (a.has_addend != 0 ? out : 0)), spec.cost.written[1] = 4 * out;
    spec.cost.flops[1] = 2 * n * k;
    emit<Multiply>(rec, spec, a);
  }

  // Several rows of x as the product's kernel takes them. The product then reads these, and routed ones their groups.
  template <class Product, auto Prepare>
  static void record_prepare(PackedArgs& a, std::vector<tenon_operand>& product, sdk::Recorder& rec) {
    const size_t routing = 3 + T::kStores;
    if (a.experts != 0) {
      const GroupRowsArgs grouping{a.rows, a.experts, ExpertGroups::most(a.rows, a.experts)};
      const tenon_tid groups = rec.temp(sdk::tensor(TENON_I32, {grouping.groups, ExpertGroups::kWords}));
      const tenon_operand operands[] = {{groups, TENON_WRITE}, product[routing], product[2]};
      emit<&run_group_rows>(rec, {.name = "group_rows", .operands = operands, .chunks = {}}, grouping);
      product[routing].tensor = groups;
    }
    a.prepared = 1;
    const uint64_t bytes = Product::prepared_bytes(a);
    const tenon_tid prepared = rec.temp(sdk::tensor(TENON_U8, {static_cast<int64_t>(bytes)}));
    std::vector<tenon_operand> operands = {{prepared, TENON_WRITE}, product[1], product[2]};
    const size_t given = (a.experts != 0 ? 1 : 0) + (a.has_norm != 0 ? 1 : 0);
    for (size_t i = 0; i < given; ++i) operands.push_back(product[routing + i]);
    sdk::OpSpec spec{.name = "prepare", .operands = operands, .chunks = {}};
    spec.cost.read[1] = 4.0 * a.k, spec.cost.written[1] = static_cast<double>(bytes) / a.rows;
    emit<Prepare>(rec, spec, a);
    product[1].tensor = prepared;
  }

  template <class F>
  void record_large(const Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    using Plain = PlainOf<F>;
    const tenon_format format = std::is_same_v<Plain, float>    ? TENON_F32
                                : std::is_same_v<Plain, __half> ? TENON_F16
                                                                : TENON_BF16;
    const int64_t n = site.map.columns, k = site.k;
    const tenon_tid plain = rec.temp(sdk::tensor(format, {n, k}));
    std::vector<tenon_operand> operands = {{plain, TENON_WRITE}};
    for (uint32_t i = 0; i < T::kStores; ++i) operands.push_back({call.store[i], TENON_READ});
    sdk::OpSpec spec{.name = "unpack", .operands = operands, .chunks = {}};
    spec.cost.read[0] = static_cast<double>(site.weight_bytes);
    spec.cost.written[0] = static_cast<double>(n * k) * sizeof(Plain);
    emit<&run_unpack<F, Plain>>(rec, spec, UnpackArgs{site.map, site.k, 0, 0, 0, 0});
    GemmCall gemm{};
    gemm.x = call.x, gemm.w = plain, gemm.y = call.y, gemm.row_live = call.row_live;
    gemm.w_format = format, gemm.n = n, gemm.k = k;
    gemm.pro = call.pro, gemm.epi = call.epi, gemm.name = "gemm";
    record_gemm(rec, gemm);
  }

  static constexpr uint32_t kMostStages = 8;

  static constexpr uint32_t kReservedBytes = 1024;  // of a multiprocessor's shared memory, for each block

  uint32_t arch_, blocks_, most_block_bytes_;
};

}  // namespace tenon::cuda
