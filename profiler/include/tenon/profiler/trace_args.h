// The arguments of events: sets of named values, equal sets kept once. A set is its shape (names and kinds, shared by
// all events of a sort) and one or two 32-bit words a value.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tenon/profiler/trace_strings.h"

namespace tenon::profiler {

struct TraceArg {
  enum class Kind : uint8_t { kInteger, kNumber, kText, kBool, kNull, kJson };  // kJson: an object or array, as text

  uint32_t key = 0;  // of the strings
  Kind kind = Kind::kNull;
  int64_t integer = 0;  // kInteger, kBool
  double number = 0;    // kNumber
  uint32_t text = 0;    // kText, kJson: of the strings
};

class TraceArgs {
 public:
  // The id of the set, 0 for the empty one. Values beyond the 1024th are left out, and sets of further shapes once
  // there are 65536.
  uint32_t intern(std::span<const TraceArg> args);
  // To be called when all sets are in: frees what only intern() needs.
  void freeze();

  size_t bytes() const noexcept;  // of memory
  uint64_t refused() const noexcept { return refused_; }

  std::vector<TraceArg> all(uint32_t set) const;
  std::optional<TraceArg> find(uint32_t set, uint32_t key) const;
  // The value as a number: integers, numbers and bools.
  std::optional<double> number(uint32_t set, uint32_t key) const;
  // The value as an id of the strings: kText and kJson.
  std::optional<uint32_t> text(uint32_t set, uint32_t key) const;
  // Whether a text of the set is `among` these, by id.
  bool has_text(uint32_t set, const std::vector<bool>& among) const;

 private:
  // kDecimal: an int32 to be divided by 10 to the power of `decimals`, which gives the very double.
  enum class Code : uint8_t { kInt32, kInt64, kDecimal, kDouble, kText, kBool, kNull, kJson };
  struct Field {
    uint32_t key;
    Code code;
    uint8_t decimals;
    auto operator<=>(const Field&) const = default;
  };
  using Shape = std::vector<Field>;

  static constexpr size_t kChunkWords = 1U << 18U;

  const uint32_t* words(uint32_t set) const { return chunks_[set / kChunkWords].get() + set % kChunkWords; }
  static size_t width(Code code);
  static TraceArg decode(Field field, const uint32_t* at);
  bool same(uint32_t set) const;

  std::vector<std::unique_ptr<uint32_t[]>> chunks_;
  uint32_t used_ = 1;  // of all chunks, in words; 0 is the empty set
  std::vector<Shape> shapes_;
  std::map<Shape, uint32_t> shape_ids_;
  uint32_t last_shape_ = 0;
  Shape shape_;                   // of the set that is being added
  std::vector<uint32_t> packed_;  // of that, the shape's id in front
  std::vector<uint32_t> slots_;   // sets by hash, linear probing; 0 = free
  size_t sets_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace tenon::profiler
