// Has the system give pages to memory that is about to be written, from its end on, on a thread of its own: while
// weights are converted from the beginning. Zeroing pages takes as long as that or, in a virtual machine, longer.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <thread>

namespace tenon {

class PagesAhead {
 public:
  // `base` is the address of a mapping's page. The memory must outlive this; whoever writes first, nothing is lost.
  // Where the system starts no thread the pages come one by one, later.
  PagesAhead(std::byte* base, uint64_t bytes) {
    try {
      thread_ = std::jthread([base, bytes](const std::stop_token& stop) { populate(base, bytes, stop); });
    } catch (const std::system_error&) {
    }
  }

 private:
  static void populate(std::byte* base, uint64_t bytes, const std::stop_token& stop) {
    for (uint64_t end = bytes; end > 0 && !stop.stop_requested();) {
      const uint64_t begin = (end - 1) / kPiece * kPiece;
      if (::madvise(base + begin, end - begin, MADV_POPULATE_WRITE) != 0) return;  // Linux before 5.14 does not know it
      end = begin;
    }
  }

  static constexpr uint64_t kPiece = uint64_t{4} << 20;
  std::jthread thread_;
};

}  // namespace tenon
