// This plugin crashes as soon as it is opened.
#include <cstdlib>

#include "good_sampler.h"

namespace {
__attribute__((constructor)) void crash() {
  std::abort();
}
}  // namespace

using tenon::bad::Good;
TENON_PLUGIN(Good);
