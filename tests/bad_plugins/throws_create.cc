// This selector throws when an instance is made.
#include "good_sampler.h"

namespace tenon::bad {

struct ThrowsCreate : GoodSampler<ThrowsCreate> {
  ThrowsCreate(const sdk::Params& params, const sdk::Env& env) : GoodSampler(params, env) {
    throw sdk::Failed("the constructor threw");
  }
};

}  // namespace tenon::bad

using tenon::bad::ThrowsCreate;
TENON_PLUGIN(ThrowsCreate);
