// An attention is a class T that derives from Attention<T>; tenon/abi/attention.h says what its functions owe. T has
//   static constexpr uint32_t kRowInvariantMax;
//   tenon_claim claim(const tenon_attn&, const tenon_kv_view& prototype, const tenon_bounds&);
//     It throws Refused("why") to decline; sdk::kv_unread() says why a reader cannot read a view.
//   tenon_kv_format preferred_format();
//   static constexpr bool kLeavesLinks;   if it has that and it is true, claim() is asked for other formats of the result, too
//   void record(const tenon_attn&, const tenon_attn_call&, Recorder&);
#pragma once

#include "tenon/abi/attention.h"
#include "tenon/sdk/component.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk {

template <class T>
class Attention : public ComponentDefaults {
 public:
  static constexpr const char* kKind = "attention";
  static constexpr const char* kInterface = "attention/1";

  static constexpr bool kLeavesLinks = false;

  static const tenon_attention* table() {
    static constexpr tenon_attention kTable = make();
    return &kTable;
  }

 private:
  static constexpr tenon_attention make() {
    auto t = abi_struct<tenon_attention>();
    t.row_invariant_max = T::kRowInvariantMax;
    t.leaves_links = T::kLeavesLinks ? 1 : 0;
    t.claim = &call_claim;
    t.record = &call_record;
    t.preferred_format = &call_preferred_format;
    return t;
  }
  static T& self(void* p) { return *static_cast<T*>(p); }

  static tenon_status call_claim(void* p, const tenon_attn* a, const tenon_kv_view* kv, const tenon_bounds* b,
                                 tenon_claim* out, tenon_reason* why) noexcept {
    return guard(why, [&] { write_abi(out, self(p).claim(read_abi(a), read_abi(kv), read_abi(b))); });
  }
  static tenon_status call_preferred_format(void* p, tenon_kv_format* out, tenon_reason* why) noexcept {
    return guard(why, [&] { write_abi(out, self(p).preferred_format()); });
  }
  static tenon_status call_record(void* p, const tenon_attn* a, const tenon_attn_call* c, const tenon_recorder* rec,
                                  tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record(read_abi(a), read_abi(c), r);
    });
  }
};

// It throws Refused for heads that no attention can have.
inline void check_heads(const tenon_attn& a) {
  if (a.kv_heads == 0 || a.q_heads == 0 || a.q_heads % a.kv_heads != 0) {
    throw Refused(std::to_string(a.q_heads) + " query heads cannot share " + std::to_string(a.kv_heads) + " KV heads");
  }
  if (a.k_dim == 0 || a.v_dim == 0) throw Refused("heads without dimensions");
}

}  // namespace tenon::sdk
