// This selector writes one token more than there are rows.
#include "greedy_but.h"

namespace tenon::bad {

struct Overruns : GreedyBut<Overruns> {
  using GreedyBut::GreedyBut;
  static void spoil(uint32_t row, const sdk::Part& part) {
    const uint32_t room = 2;  // a program has so many rows beyond those that are live
    part.ptr<int32_t>(kNext)[row + 1 + room] = 0;
  }
};

}  // namespace tenon::bad

using tenon::bad::Overruns;
TENON_PLUGIN(Overruns);
