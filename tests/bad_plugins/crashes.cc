// Crashes as soon as it is opened.
#include <csignal>

#include "good_sampler.h"

namespace {
__attribute__((constructor)) void crash() {
  std::raise(SIGSEGV);
}
}  // namespace

using tenon::bad::Good;
TENON_PLUGIN(Good);
