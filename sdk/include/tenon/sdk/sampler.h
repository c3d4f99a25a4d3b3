// A sampler is a class T that derives from Sampler<T>; tenon/abi/sampler.h says what its functions owe. Every T has
//   static constexpr uint32_t kInForms;                        TENON_DENSE | TENON_SPARSE
//   using Record = ...;                                        the parameters of one sequence, trivially copyable
//   Record encode(const Params&) const;                        the record of a request with these parameters
// A processor has
//   void record_apply(tenon_candidates&, const tenon_sampling&, Recorder&);
// a selector has
//   void record_select(const tenon_candidates&, const tenon_sampling&, Recorder&);
// and either of them, if it has a state, has
//   uint64_t state_bytes(uint32_t vocab) const;                the bytes of one slot
//   void record_accept(const tenon_candidates& given, const tenon_sampling&, Recorder&);
// The constructor gets the component's own Params; encode() gets the same keys with a request's overrides.
#pragma once

#include <cstring>
#include <type_traits>

#include "tenon/abi/sampler.h"
#include "tenon/sdk/component.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk {

template <class T>
class Sampler : public ComponentDefaults {
 public:
  static constexpr const char* kKind = "sampler";
  static constexpr const char* kInterface = "sampler/1";

  static const tenon_sampler* table() {
    static constexpr tenon_sampler kTable = make();
    return &kTable;
  }

 private:
  static constexpr tenon_sampler make() {
    static_assert(std::is_trivially_copyable_v<typename T::Record>);
    auto t = abi_struct<tenon_sampler>();
    t.in_forms = T::kInForms;
    t.param_bytes = sizeof(typename T::Record);
    t.state_bytes = &call_state_bytes;
    t.encode = &call_encode;
    if constexpr (requires { &T::record_select; }) {
      t.is_selector = 1;
      t.record_select = &call_record_select;
    } else {
      t.record_apply = &call_record_apply;
    }
    if constexpr (requires { &T::record_accept; }) t.record_accept = &call_record_accept;
    return t;
  }
  static T& self(void* p) { return *static_cast<T*>(p); }

  static uint64_t call_state_bytes(void* p, uint32_t vocab) noexcept {
    uint64_t bytes = 0;
    if constexpr (requires { &T::state_bytes; }) {
      static_cast<void>(guard(nullptr, [&] { bytes = self(p).state_bytes(vocab); }));
    } else {
      static_cast<void>(p);
      static_cast<void>(vocab);
    }
    return bytes;
  }
  static tenon_status call_encode(void* p, const tenon_params* request, void* record, tenon_reason* why) noexcept {
    return guard(why, [&] {
      using Schema = detail::SchemaOf<T>;
      const typename T::Record r = self(p).encode(Params(request, Schema::kSpecs.data(), Schema::kSpecs.size()));
      std::memcpy(record, &r, sizeof(r));
    });
  }
  static tenon_status call_record_apply(void* p, const tenon_sampling* sampling, tenon_candidates* c,
                                        const tenon_recorder* rec, tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      tenon_candidates candidates = read_abi(c);
      self(p).record_apply(candidates, read_abi(sampling), r);
      write_abi(c, candidates);
    });
  }
  static tenon_status call_record_select(void* p, const tenon_sampling* sampling, const tenon_candidates* c,
                                         const tenon_recorder* rec, tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record_select(read_abi(c), read_abi(sampling), r);
    });
  }
  static tenon_status call_record_accept(void* p, const tenon_sampling* sampling, const tenon_candidates* given,
                                         const tenon_recorder* rec, tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record_accept(read_abi(given), read_abi(sampling), r);
    });
  }
};

}  // namespace tenon::sdk
