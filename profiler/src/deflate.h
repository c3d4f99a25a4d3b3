// Raw deflate (RFC 1951), as fast as what is installed.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

namespace tenon::profiler {

class Deflate {
 public:
  enum class Mode : unsigned char {
    kGoOn,
    kFlush,  // what was given so far can be unpacked
    kEnd,
  };
  using Put = std::function<void(std::string_view packed)>;

  virtual ~Deflate() = default;
  // bytes: fewer than 2^32.
  virtual void run(std::string_view bytes, Mode mode, const Put& put) = 0;
};

// By zlib. nullptr without memory.
std::unique_ptr<Deflate> make_zlib_deflate();
// By ISA-L, four times as fast; nullptr where its library or, when this was built, its header is not installed.
std::unique_ptr<Deflate> make_isal_deflate();

}  // namespace tenon::profiler
