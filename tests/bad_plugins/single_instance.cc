// This selector cannot be made while another instance of it is there.
#include "good_sampler.h"

namespace tenon::bad {

struct Single : GoodSampler<Single> {
  Single(const sdk::Params& params, const sdk::Env& env) : GoodSampler(params, env) {
    if (count_++ > 0) throw sdk::Failed("there can be only one");
  }
  ~Single() { --count_; }
  static inline int count_ = 0;
};

}  // namespace tenon::bad

using tenon::bad::Single;
TENON_PLUGIN(Single);
