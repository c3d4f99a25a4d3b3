// A scheme is a class T that derives from Quantization<T>; tenon/abi/quantization.h says what its functions owe. T has a
// nested `struct Site` and
//   static constexpr uint32_t kRowInvariantMax;
//   tenon_claim claim(const tenon_linear&, const tenon_bounds&);            throw Refused("why") to decline
//   std::unique_ptr<Site> bind(const tenon_linear&, std::span<const tenon_claim* const>);
//   tenon_footprint footprint(Site&);
//   void load(Site&, const tenon_rows&, void* const* store, void* scratch, void* queue);
//   void record(Site&, const tenon_linear_call&, Recorder&);
//   void record_rows(Site&, const tenon_tid* store, tenon_tid index, tenon_tid y, Recorder&);   optional
// A scheme that writes files has both of
//   tenon_written describe(const tenon_linear&);                             throw Refused("why") to decline
//   void encode(const tenon_linear&, const tenon_encode&);
// and one that calibrates has both of
//   uint64_t observed_bytes(const tenon_linear&);
//   void observe(const tenon_linear&, const tenon_observe_call&, Recorder&);
// and one that also wants columns of x scaled has
//   void column_factors(const tenon_linear&, const tenon_column_factors&);
// tenon_linear has all tensors that the file has under each matrix's name, and the file's description of them. Most schemes
// read plain matrices (plain_format() of stored.h); some read tensors that they write themselves (need_tensors()). load()
// gets a slice of each tensor, in the same order, so a Site notes what each one is. Pointers inside tenon_linear are valid
// during the call only: a Site copies what it needs.
#pragma once

#include <memory>
#include <span>

#include "tenon/abi/quantization.h"
#include "tenon/sdk/component.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/stored.h"

namespace tenon::sdk {

template <class T>
class Quantization : public ComponentDefaults {
 public:
  static constexpr const char* kKind = "quantization";
  static constexpr const char* kInterface = "quantization/1";

  static const tenon_quantization* table() {
    static constexpr tenon_quantization kTable = make();
    return &kTable;
  }

 private:
  static constexpr tenon_quantization make() {
    auto t = abi_struct<tenon_quantization>();
    t.row_invariant_max = T::kRowInvariantMax;
    t.claim = &call_claim;
    t.bind = &call_bind;
    t.footprint = &call_footprint;
    t.load = &call_load;
    t.unbind = &call_unbind;
    t.record = &call_record;
    if constexpr (requires { &T::record_rows; }) t.record_rows = &call_record_rows;
    if constexpr (requires { &T::describe; }) {
      t.describe = &call_describe;
      t.encode = &call_encode;
    }
    if constexpr (requires { &T::observe; }) {
      t.observed_bytes = &call_observed_bytes;
      t.observe = &call_observe;
    }
    if constexpr (requires { &T::column_factors; }) t.column_factors = &call_column_factors;
    return t;
  }
  static T& self(void* p) { return *static_cast<T*>(p); }

  static tenon_status call_claim(void* p, const tenon_linear* s, const tenon_bounds* b, tenon_claim* out,
                                 tenon_reason* why) noexcept {
    return guard(why, [&] { write_abi(out, self(p).claim(read_abi(s), read_abi(b))); });
  }
  static tenon_status call_bind(void* p, const tenon_linear* s, const tenon_claim* const* claims, uint32_t n,
                                void** site, tenon_reason* why) noexcept {
    return guard(why, [&] {
      std::unique_ptr<typename T::Site> made = self(p).bind(read_abi(s), std::span(claims, n));
      *site = made.release();
    });
  }
  static tenon_status call_footprint(void* p, void* site, tenon_footprint* out, tenon_reason* why) noexcept {
    return guard(why, [&] { write_abi(out, self(p).footprint(*static_cast<typename T::Site*>(site))); });
  }
  static tenon_status call_load(void* p, void* site, const tenon_rows* src, void* const* store, void* scratch,
                                void* queue, tenon_reason* why) noexcept {
    return guard(why,
                 [&] { self(p).load(*static_cast<typename T::Site*>(site), read_abi(src), store, scratch, queue); });
  }
  static void call_unbind(void*, void* site) noexcept { delete static_cast<typename T::Site*>(site); }
  static tenon_status call_record(void* p, void* site, const tenon_linear_call* c, const tenon_recorder* rec,
                                  tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record(*static_cast<typename T::Site*>(site), read_abi(c), r);
    });
  }
  static tenon_status call_record_rows(void* p, void* site, const tenon_tid* store, tenon_tid index, tenon_tid y,
                                       const tenon_recorder* rec, tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record_rows(*static_cast<typename T::Site*>(site), store, index, y, r);
    });
  }
  static tenon_status call_describe(void* p, const tenon_linear* s, tenon_written* out, tenon_reason* why) noexcept {
    return guard(why, [&] { write_abi(out, self(p).describe(read_abi(s))); });
  }
  static tenon_status call_encode(void* p, const tenon_linear* s, const tenon_encode* e, tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).encode(read_abi(s), read_abi(e)); });
  }
  static uint64_t call_observed_bytes(void* p, const tenon_linear* s) noexcept {
    return self(p).observed_bytes(read_abi(s));
  }
  static tenon_status call_observe(void* p, const tenon_linear* s, const tenon_observe_call* c,
                                   const tenon_recorder* rec, tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).observe(read_abi(s), read_abi(c), r);
    });
  }
  static tenon_status call_column_factors(void* p, const tenon_linear* s, const tenon_column_factors* c,
                                          tenon_reason* why) noexcept {
    return guard(why, [&] { self(p).column_factors(read_abi(s), read_abi(c)); });
  }
};

}  // namespace tenon::sdk
