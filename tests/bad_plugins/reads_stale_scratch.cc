// This selector takes its scratch to be zero, as it is where nobody has used it.
#include "greedy_but.h"

namespace tenon::bad {

struct ReadsStaleScratch : GreedyBut<ReadsStaleScratch> {
  using GreedyBut::GreedyBut;
  static void spoil(uint32_t row, const sdk::Part& part) {
    part.ptr<int32_t>(kNext)[row] += part.scratch<int32_t>()[row];
  }
};

}  // namespace tenon::bad

using tenon::bad::ReadsStaleScratch;
TENON_PLUGIN(ReadsStaleScratch);
