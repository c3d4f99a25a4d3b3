// The source gives pieces of at most kChunk bytes. It sees by the first bytes whether they are gzip; a gzip file that
// is damaged or cut gives what could be unpacked, and damage() says what was wrong.
#include "byte_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tenon/core/error.h"

namespace tenon::profiler {
namespace {

constexpr size_t kChunk = 1U << 16U;
constexpr int kGzipWindow = 15 + 16;
constexpr std::string_view kMagic = "\x1f\x8b";

}  // namespace

ByteSource::ByteSource(Read read) : read_(std::move(read)), in_(kChunk) {
  size_t size = 0;
  while (size < kMagic.size()) {  // a pipe may hand out single bytes
    const size_t n = read_(std::span(in_).subspan(size));
    if (n == 0) break;
    size += n;
  }
  pending_ = {in_.data(), size};
  if (!pending_.starts_with(kMagic)) return;
  if (inflateInit2(&stream_, kGzipWindow) != Z_OK) throw Error(ErrorCode::kMemory, "no memory to unpack gzip");
  gzip_ = true;
  out_.resize(kChunk);
}

ByteSource::~ByteSource() {
  if (gzip_) inflateEnd(&stream_);
}

std::string_view ByteSource::next() {
  if (gzip_) return inflate_next();
  if (pending_.empty()) pending_ = {in_.data(), read_(in_)};
  return std::exchange(pending_, {});
}

std::string_view ByteSource::inflate_next() {
  while (damage_.empty()) {
    if (pending_.empty()) pending_ = {in_.data(), read_(in_)};
    if (pending_.empty()) {
      if (!member_done_) damage_ = "the gzip stream ends before its end";
      break;
    }
    if (member_done_) {  // several members make one text
      inflateReset(&stream_);
      member_done_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(pending_.data()));  // zlib reads it only
    stream_.avail_in = static_cast<uInt>(pending_.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
    stream_.avail_out = static_cast<uInt>(out_.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    pending_.remove_prefix(pending_.size() - stream_.avail_in);
    member_done_ = result == Z_STREAM_END;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      damage_ = std::string("the gzip stream is damaged: ") + (stream_.msg != nullptr ? stream_.msg : "bad data");
    }
    const size_t made = out_.size() - stream_.avail_out;
    if (made > 0) return {out_.data(), made};
  }
  return {};
}

ByteSource::Read read_file(const std::string& path) {
  const auto fail = [path](const char* doing) {
    throw Error(ErrorCode::kIo, {path}, std::string("cannot ") + doing + " this file: " + std::strerror(errno));
  };
  const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) fail("open");
  const std::shared_ptr<const int> fd(new int(opened), [](const int* p) {
    ::close(*p);
    delete p;
  });
  return [fd, fail](std::span<char> buffer) {
    ssize_t n = 0;
    do {
      n = ::read(*fd, buffer.data(), buffer.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) fail("read");
    return static_cast<size_t>(n);
  };
}

ByteSource::Read read_bytes(std::string_view bytes) {
  return [bytes](std::span<char> buffer) mutable {
    const size_t n = std::min(bytes.size(), buffer.size());
    std::copy_n(bytes.begin(), n, buffer.begin());
    bytes.remove_prefix(n);
    return n;
  };
}

}  // namespace tenon::profiler
