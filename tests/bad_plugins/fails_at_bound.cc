// This selector declares that it takes 1 to 8, and cannot take 8.
#include "good_sampler.h"

namespace tenon::bad {

struct FailsAtBound : GoodSampler<FailsAtBound> {
  FailsAtBound(const sdk::Params& params, const sdk::Env& env) : GoodSampler(params, env) {
    if (params.integer("k") == 8) throw sdk::Failed("8 is too much");
  }
};

}  // namespace tenon::bad

using tenon::bad::FailsAtBound;
TENON_PLUGIN(FailsAtBound);
