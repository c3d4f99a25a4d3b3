// This is the base of the schemes on the CPU that read published checkpoints and nothing else (coded/schema.h has
// what one says of itself). One that writes is made of sdk::Params and sdk::Env, and has describe() and encode(), and
// observe() if it calibrates. Held (held.h) has the codings that the kernels are for, Schema's among them; where the
// processor has dot products of bytes, rows are packed and multiplied by x in 16 bits
// (tenon/sdk/cpu/wide_products.h), as uintx and nf4 do.
//
// Where the columns of a group do not stand side by side in the file (act-order), the matrix is held with its columns
// in the groups' order, and an op before the product gathers x in that order: k numbers a row are moved, which costs a
// product of thousands of rows nothing. Matrices that share x must have the same order then; those of each expert have
// one of their own, and a row's is that of its expert.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "../coded/packings.h"
#include "../coded/schema.h"
#include "gather.h"
#include "held.h"
#include "matrix.h"
#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::published {

namespace detail {

inline void gather(const GatherArgs& a, const sdk::Part& p) {
  const uint32_t live = std::min(p.ptr<const uint32_t>(GatherOperand::kLive)[sdk::kLiveRows], a.rows);
  for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) {
    const uint32_t expert = a.experts == 0 ? 0 : static_cast<uint32_t>(p.ptr<const int32_t>(GatherOperand::kExpert)[r]);
    if (expert >= std::max(a.experts, 1U)) continue;
    const uint32_t* order = p.ptr<const uint32_t>(GatherOperand::kOrder) + size_t{expert} * a.k;
    const float* x = p.ptr<const float>(GatherOperand::kFrom) + r * a.x_stride;
    float* to = p.ptr<float>(GatherOperand::kTo) + size_t{r} * a.k;
    for (uint32_t i = 0; i < a.k; ++i) to[i] = x[order[i]];
  }
}

}  // namespace detail

template <coded::ReadsPublished Schema, coded::HasCodings Held>
  requires coded::HasCodings<Schema>
class PublishedScheme : public sdk::cpu::LinearScheme<PublishedScheme<Schema, Held>, &coded::wide_kernels<Held>>,
                        public Schema {
 public:
  using Base = sdk::cpu::LinearScheme<PublishedScheme, &coded::wide_kernels<Held>>;
  struct Site : sdk::cpu::LinearSite {
    std::vector<std::unique_ptr<Matrix>> published;  // by matrix
    bool permuted = false;
    std::vector<std::vector<uint32_t>> orders;  // by expert: columns in the order of groups, once a matrix is loaded
  };

  PublishedScheme(const sdk::Params& params, const sdk::Env& env) : Base(env), Schema(make(params, env)) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    tenon_claim claim = sdk::cpu::claim_linear(s, &source_of, true);
    if (!is_permuted(s)) return claim;
    if (s.rows_wanted != 0) throw sdk::Refused("an embedding whose columns are in another order");
    claim.pro = 0;  // x is gathered before the product
    return claim;
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    site->experts = s.experts;
    site->exact = true;
    site->permuted = is_permuted(s);
    site->orders.resize(std::max(s.experts, 1U));
    const sdk::cpu::PackingOf packing = sdk::cpu::int16_packing(s, coded::wide_kernels<Held>(this->isa()));
    if (packing != nullptr) site->activations = sdk::cpu::Activations::kInt16;
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->published.push_back(Schema::published(s, i));
      const uint32_t index = kHeldIndex[site->published[i]->coding()], code = sdk::cpu::kOwnFormats + index;
      const uint64_t row_bytes =
          packing != nullptr ? packing(code)->bytes_of_row(site->k) : Held::kCodings[index].row_bytes(site->k);
      site->mats.push_back(sdk::cpu::stored_matrix(s, i, code, row_bytes, coded::kPublished));
    }
    return site;
  }

  // After the matrices comes the order of the columns, of one expert after the other. All rows come
  // together, since tensors that are not by row may have as many rows by chance.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    f.flags |= TENON_FOOTPRINT_WHOLE;
    f.load_bytes = 0;
    if (!site.permuted) return f;
    if (f.n_stores == TENON_MAX_STORES)
      throw sdk::Refused("a site of that many matrices with columns in another order");
    f.store_bytes[f.n_stores++] = site.orders.size() * site.k * sizeof(uint32_t);
    return f;
  }

  void load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
    Matrix& matrix = *site.published[src.mat % site.mats.size()];
    const uint32_t code = site.mat(src).code;
    const coded::Coding& c = Held::kCodings[code - sdk::cpu::kOwnFormats];
    sdk::cpu::each_numbered_row(site, src, [](uint64_t, const sdk::cpu::FileRow&) {});  // checks what there is
    sdk::cpu::RowStore rows(site.address_of(src, store), site.k,
                            site.packed() ? coded::packing_of<Held>(code) : nullptr, c.row_bytes(site.k));
    matrix.load(src, [&](uint64_t row, const Row& from) {
      rows.put(row, [&](uint8_t* to) { hold_row(c, site.k, from, to); });
    });
    if (!site.permuted) return;
    const size_t expert = src.mat / site.mats.size();
    std::vector<uint32_t>& order = site.orders[expert];
    if (order.empty()) order = matrix.permutation();
    matrix.need_order(order, *site.published.front());
    std::copy(order.begin(), order.end(), static_cast<uint32_t*>(store[site.mats.size()]) + expert * site.k);
  }

  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    if (!site.permuted) return Base::record(site, call, rec);
    tenon_linear_call gathered = call;
    gathered.x = record_gather<uint32_t>(
        site, call, call.store[site.mats.size()], rec,
        [&](const sdk::OpSpec& spec, const GatherArgs& args) { rec.emit<&detail::gather>(spec, args); });
    Base::record(site, gathered, rec);
  }

 private:
  static constexpr auto kHeldIndex = held_indices<Schema, Held>();

  static Schema make([[maybe_unused]] const sdk::Params& params, [[maybe_unused]] const sdk::Env& env) {
    if constexpr (std::is_constructible_v<Schema, const sdk::Params&, const sdk::Env&>) {
      return Schema(params, env);
    } else {
      return Schema();
    }
  }
  static tenon_format source_of(const tenon_linear& s, uint32_t mat) {
    (void)Schema::published(s, mat);
    return coded::kPublished;
  }
  static bool is_permuted(const tenon_linear& s) {
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      if (Schema::published(s, i)->permuted()) return true;
    }
    return false;
  }
};

}  // namespace tenon::published
