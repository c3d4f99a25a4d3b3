// This plugin never comes back once it is opened.
#include <unistd.h>

#include "good_sampler.h"

namespace {
__attribute__((constructor)) void hang() {
  while (true) pause();
}
}  // namespace

using tenon::bad::Good;
TENON_PLUGIN(Good);
