// This plugin is linked with a library that is not there when it is loaded.
#include "good_sampler.h"

extern "C" int tenon_stub_answer();

namespace tenon::bad {

struct Needy : GoodSampler<Needy> {
  Needy(const sdk::Params& params, const sdk::Env& env) : GoodSampler(params, env) {
    if (tenon_stub_answer() != 42) throw sdk::Failed("wrong answer");
  }
};

}  // namespace tenon::bad

using tenon::bad::Needy;
TENON_PLUGIN(Needy);
