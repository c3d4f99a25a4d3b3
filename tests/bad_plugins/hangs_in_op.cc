// This selector starts a process from within an op, and neither comes back.
#include <sys/prctl.h>
#include <unistd.h>

#include "greedy_but.h"

namespace tenon::bad {

struct HangsInOp : GreedyBut<HangsInOp> {
  using GreedyBut::GreedyBut;
  static void spoil(uint32_t, const sdk::Part&) {
    if (fork() == 0) prctl(PR_SET_NAME, "tenon_lingers");
    while (true) pause();
  }
};

}  // namespace tenon::bad

using tenon::bad::HangsInOp;
TENON_PLUGIN(HangsInOp);
