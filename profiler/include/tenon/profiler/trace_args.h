// The arguments of events are sets of named values, and equal sets are kept once. A set is its shape (names and kinds,
// which all events of a sort share) and as many bytes a value as its digits need. If several sets have the same shape
// and texts, such as those of one kernel's launches, all but the first hold only what differs from the first.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/profiler/trace_strings.h"

namespace tenon::profiler {

struct TraceArg {
  enum class Kind : uint8_t { kInteger, kNumber, kText, kBool, kNull, kJson };  // kJson: an object or array, as text

  uint32_t key = 0;  // the id of its name in the strings
  Kind kind = Kind::kNull;
  int64_t integer = 0;  // kInteger, kBool
  double number = 0;    // kNumber
  uint32_t text = 0;    // kText, kJson: its id in the strings
};

class TraceArgs {
 public:
  // Returns the id of the set, 0 for the empty one. Values beyond the 1024th are left out; so are sets of
  // further shapes once there are 65536 shapes.
  uint32_t intern(std::span<const TraceArg> args);
  // Frees what only intern() needs; it is called when all sets are in.
  void freeze();

  size_t bytes() const noexcept;  // so much memory is in use
  uint64_t refused() const noexcept { return refused_; }

  std::vector<TraceArg> all(uint32_t set) const;
  std::optional<TraceArg> find(uint32_t set, uint32_t key) const;
  // Returns the value of an integer, number or bool.
  std::optional<double> number(uint32_t set, uint32_t key) const;
  // Returns the id in the strings of a kText or kJson.
  std::optional<uint32_t> text(uint32_t set, uint32_t key) const;
  // Returns true if among[id] is true for a text of the set.
  bool has_text(uint32_t set, const std::vector<bool>& among) const;

 private:
  // A kDecimal is an integer and the power of ten to divide it by, which gives exactly the double.
  enum class Code : uint8_t { kInteger, kDecimal, kDouble, kText, kBool, kNull, kJson };
  struct Field {
    uint32_t key;
    Code code;
    auto operator<=>(const Field&) const = default;
  };
  using Shape = std::vector<Field>;

  static constexpr size_t kChunk = 1U << 20U;

  // This reads the values of a set, in the order of its shape.
  class Values {
   public:
    Values(const TraceArgs& args, uint32_t set);
    const Shape& shape() const { return shape_; }
    const uint8_t* next(Code code);
    const uint8_t* end() const { return own_; }  // the set ends here, once all values have been asked for

   private:
    const uint8_t* own_;
    uint64_t head_;
    const Shape& shape_;
    const uint8_t* first_ = nullptr;  // this set differs from it in some values; null: it has all itself
    uint64_t differing_ = 0;          // each value has a bit, the lowest for the next one
  };

  const uint8_t* at(uint32_t set) const { return chunks_[set / kChunk].get() + set % kChunk; }
  void pack(const TraceArg& arg);
  bool find_shape();
  // Packs how the set differs from the first one of its sort; nothing if that has another shape. Returns that set if
  // it is the same, else 0.
  uint32_t pack_difference(uint32_t first);
  // Returns the id of what is packed; 0 if there is no room.
  uint32_t keep();
  void grow();
  bool same(uint32_t set) const;
  static const uint8_t* skip(Code code, const uint8_t* at);
  static TraceArg decode(Field field, const uint8_t* at);

  std::vector<std::unique_ptr<uint8_t[]>> chunks_;
  uint32_t used_ = 1;  // so many bytes of all chunks are in use; 0 is the empty set's id
  std::vector<Shape> shapes_;
  std::map<Shape, uint32_t> shape_ids_;
  uint32_t last_shape_ = 0;
  std::vector<uint32_t> firsts_;                      // sets that others differ from
  std::unordered_map<uint64_t, uint32_t> first_ids_;  // the ids are found by the hash of shape and texts
  std::vector<uint32_t> slots_;                       // sets by hash, linear probing; 0 = free
  size_t sets_ = 0;
  uint64_t refused_ = 0;
  // The rest belongs to the set that is being added.
  Shape shape_;
  uint64_t sort_ = 0;  // it is a hash of its shape and texts
  std::vector<uint8_t> values_, differences_, packed_;
};

}  // namespace tenon::profiler
