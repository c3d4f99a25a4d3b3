// This scheme asks for a factor of 0 for one column.
#include "asks_factors.h"

namespace tenon::bad {

struct ZeroFactor : AsksFactors<ZeroFactor, Mistake::kZero> {
  static constexpr const char* kName = "zero_factor";
  static constexpr const char* kDoc = "Weights in f32, with a factor of 0 for one column.";
  using AsksFactors::AsksFactors;
};

}  // namespace tenon::bad

using tenon::bad::ZeroFactor;
TENON_PLUGIN(ZeroFactor);
