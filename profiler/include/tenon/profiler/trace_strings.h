// Texts that occur many times are kept once.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

namespace tenon::profiler {

class TraceStrings {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  TraceStrings();
  TraceStrings(TraceStrings&&) = default;
  TraceStrings& operator=(TraceStrings&&) = default;

  // Returns the id of `text`; 0 is the empty text. A text longer than 64 KiB is cut; once `max_bytes` of text are held,
  // new texts become the empty one.
  uint32_t intern(std::string_view text);
  // Returns kNone if the text never occurred.
  uint32_t find(std::string_view text) const noexcept;

  std::string_view operator[](uint32_t id) const noexcept { return texts_[id]; }  // it is valid as long as this object
  uint32_t size() const noexcept { return static_cast<uint32_t>(texts_.size()); }
  size_t bytes() const noexcept;  // so much memory is in use
  uint64_t refused() const noexcept { return refused_; }
  void limit(uint64_t max_bytes) noexcept { max_bytes_ = max_bytes; }

 private:
  size_t slot_of(std::string_view text) const noexcept;
  void grow();

  std::vector<std::unique_ptr<char[]>> chunks_;
  size_t used_ = 0;                     // so many bytes of the last chunk are in use
  std::deque<std::string_view> texts_;  // a deque grows without copying
  std::vector<uint32_t> slots_;         // it is a hash table with linear probing; kNone = free
  uint64_t bytes_ = 0, max_bytes_ = UINT64_MAX, refused_ = 0;
};

}  // namespace tenon::profiler
