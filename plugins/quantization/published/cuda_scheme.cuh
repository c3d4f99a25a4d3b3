// This is the base of the schemes on CUDA that read published checkpoints and nothing else: scheme.h on a GPU.
// Where columns are in another order, products of few rows take x in that order as they prepare it. Before others an op
// gathers x, as on the CPU; each expert has an order.
#pragma once

#include <memory>
#include <vector>

#include "../coded/schema.h"
#include "device_matrix.cuh"
#include "gather.cuh"
#include "tenon/cuda/packed_scheme.cuh"

namespace tenon::published {

// The Schema also has Format<i>, which packs kCodings[i] (tenon/cuda/grouped_formats.cuh).
template <coded::ReadsPublished Schema>
  requires coded::HasCodings<Schema>
class CudaScheme : public cuda::PackedScheme<CudaScheme<Schema>>, public Schema {
 public:
  using Base = cuda::PackedScheme<CudaScheme>;
  static_assert(cuda::PackedFormat<typename Schema::template Format<0>>);
  static constexpr bool kRouted = coded::RoutesRows<Schema>;
  struct Site : cuda::PackedSite {
    std::vector<DeviceMatrix> published;  // by matrix of an expert
    bool permuted = false;
    std::vector<std::vector<uint32_t>> orders;  // by expert: columns in the order of groups, once a matrix is loaded
  };

  CudaScheme(const sdk::Params&, const sdk::Env& env) : Base(env) {}

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    return coded::kPublished + Schema::published(s, mat)->coding();
  }
  static bool exact(const cuda::PackedSite&) { return true; }
  // All matrices of a site have one coding.
  uint32_t code(std::span<const tenon_format> sources) const {
    for (const tenon_format source : sources) {
      if (source == sources[0]) continue;
      throw sdk::Refused("matrices side by side that are stored differently; on a GPU they must be alike");
    }
    return sources[0] - coded::kPublished;
  }
  template <class Use>
  static void with_format(uint32_t code, const Use& use) {
    coded::with_index<kCount>(code, [&]<uint32_t kIndex>(std::integral_constant<uint32_t, kIndex>) {
      use(typename Schema::template Format<kIndex>{});
    });
  }

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    tenon_claim claim = Base::claim(s, b);
    if (!is_permuted(s)) return claim;
    if (s.rows_wanted != 0) throw sdk::Refused("an embedding whose columns are in another order");
    if (s.x_format != TENON_F32) throw sdk::Refused("activations other than f32, whose columns are to be put in order");
    // Before other products an op gathers x.
    if (!Base::takes_order(Base::code_of(s), {static_cast<uint32_t>(s.in_dim), s.experts, b.rows})) claim.pro = 0;
    return claim;
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    auto site = std::make_unique<Site>();
    static_cast<cuda::PackedSite&>(*site) = std::move(*Base::bind(s, claims));
    for (uint32_t i = 0; i < s.n_mats; ++i) site->published.push_back({Schema::published(s, i), s.matrix[i].n_tensors});
    site->permuted = is_permuted(s);
    site->orders.resize(std::max(s.experts, 1U));
    return site;
  }
  // After the packed weights comes the order of the columns, of one expert after the other.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    f.flags |= TENON_FOOTPRINT_WHOLE;
    f.load_bytes = batch_bytes(Schema::kCodings[site.code], site.k);
    if (site.permuted) f.store_bytes[f.n_stores++] = site.orders.size() * site.k * sizeof(uint16_t);
    return f;
  }

  void load(cuda::PackedSite& packed, const tenon_rows& src, void* const* store, void* scratch, void* queue) const {
    auto& site = static_cast<Site&>(packed);
    const DeviceMatrix& matrix = site.published[src.mat % site.published.size()];
    with_format(site.code, [&]<class F>(F) {
      load_matrix<F>(matrix, Schema::kCodings[site.code], src, {site, store, scratch, queue});
    });
    if (!site.permuted) return;
    const size_t expert = src.mat / site.published.size();
    std::vector<uint32_t>& order = site.orders[expert];
    if (!order.empty()) return matrix.form->need_order(order, *site.published.front().form);
    order = matrix.form->permutation();
    const std::vector<uint16_t> columns(order.begin(), order.end());  // at most 57344, see check_site()
    // Memory that is not pinned has been read when the call returns.
    TENON_CUDA_CHECK(cudaMemcpyAsync(static_cast<uint16_t*>(store[site.stores]) + expert * site.k, columns.data(),
                                     columns.size() * sizeof(uint16_t), cudaMemcpyHostToDevice,
                                     static_cast<cudaStream_t>(queue)));
  }

  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    if (!site.permuted) return Base::record(site, call, rec);
    const tenon_tid order = call.store[site.stores];
    const auto rows = static_cast<uint32_t>(sdk::rows_of(rec.describe(call.y)));
    if (Base::takes_order(site.code, {site.k, site.experts, rows})) {
      return Base::record_in_order(site, call, order, rec);
    }
    tenon_linear_call gathered = call;
    gathered.x = record_gather<uint16_t>(site, call, order, rec, [&](const sdk::OpSpec& spec, const GatherArgs& args) {
      cuda::emit<&detail::run_gather>(rec, spec, args);
    });
    Base::record(site, gathered, rec);
  }

 private:
  static constexpr size_t kCount = std::size(Schema::kCodings);

  static bool is_permuted(const tenon_linear& s) {
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      if (Schema::published(s, i)->permuted()) return true;
    }
    return false;
  }
};

}  // namespace tenon::published
