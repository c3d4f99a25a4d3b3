// A cursor reads forward through GGUF's header.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "tenon/core/error.h"

namespace tenon::weights {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Every read is checked against what is left; failures throw Error(kModel) with the offset. Borrows both arguments.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  [[noreturn]] void fail(uint64_t at, const std::string& message) const {
    throw Error(ErrorCode::kModel, {file_}, "at byte " + std::to_string(at) + ": " + message);
  }

  std::span<const std::byte> take_bytes(uint64_t count, const std::string& what) {
    if (count > left()) {
      fail(at_, what + " needs " + std::to_string(count) + " bytes, but " + std::to_string(left()) +
                    " are left; is the file truncated?");
    }
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }

  template <class T>
  T take(const std::string& what) {
    T value;
    std::memcpy(&value, take_bytes(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view take_string(const std::string& what) {
    const auto length = take<uint64_t>(what);
    const auto text = take_bytes(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  struct CountLimits {
    uint64_t entry_bytes;  // one entry takes at least so many in the file
    uint64_t most;         // entries
  };

  // Reads a number of entries, which the bytes left must be able to hold.
  uint64_t take_count(CountLimits limits, const std::string& what) {
    const uint64_t start = at_;
    const auto count = take<uint64_t>("the number of " + what);
    const uint64_t most = std::min(limits.most, left() / limits.entry_bytes);
    if (count > most) {
      fail(start, "claims " + std::to_string(count) + " " + what + ", but at most " + std::to_string(most) +
                      " are possible in the " + std::to_string(left()) + " bytes left");
    }
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& file_;
  uint64_t at_ = 0;
};

}  // namespace tenon::weights
