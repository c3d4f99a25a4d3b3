// quantization.folds stores every weight as it is and wants factors in the columns of x, whatever x is like: by that it
// can be seen whether the host's folding changes what a model computes.
#include <cmath>

#include "floats_scheme.h"

namespace {

class Folds : public tenon::test::FloatsScheme<Folds> {
 public:
  static constexpr const char* kName = "folds";
  static constexpr const char* kDoc = "weights in f32, with factors in their columns";
  static constexpr const char* kDescription = R"({"quant_method":"folds"})";
  static constexpr auto kParams =
      sdk::params(sdk::real({.name = "spread",
                             .doc = "factors lie between 1 / spread and spread; 0: wrong ones",
                             .value = 8,
                             .min = 0,
                             .max = 64}));

  Folds(const sdk::Params& params, const sdk::Env&) : spread_(params.real("spread")) {}

  void column_factors(const tenon_linear& s, const tenon_column_factors& c) const {
    for (int64_t i = 0; i < s.in_dim; ++i) {
      c.factor[i] = static_cast<float>(std::pow(spread_, std::sin(1.0 + c.tied[i])));
    }
  }

 private:
  double spread_;
};

}  // namespace

TENON_PLUGIN(Folds);
