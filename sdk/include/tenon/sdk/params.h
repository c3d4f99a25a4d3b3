// A component states its parameters with these builders, which are constexpr so that the schema's hash can stand in the
// ELF note, and reads their values with Params.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "tenon/abi/params.h"
#include "tenon/sdk/error.h"

namespace tenon::sdk {

struct IntParam {
  const char* name;
  const char* doc;
  int64_t value = 0;  // the default
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  const char* choices = nullptr;  // "32|64|128"
  const char* unit = "";
  uint32_t flags = 0;
};
struct RealParam {
  const char* name;
  const char* doc;
  double value = 0;
  double min = -std::numeric_limits<double>::max();
  double max = std::numeric_limits<double>::max();
  const char* unit = "";
  uint32_t flags = 0;
};
struct TextParam {
  const char* name;
  const char* doc;
  const char* value = "";
  const char* choices = nullptr;  // "fp32|fp16|bf16"
  uint32_t flags = 0;
};
struct BoolParam {
  const char* name;
  const char* doc;
  bool value = false;
  uint32_t flags = 0;
};

constexpr tenon_param_spec integer(const IntParam& p) {
  auto s = abi_struct<tenon_param_spec>();
  s.name = p.name;
  s.doc = p.doc;
  s.unit = p.unit;
  s.type = TENON_PARAM_INT;
  s.flags = p.flags;
  s.int_default = p.value;
  s.int_min = p.min;
  s.int_max = p.max;
  s.choices = p.choices;
  return s;
}
constexpr tenon_param_spec real(const RealParam& p) {
  auto s = abi_struct<tenon_param_spec>();
  s.name = p.name;
  s.doc = p.doc;
  s.unit = p.unit;
  s.type = TENON_PARAM_REAL;
  s.flags = p.flags;
  s.real_default = p.value;
  s.real_min = p.min;
  s.real_max = p.max;
  return s;
}
constexpr tenon_param_spec text(const TextParam& p) {
  auto s = abi_struct<tenon_param_spec>();
  s.name = p.name;
  s.doc = p.doc;
  s.unit = "";
  s.type = TENON_PARAM_TEXT;
  s.flags = p.flags;
  s.text_default = p.value;
  s.choices = p.choices;
  return s;
}
constexpr tenon_param_spec boolean(const BoolParam& p) {
  auto s = abi_struct<tenon_param_spec>();
  s.name = p.name;
  s.doc = p.doc;
  s.unit = "";
  s.type = TENON_PARAM_BOOL;
  s.flags = p.flags;
  s.int_default = p.value ? 1 : 0;
  s.int_max = 1;
  return s;
}

// A component lists its parameters in the order of its schema:
//   static constexpr auto kParams = sdk::params(sdk::integer({...}), ...);
template <class... S>
constexpr std::array<tenon_param_spec, sizeof...(S)> params(const S&... specs) {
  return {specs...};
}

namespace detail {
constexpr uint64_t fnv(uint64_t hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return (hash ^ 0xffu) * 0x100000001b3u;
}
constexpr uint64_t fnv(uint64_t hash, uint64_t value) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ ((value >> (8 * i)) & 0xffu)) * 0x100000001b3u;
  return hash;
}
inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;

// The hash covers what a pipeline file can see: names, types, defaults, ranges and choices, and not the documentation.
constexpr uint64_t schema_hash(const tenon_param_spec* specs, size_t n) {
  uint64_t h = kFnvStart;
  for (size_t i = 0; i < n; ++i) {
    const tenon_param_spec& s = specs[i];
    h = fnv(fnv(h, std::string_view(s.name)), (uint64_t{s.type} << 32) | s.flags);
    h = fnv(fnv(fnv(h, static_cast<uint64_t>(s.int_default)), static_cast<uint64_t>(s.int_min)),
            static_cast<uint64_t>(s.int_max));
    h = fnv(fnv(fnv(h, __builtin_bit_cast(uint64_t, s.real_default)), __builtin_bit_cast(uint64_t, s.real_min)),
            __builtin_bit_cast(uint64_t, s.real_max));
    if (s.text_default != nullptr) h = fnv(h, std::string_view(s.text_default));
    if (s.choices != nullptr) h = fnv(h, std::string_view(s.choices));
  }
  return h;
}

template <size_t N>
constexpr void write_hex(uint64_t value, char (&out)[N]) {
  static_assert(N > 16);
  for (int i = 0; i < 16; ++i) out[i] = "0123456789abcdef"[(value >> (60 - 4 * i)) & 15u];
}
}  // namespace detail

// The host hands over every parameter of the schema, typed and within its range. Params is valid during the call only.
// A name that the schema does not have with that type throws Failed.
class Params {
 public:
  Params(const tenon_params* values, const tenon_param_spec* specs, size_t n) : values_(values), specs_(specs), n_(n) {}

  int64_t integer(std::string_view name) const { return at(name, TENON_PARAM_INT).integer; }
  double real(std::string_view name) const { return at(name, TENON_PARAM_REAL).real; }
  std::string text(std::string_view name) const { return at(name, TENON_PARAM_TEXT).text; }
  bool boolean(std::string_view name) const { return at(name, TENON_PARAM_BOOL).integer != 0; }

 private:
  const tenon_param_value& at(std::string_view name, uint32_t type) const {
    for (size_t i = 0; i < n_ && i < values_->count; ++i) {
      if (name == specs_[i].name && specs_[i].type == type) return values_->value[i];
    }
    throw Failed("the schema has no parameter \"" + std::string(name) + "\" of that type");
  }

  const tenon_params* values_;
  const tenon_param_spec* specs_;
  size_t n_;
};

}  // namespace tenon::sdk
