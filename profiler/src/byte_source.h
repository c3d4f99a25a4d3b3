// This reads bytes as a stream, and unpacks them if they are gzipped.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::profiler {

class ByteSource {
 public:
  // Fills a buffer; 0 = the end. May throw.
  using Read = std::function<size_t(std::span<char>)>;

  explicit ByteSource(Read read);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Returns the next unpacked bytes, valid until the next call; they are empty at the end.
  std::string_view next();

  // Says why a gzip stream ended before its end; empty if it did not.
  const std::string& damage() const noexcept { return damage_; }

 private:
  std::string_view inflate_next();

  Read read_;
  std::vector<char> in_;
  std::vector<char> out_;
  std::string_view pending_;  // it is a piece of in_
  bool gzip_ = false;
  bool member_done_ = false;
  z_stream stream_{};
  std::string damage_;
};

// Throws Error(kIo), on opening and while reading.
ByteSource::Read read_file(const std::string& path);
// `bytes` must outlive it.
ByteSource::Read read_bytes(std::string_view bytes);

}  // namespace tenon::profiler
