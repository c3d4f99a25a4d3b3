// A draft is a class T that derives from Draft<T>; tenon/abi/draft.h says what its functions owe. T has
//   uint32_t max_tokens() const;
//     It proposes so many tokens a step at most; the number is fixed after construction.
//   uint32_t propose(uint32_t slot, std::span<const int32_t> tokens, std::span<int32_t> out);
//     It writes proposals to the front of out and returns how many; they follow one another. Or, if they may branch,
//   uint32_t propose(uint32_t slot, std::span<const int32_t> tokens, std::span<int32_t> out, std::span<int32_t> parent);
//   void forget(uint32_t slot);                        optional
#pragma once

#include <span>

#include "tenon/abi/draft.h"
#include "tenon/sdk/component.h"

namespace tenon::sdk {

template <class T>
class Draft : public ComponentDefaults {
 public:
  static constexpr const char* kKind = "draft";
  static constexpr const char* kInterface = "draft/1";
  static constexpr const char* kDevice = "host";  // it serves a pipeline on any device

  static const tenon_draft* table() {
    static constexpr tenon_draft kTable = make();
    return &kTable;
  }

 private:
  static constexpr bool kBranches =
      requires(T& t, std::span<const int32_t> tokens, std::span<int32_t> out) { t.propose(0, tokens, out, out); };

  static constexpr tenon_draft make() {
    auto t = abi_struct<tenon_draft>();
    t.flags = kBranches ? TENON_DRAFT_TREES : 0;
    t.max_tokens = &call_max_tokens;
    t.propose = &call_propose;
    if constexpr (requires { &T::forget; }) t.forget = &call_forget;
    return t;
  }
  static T& self(void* p) { return *static_cast<T*>(p); }

  static uint32_t call_max_tokens(void* p) noexcept {
    uint32_t n = 0;
    static_cast<void>(guard(nullptr, [&] { n = self(p).max_tokens(); }));
    return n;
  }
  static tenon_status call_propose(void* p, uint32_t slot, const int32_t* tokens, uint32_t n, int32_t* out,
                                   int32_t* parent, uint32_t cap, uint32_t* count, tenon_reason* why) noexcept {
    return guard(why, [&] {
      if constexpr (kBranches) {
        *count = self(p).propose(slot, std::span(tokens, n), std::span(out, cap), std::span(parent, cap));
      } else {
        *count = self(p).propose(slot, std::span(tokens, n), std::span(out, cap));
      }
    });
  }
  static void call_forget(void* p, uint32_t slot) noexcept {
    static_cast<void>(guard(nullptr, [&] { self(p).forget(slot); }));
  }
};

}  // namespace tenon::sdk
