// This is the base of sites of published checkpoints on the CPU whose rows of x become int8 (published/rounded.h).
#pragma once

#include <vector>

#include "../published/rounded.h"
#include "cpu_scheme.h"

namespace tenon::int8_rows {

// T is the class of the scheme.
template <class T, Int8Rows Schema, published::RoundedMatrix Matrix>
class PublishedCpuScheme : public published::RoundedScheme<CpuScheme<T, Schema>, Matrix> {
 public:
  using Base = published::RoundedScheme<CpuScheme<T, Schema>, Matrix>;
  using Site = typename Base::Site;
  using Base::Base;

  static tenon_format source_of(const tenon_linear& s, uint32_t mat) {
    (void)Matrix(s, mat);
    return rows::kInt8Rows;
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
