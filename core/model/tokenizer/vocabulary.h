// A vocabulary has token texts by id and ids by text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

// These are strings by index, in one block of memory.
class StringTable {
 public:
  void reserve(size_t strings, size_t bytes);
  void push_back(std::string_view text);
  size_t size() const noexcept { return ends_.size(); }
  std::string_view operator[](size_t i) const;

 private:
  std::string block_;
  std::vector<size_t> ends_;
};

// It never changes. Ids are dense; an id that no token has holds the empty string.
class Vocabulary {
 public:
  Vocabulary() = default;
  // If texts are equal, the first id is found.
  explicit Vocabulary(std::span<const std::string> tokens);

  int32_t size() const noexcept { return static_cast<int32_t>(texts_.size()); }
  std::string_view text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  std::optional<int32_t> find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t hash;
    int32_t id;  // -1 = free
  };
  StringTable texts_;
  std::vector<Slot> slots_;  // open addressing; the size is a power of two
};

}  // namespace tenon::text
