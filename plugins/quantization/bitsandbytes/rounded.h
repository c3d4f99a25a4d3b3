// This is a matrix of int8 whose x becomes int8, too, but for what is large: bitsandbytes' LLM.int8().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../int8_rows/outliers.h"
#include "../published/rounded.h"
#include "tenon/sdk/params.h"

namespace tenon::bitsandbytes {

// Says whether x of a site becomes int8: unless the parameter `activations` is "f32", that of matrices in int8. Throws
// Refused for keys of config.json that are not known.
class Choice {
 public:
  explicit Choice(const sdk::Params& params) : rounds_(std::string_view(params.text("activations")) == "auto") {}
  bool rounds_x(const tenon_linear& s) const;

 private:
  bool rounds_;
};

// It is one of published/rounded.h.
class RoundedMatrix {
 public:
  RoundedMatrix(const tenon_linear& s, uint32_t mat);
  uint32_t weights() const { return weights_; }
  std::vector<float> scales(size_t expert, const published::ReadTensor& read) const;
  // x of this magnitude and above stays out of int8; 0: none does.
  float threshold() const { return threshold_; }

 private:
  std::vector<std::string> names_;  // by expert
  uint64_t rows_;
  uint32_t weights_ = 0, scales_ = 0, format_ = 0;
  bool has_format_ = false;
  float threshold_ = 0;
};

// Base is a scheme of int8_rows for such matrices on a device, and T is the class of the scheme, which has
//   tenon_tid without_outliers(const Site&, float threshold, const tenon_linear_call&, sdk::Recorder&)
//   void outliers(const Site&, float threshold, const tenon_linear_call&, sdk::Recorder&)
template <class T, class Base>
class OutlierScheme : public Base {
 public:
  using Site = typename Base::Site;
  using Base::Base;

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    const bool apart = RoundedMatrix(s, 0).threshold() > 0;
    return apart ? int8_rows::claim_beside_outliers<Base>(*this, s, b) : Base::claim(s, b);
  }
  void record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
    const float threshold = site.rounded.front().threshold();
    if (threshold == 0) return Base::record(site, call, rec);
    tenon_linear_call product = call;
    product.x = static_cast<const T*>(this)->without_outliers(site, threshold, call, rec);
    Base::record(site, product, rec);
    static_cast<const T*>(this)->outliers(site, threshold, call, rec);
  }
};

}  // namespace tenon::bitsandbytes
