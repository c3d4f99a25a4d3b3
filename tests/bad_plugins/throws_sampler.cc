// This selector throws from every function but create.
#include "good_sampler.h"

namespace tenon::bad {

struct ThrowsSampler : sdk::Sampler<ThrowsSampler> {
  static constexpr const char* kName = "good";
  static constexpr const char* kDoc = "Throws.";
  static constexpr auto kParams = Good::kParams;
  static constexpr uint32_t kInForms = TENON_DENSE;
  struct Record {
    int64_t k;
  };

  ThrowsSampler(const sdk::Params&, const sdk::Env&) {}

  uint64_t state_bytes(uint32_t) const { throw 1; }
  Record encode(const sdk::Params&) const { throw sdk::Failed("encode threw"); }
  void record_select(const tenon_candidates&, const tenon_sampling&, sdk::Recorder&) {
    throw sdk::NoSpace("record_select threw");
  }
  void record_accept(const tenon_candidates&, const tenon_sampling&, sdk::Recorder&) { throw 1; }
};

}  // namespace tenon::bad

using tenon::bad::ThrowsSampler;
TENON_PLUGIN(ThrowsSampler);
