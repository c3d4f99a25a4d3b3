// These schemes ask for factors in the columns of x and store every weight as it is given, but for one mistake.
#pragma once

#include "../schemes/floats_scheme.h"

namespace tenon::bad {

enum class Mistake { kUndoes, kZero };

// kName and kDoc are the derived scheme's.
template <class T, Mistake kMistake>
class AsksFactors : public test::FloatsScheme<T> {
 public:
  static constexpr const char* kDescription = R"({"quant_method":"floats"})";
  static constexpr auto kParams = sdk::params();

  AsksFactors(const sdk::Params&, const sdk::Env&) {}

  void encode(const tenon_linear& s, const tenon_encode& e) const {
    auto* to = static_cast<float*>(e.out[0]);
    for (size_t i = 0; i < e.rows * static_cast<size_t>(s.in_dim); ++i) {
      const bool undo = kMistake == Mistake::kUndoes && e.factor != nullptr;
      to[i] = e.data[i] / (undo ? e.factor[i % static_cast<size_t>(s.in_dim)] : 1);
    }
  }
  void column_factors(const tenon_linear&, const tenon_column_factors& c) const {
    if (kMistake == Mistake::kZero) c.factor[7] = 0;
  }
};

}  // namespace tenon::bad
