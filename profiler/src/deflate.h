// This packs bytes as raw deflate (RFC 1951), as fast as what is installed does.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

namespace tenon::profiler {

class Deflate {
 public:
  enum class Mode : unsigned char {
    kGoOn,
    kFlush,  // everything that was given so far can be unpacked then
    kEnd,
  };
  using Put = std::function<void(std::string_view packed)>;

  virtual ~Deflate() = default;
  // There are fewer than 2^32 bytes.
  virtual void run(std::string_view bytes, Mode mode, const Put& put) = 0;
};

// Makes one that uses zlib; nullptr without memory.
std::unique_ptr<Deflate> make_zlib_deflate();
// Makes one that uses ISA-L, which is four times as fast; nullptr if its library is not installed,
// or its header was not when this was built.
std::unique_ptr<Deflate> make_isal_deflate();

}  // namespace tenon::profiler
