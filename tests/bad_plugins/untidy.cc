// Exports more than its one symbol, one of them unique in the process, and looks for its libraries in a fixed place.
#include "good_sampler.h"

#pragma GCC visibility push(default)
template <class T>
int& shared_counter() {
  static int counter = 0;
  return counter;
}
extern "C" int untidy_count() {
  return ++shared_counter<int>();
}
#pragma GCC visibility pop

using tenon::bad::Good;
TENON_PLUGIN(Good);
