// Some published checkpoints have rows of int8 with one scale, and want rows of x in int8, too. Such a matrix is read by
// a RoundedMatrix, and its products are those of int8_rows; int8_rows/published_cpu.h and published_cuda.cuh make the
// sites. RoundingScheme is a scheme that has them beside sites that multiply x as it is.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tenon/sdk/quantization.h"

namespace tenon::published {

// Returns tensor number t of the matrix that is being loaded, in host memory that stays until load() ends.
using ReadTensor = std::function<tenon_slice(uint32_t t)>;

// This is one matrix of a site, or that matrix of every expert. Its constructor throws sdk::Refused for tensors that do
// not fit, and for another way of rounding x.
template <class M>
concept RoundedMatrix = std::constructible_from<M, const tenon_linear&, uint32_t> &&
                        requires(const M& m, size_t expert, const ReadTensor& read) {
                          // Returns the number of the tensor that has the codes, i8 (N, K).
                          { m.weights() } -> std::same_as<uint32_t>;
                          // Returns the rows' scales: a weight is code * scale. Throws sdk::Failed, with the expert's
                          // tensor, for what is damaged.
                          { m.scales(expert, read) } -> std::same_as<std::vector<float>>;
                        };

// This is a site of such matrices, which Base holds as rows of int8.
template <class Base, RoundedMatrix Matrix>
struct RoundedSite : Base {
  RoundedSite(Base&& bound, const tenon_linear& s) : Base(std::move(bound)) {
    for (uint32_t i = 0; i < s.n_mats; ++i) rounded.emplace_back(s, i);
  }
  const Matrix& matrix(uint32_t mat) const { return rounded[mat % rounded.size()]; }
  // Returns the scales of the rows of matrix `mat`, numbered as in load().
  std::vector<float> row_scales(uint32_t mat, const ReadTensor& read) const {
    return matrix(mat).scales(mat / rounded.size(), read);
  }
  std::vector<Matrix> rounded;  // by matrix of an expert
};

// Base is a scheme that holds rows of int8 on a device (int8_rows). What both devices do alike with such matrices is here;
// int8_rows/published_cpu.h and published_cuda.cuh read them.
template <class Base, RoundedMatrix Matrix>
class RoundedScheme : public Base {
 public:
  using Site = RoundedSite<typename Base::Site, Matrix>;
  using Base::Base;

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    return std::make_unique<Site>(std::move(*Base::bind(s, claims)), s);
  }
  // One scale may be that of all rows, so all come together.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    f.flags |= TENON_FOOTPRINT_WHOLE;
    return f;
  }
};

// Plain multiplies x as it is, and Rounded has the sites whose x becomes int8; both are schemes
// (tenon/sdk/quantization.h). Choice(params).rounds_x(site) says which it is.
template <class Schema, class Choice, class Plain, class Rounded>
class RoundingScheme : public sdk::Quantization<RoundingScheme<Schema, Choice, Plain, Rounded>>, public Schema {
 public:
  static constexpr uint32_t kRowInvariantMax = std::min(Plain::kRowInvariantMax, Rounded::kRowInvariantMax);
  struct Site {  // it is one of both
    std::unique_ptr<typename Plain::Site> plain;
    std::unique_ptr<typename Rounded::Site> rounded;
  };

  RoundingScheme(const sdk::Params& params, const sdk::Env& env)
      : choice_(params), plain_(params, env), rounded_(params, env) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    return choice_.rounds_x(s) ? rounded_.claim(s, b) : plain_.claim(s, b);
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    auto site = std::make_unique<Site>();
    if (choice_.rounds_x(s)) {
      site->rounded = rounded_.bind(s, claims);
    } else {
      site->plain = plain_.bind(s, claims);
    }
    return site;
  }
  tenon_footprint footprint(Site& site) const {
    return with(site, [](const auto& scheme, auto& of) { return scheme.footprint(of); });
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void* queue) const {
    with(site, [&](const auto& scheme, auto& of) { scheme.load(of, src, store, scratch, queue); });
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    with(site, [&](const auto& scheme, auto& of) { scheme.record(of, call, rec); });
  }
  void record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, sdk::Recorder& rec) const {
    with(site, [&](const auto& scheme, auto& of) { scheme.record_rows(of, store, index, y, rec); });
  }

 private:
  template <class Use>
  auto with(Site& site, const Use& use) const {
    return site.rounded != nullptr ? use(rounded_, *site.rounded) : use(plain_, *site.plain);
  }

  Choice choice_;
  Plain plain_;
  Rounded rounded_;
};

}  // namespace tenon::published
