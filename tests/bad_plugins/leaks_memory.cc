// This selector needs two pieces of the host's memory and forgets the first when there is no second.
#include "good_sampler.h"

namespace tenon::bad {

struct LeaksMemory : GoodSampler<LeaksMemory> {
  LeaksMemory(const sdk::Params& params, const sdk::Env& env) : GoodSampler(params, env), env_(env) {
    for (void*& p : pieces_) p = env.alloc(TENON_SPACE_HOST, 100, "tables");
  }
  ~LeaksMemory() {
    for (void* p : pieces_) env_.release(p);
  }

 private:
  sdk::Env env_;
  void* pieces_[2]{};
};

}  // namespace tenon::bad

using tenon::bad::LeaksMemory;
TENON_PLUGIN(LeaksMemory);
