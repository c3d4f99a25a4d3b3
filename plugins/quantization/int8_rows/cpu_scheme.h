// This is the base of the schemes of definition.h on the CPU.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "definition.h"
#include "kernels.h"
#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::int8_rows {

// T is the class of the scheme, which may have source_of() and load() of its own.
template <class T, Int8Rows Schema>
class CpuScheme : public sdk::cpu::LinearScheme<T, &kernels>, public Schema {
 public:
  using Base = sdk::cpu::LinearScheme<T, &kernels>;
  using Site = sdk::cpu::LinearSite;

  CpuScheme(const sdk::Params&, const sdk::Env& env)
      : Base(env), description_(std::string(R"({"quant_method":"tenon","scheme":")") + Schema::kName + R"("})") {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    const tenon_claim claim = sdk::cpu::claim_linear(s, &T::source_of, true);
    need_width(s);
    return claim;
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    site->experts = s.experts;
    site->activations = sdk::cpu::Activations::kInt8;
    site->exact = true;
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      const tenon_format source = T::source_of(s, i);
      site->mats.push_back(sdk::cpu::stored_matrix(s, i, kInt8Row, rows::int8_row_bytes(site->k), source));
      site->exact &= source == rows::kInt8Rows;
    }
    return site;
  }

  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
    const tenon_format source = site.mat(src).source;
    sdk::cpu::each_loaded_row(site, src, store, [&](uint8_t* to, const sdk::cpu::FileRow& from) {
      if (source == rows::kInt8Rows) return take_row(from[rows::kWeight], from[rows::kScale], site.k, to);
      auto* w = static_cast<float*>(scratch);
      sdk::unpack_row(source, from[0], site.k, w);
      for (uint32_t i = 0; i < site.k; ++i) {
        if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
      }
      const float scale = quantize_row(w, site.k, to + sizeof(float));
      std::memcpy(to, &scale, sizeof(scale));
    });
  }

  tenon_written describe(const tenon_linear& s) const {
    need_width(s);
    auto all = sdk::abi_struct<tenon_written>();
    const int64_t n = s.out_dim[0];
    all.tensor[all.n_tensors++] = {Schema::kWeight, TENON_I8, 2, {n, s.in_dim, 0, 0}};
    all.tensor[all.n_tensors++] = {"weight_scale", TENON_F32, 1, {n, 0, 0, 0}};
    all.description = description_.c_str();
    return all;
  }
  void encode(const tenon_linear& s, const tenon_encode& e) const {
    const auto k = static_cast<uint32_t>(s.in_dim);
    for (uint64_t r = 0; r < e.rows; ++r) {
      static_cast<float*>(e.out[rows::kScale])[r] =
          quantize_row(e.data + r * k, k, static_cast<uint8_t*>(e.out[rows::kWeight]) + r * k);
    }
  }

  static tenon_format source_of(const tenon_linear& s, uint32_t mat) {
    return has_own_tensors<Schema>(s.matrix[mat]) ? need_own_tensors<Schema>(s, mat)
                                                  : sdk::cpu::unpacked_source(s, mat);
  }

 private:
  // Writes the codes of k finite weights; returns their scale.
  static float quantize_row(const float* w, uint32_t k, uint8_t* codes) {
    float largest = 0;
    for (uint32_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(w[i]));
    const float scale = weight_scale<Schema>(largest);
    for (uint32_t i = 0; i < k; ++i) codes[i] = static_cast<uint8_t>(weight_code<Schema>(w[i], scale));
    return scale;
  }
  static void take_row(const uint8_t* weight, const uint8_t* scale, uint32_t k, uint8_t* row) {
    float value = 0;
    std::memcpy(&value, scale, sizeof(value));
    if (!std::isfinite(value)) throw sdk::Failed("weight_scale of a row is not finite");
    rows::join_int8_row(weight, scale, k, row);
  }

  std::string description_;
};

}  // namespace tenon::int8_rows
