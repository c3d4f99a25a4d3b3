// This scheme writes weights without the factors that they came with.
#include "asks_factors.h"

namespace tenon::bad {

struct UndoesFactors : AsksFactors<UndoesFactors, Mistake::kUndoes> {
  static constexpr const char* kName = "undoes_factors";
  static constexpr const char* kDoc = "Weights in f32, written without the factors that they came with.";
  using AsksFactors::AsksFactors;
};

}  // namespace tenon::bad

using tenon::bad::UndoesFactors;
TENON_PLUGIN(UndoesFactors);
