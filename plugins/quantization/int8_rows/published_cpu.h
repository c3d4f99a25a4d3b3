// This is the base of sites of published checkpoints on the CPU whose rows of x become int8 (published/rounded.h).
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "../published/rounded.h"
#include "cpu_scheme.h"

namespace tenon::int8_rows {

// T is the class of the scheme.
template <class T, Int8Rows Schema, published::RoundedMatrix Matrix>
class PublishedCpuScheme : public CpuScheme<T, Schema> {
 public:
  using Base = CpuScheme<T, Schema>;
  using Site = published::RoundedSite<sdk::cpu::LinearSite, Matrix>;
  using Base::Base;

  static tenon_format source_of(const tenon_linear& s, uint32_t mat) {
    (void)Matrix(s, mat);
    return rows::kInt8Rows;
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    return std::make_unique<Site>(std::move(*Base::bind(s, claims)), s);
  }
  // One scale may be that of all rows, so all come together.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    f.flags |= TENON_FOOTPRINT_WHOLE;
    return f;
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
    const std::vector<float> scales = site.row_scales(src.mat, [&](uint32_t t) { return src.tensor[t]; });
    const float* scale = scales.data();
    const uint32_t weights = site.matrix(src.mat).weights();
    sdk::cpu::each_loaded_row(site, src, store, [&](uint8_t* to, const sdk::cpu::FileRow& from) {
      rows::join_int8_row(from[weights], reinterpret_cast<const uint8_t*>(scale++), site.k, to);
    });
  }
};

}  // namespace tenon::int8_rows
