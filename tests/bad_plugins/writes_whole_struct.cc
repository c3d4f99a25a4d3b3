// This attention answers with a struct as large as it knows it, whatever room the host has for it.
#include "tenon/sdk/attention.h"

namespace tenon::bad {

struct WritesWholeStruct : sdk::Attention<WritesWholeStruct> {
  static constexpr const char* kName = "writes_whole_struct";
  static constexpr const char* kDoc = "Reads fp32 and computes nothing.";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = 1;

  WritesWholeStruct(const sdk::Params&, const sdk::Env&) {}

  static const tenon_attention* instance_table() {
    static const tenon_attention kTable = [] {
      tenon_attention t = *table();
      t.preferred_format = [](void*, tenon_kv_format* out, tenon_reason*) -> tenon_status {
        *out = plain();
        return TENON_OK;
      };
      return t;
    }();
    return &kTable;
  }
  tenon_claim claim(const tenon_attn&, const tenon_kv_view& view, const tenon_bounds&) const {
    if (view.format->k.codec != TENON_F32) throw sdk::Refused("reads fp32 only");
    return sdk::abi_struct<tenon_claim>();
  }
  tenon_kv_format preferred_format() const { return plain(); }
  void record(const tenon_attn&, const tenon_attn_call&, sdk::Recorder&) const {}

 private:
  static tenon_kv_format plain() {
    auto format = sdk::abi_struct<tenon_kv_format>();
    format.k.codec = format.v.codec = TENON_F32;
    return format;
  }
};

}  // namespace tenon::bad

using tenon::bad::WritesWholeStruct;
TENON_PLUGIN(WritesWholeStruct);
