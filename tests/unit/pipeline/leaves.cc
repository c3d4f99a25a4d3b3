// This attention leaves its result in other formats than f32, as those of a GPU do, and attends to nothing: it is
// asked, no more. out: beside f32 it leaves this format.
#include <string>

#include "tenon/sdk/attention.h"
#include "tenon/sdk/kv_codec.h"

namespace acme {

namespace sdk = tenon::sdk;

struct Leaves : sdk::Attention<Leaves> {
  static constexpr const char* kName = "acme.leaves";
  static constexpr const char* kDoc = "Leaves its result in halves.";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "out", .doc = "A format of the result.", .value = "f32", .choices = "f32|bf16|f16"}));
  static constexpr uint32_t kRowInvariantMax = 0;
  static constexpr bool kLeavesLinks = true;

  Leaves(const sdk::Params& params, const sdk::Env&) : out_(params.text("out")) {}

  tenon_claim claim(const tenon_attn& a, const tenon_kv_view&, const tenon_bounds&) const {
    if (a.out_format != TENON_F32 && tenon_format_name(a.out_format) != out_) throw sdk::Refused("another result");
    return sdk::abi_struct<tenon_claim>();
  }
  tenon_kv_format preferred_format() const { return sdk::plain_kv_format(TENON_F32); }
  void record(const tenon_attn&, const tenon_attn_call&, sdk::Recorder&) const {
    throw sdk::Failed("it attends to nothing");
  }

 private:
  std::string out_;
};

}  // namespace acme

TENON_PLUGIN(acme::Leaves);
