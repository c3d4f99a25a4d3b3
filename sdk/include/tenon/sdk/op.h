// A small op is a class T that derives from Op<T>; tenon/abi/op.h says what its functions owe. T has
//   static constexpr tenon_id kId;                  optional, for Tenon's own ops; else the id is the FNV-1a hash of kName
//   static constexpr uint32_t kFlags;               TENON_SMALL_OP_*
//   static constexpr auto kArgs = sdk::op_args(sdk::op_vector("weight", 0), sdk::op_number("eps", 0));
//   int64_t columns(const tenon_fop&, int64_t x);   optional, else y has as many as x; throw Refused("why") to decline
//   void record(const tenon_fop&, tenon_tid x, tenon_tid y, Recorder&);
// cpu/small_op.h and cuda/small_op.cuh have what ops over rows share on a device.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tenon/abi/op.h"
#include "tenon/sdk/component.h"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk {

// An op that is not Tenon's own has an id that follows from its name, such as "acme.clamp".
constexpr tenon_id op_id(std::string_view name) {
  tenon_id hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Each of these makes one entry of kArgs; the number is the argument's place in tenon_fop's t, f or i.
constexpr tenon_op_arg op_vector(const char* name, uint32_t t, const char* doc = "") {
  return {name, doc, TENON_ARG_VECTOR, t};
}
constexpr tenon_op_arg op_table(const char* name, uint32_t t, const char* doc) {
  return {name, doc, TENON_ARG_TABLE, t};
}
constexpr tenon_op_arg op_rows(const char* name, uint32_t t, const char* doc = "") {
  return {name, doc, TENON_ARG_ROWS, t};
}
constexpr tenon_op_arg op_number(const char* name, uint32_t f, const char* doc = "") {
  return {name, doc, TENON_ARG_NUMBER, f};
}
constexpr tenon_op_arg op_integer(const char* name, uint32_t i, const char* doc = "") {
  return {name, doc, TENON_ARG_INTEGER, i};
}
template <class... A>
constexpr std::array<tenon_op_arg, sizeof...(A)> op_args(const A&... args) {
  return {args...};
}

// An op over heads has these arguments.
template <class... A>
constexpr std::array<tenon_op_arg, sizeof...(A) + 4> op_args_over_heads(const A&... args) {
  return {args..., op_integer("q_heads", Heads::kQ), op_integer("kv_heads", Heads::kKv),
          op_integer("k_dim", Heads::kKDim), op_integer("v_dim", Heads::kVDim)};
}
// It throws Refused unless x's columns are the op's heads, and returns their number: y has as many.
inline int64_t columns_of_heads(const tenon_fop& op, int64_t x) {
  const Heads heads(op.i);
  if (heads.columns() == x) return x;
  throw Refused(std::to_string(x) + " columns are not " + std::to_string(heads.q) + " + " + std::to_string(heads.kv) +
                " heads of " + std::to_string(heads.k_dim) + " and " + std::to_string(heads.kv) + " of " +
                std::to_string(heads.v_dim));
}
// It gives the columns of an op that multiplies the second half of x's columns by what it makes of the first.
inline int64_t half_of_columns(int64_t x) {
  if (x % 2 == 0) return x / 2;
  throw Refused(std::to_string(x) + " columns have no two halves");
}

template <class T>
class Op : public ComponentDefaults {
 public:
  static constexpr const char* kKind = "op";
  static constexpr const char* kInterface = "op/1";

  static const tenon_small_op* table() {
    static constexpr tenon_small_op kTable = make();
    return &kTable;
  }

 private:
  static constexpr tenon_small_op make() {
    auto t = abi_struct<tenon_small_op>();
    if constexpr (requires { T::kId; }) {
      t.id = T::kId;
    } else {
      t.id = op_id(T::kName);
    }
    t.flags = T::kFlags;
    t.n_args = static_cast<uint32_t>(T::kArgs.size());
    t.arg = T::kArgs.data();
    t.columns = &call_columns;
    t.record = &call_record;
    return t;
  }
  static T& self(void* p) { return *static_cast<T*>(p); }

  static tenon_status call_columns(void* p, const tenon_fop* op, int64_t x, int64_t* y, tenon_reason* why) noexcept {
    return guard(why, [&] {
      if constexpr (requires { &T::columns; }) {
        *y = self(p).columns(read_abi(op), x);
      } else {
        static_cast<void>(p);
        static_cast<void>(op);
        *y = x;
      }
    });
  }
  static tenon_status call_record(void* p, const tenon_fop* op, tenon_tid x, tenon_tid y, const tenon_recorder* rec,
                                  tenon_reason* why) noexcept {
    return guard(why, [&] {
      Recorder r(rec);
      self(p).record(read_abi(op), x, y, r);
    });
  }
};

}  // namespace tenon::sdk
