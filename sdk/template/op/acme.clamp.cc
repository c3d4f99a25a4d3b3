// op.acme.clamp keeps every element between two bounds. Its id is the hash of its name, so no product and no attention
// knows it; a model that names it gets this form wherever it stands.
#include <algorithm>

#include "tenon/sdk/cpu/small_op.h"
#include "tenon/sdk/op.h"

namespace sdk = tenon::sdk;

namespace {

enum Number : uint32_t { kLow, kHigh };  // places in tenon_fop.f

void clamp(const sdk::cpu::Row& row) {
  const float low = row.args.f[kLow], high = row.args.f[kHigh];
  for (int64_t i = 0; i < row.args.columns; ++i) row.y[i] = std::clamp(row.x[i], low, high);
}

class Clamp : public sdk::Op<Clamp> {
 public:
  static constexpr const char* kName = "acme.clamp";
  static constexpr const char* kDoc = "Every element between two bounds";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE | TENON_SMALL_OP_BY_COLUMN;
  static constexpr auto kArgs = sdk::op_args(sdk::op_number("low", kLow), sdk::op_number("high", kHigh));

  Clamp(const sdk::Params&, const sdk::Env&) {}
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const {
    if (!(op.f[kLow] <= op.f[kHigh])) throw sdk::Failed("low is above high");
    sdk::cpu::record_rows<&clamp>({.name = "clamp"}, op, x, y, r);
  }
};

}  // namespace

TENON_PLUGIN(Clamp);
