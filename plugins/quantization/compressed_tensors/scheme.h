// This is quantization.compressed_tensors on a device: Plain multiplies x as it is, and Rounded has the sites whose x
// the checkpoint wants in int8. Both are schemes (tenon/sdk/quantization.h).
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "rounded.h"
#include "schema.h"
#include "tenon/sdk/quantization.h"

namespace tenon::compressed_tensors {

template <class Plain, class Rounded>
class Scheme : public sdk::Quantization<Scheme<Plain, Rounded>>, public Schema {
 public:
  static constexpr uint32_t kRowInvariantMax = std::min(Plain::kRowInvariantMax, Rounded::kRowInvariantMax);
  struct Site {  // it is one of both
    std::unique_ptr<typename Plain::Site> plain;
    std::unique_ptr<typename Rounded::Site> rounded;
  };

  Scheme(const sdk::Params& params, const sdk::Env& env) : plain_(params, env), rounded_(params, env) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    return rounds_x(s) ? rounded_.claim(s, b) : plain_.claim(s, b);
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    auto site = std::make_unique<Site>();
    if (rounds_x(s)) {
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

  Plain plain_;
  Rounded rounded_;
};

}  // namespace tenon::compressed_tensors
