// The gzip form: RFC 1952 header, one stored block that holds the head, then raw deflate blocks. The stored block can
// be overwritten in place, and the checksum at the end is combined from the head's and the body's.
#include "tenon/profiler/output_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace tenon::profiler {
namespace {

constexpr std::string_view kGzipHeader("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", 10);
constexpr size_t kStoredHeader = 5;
constexpr int kRawDeflate = -15;

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFFU);
  return text;
}

const Bytef* as_bytef(std::string_view bytes) {
  return reinterpret_cast<const Bytef*>(bytes.data());
}

}  // namespace

OutputFile::OutputFile(std::string path, size_t head_size, OutputFileOptions options)
    : options_(std::move(options)),
      path_(std::move(path)),
      part_path_(path_ + ".part"),
      head_size_(head_size),
      gzip_(options_.gzip && path_.ends_with(".gz")),
      stream_(std::make_unique<z_stream>()) {
  std::error_code ignored;
  const auto kind = std::filesystem::status(path_, ignored).type();
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular &&
      kind != std::filesystem::file_type::none) {
    throw Error(ErrorCode::kIo, {path_},
                options_.what + ": this exists and is no regular file; name a file that may be replaced");
  }
  fd_ = ::open(part_path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw Error(ErrorCode::kIo, {part_path_}, options_.what + ": cannot create this file: " + std::strerror(errno));
  }
  const std::string head(head_size_, ' ');
  if (!gzip_) {
    put(head);
    return;
  }
  if (deflateInit2(stream_.get(), Z_DEFAULT_COMPRESSION, Z_DEFLATED, kRawDeflate, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    ::close(fd_);
    throw Error(ErrorCode::kMemory, {part_path_}, options_.what + ": no memory for the compressor");
  }
  put(kGzipHeader);
  put('\0' + little_endian(head_size_, 2) + little_endian(~head_size_, 2) + head);
}

OutputFile::~OutputFile() {
  if (gzip_) deflateEnd(stream_.get());
  if (fd_ >= 0) ::close(fd_);
  if (!done_) ::unlink(part_path_.c_str());
}

void OutputFile::fail(const std::string& doing, int error) {
  if (!status_.ok()) return;
  status_ = Status::error(ErrorCode::kIo, options_.what + ": " + doing + " " + part_path_ + " failed after " +
                                              std::to_string(written_) + " bytes: " + std::strerror(error) +
                                              options_.consequence);
}

void OutputFile::put_at(std::string_view bytes, int64_t offset) {
  while (status_.ok() && !bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail("writing", n < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += n;
  }
}

void OutputFile::put(std::string_view bytes) {
  put_at(bytes, static_cast<int64_t>(written_));
  if (status_.ok()) written_ += bytes.size();
}

void OutputFile::deflate_bytes(std::string_view bytes, int mode) {
  std::array<char, 1U << 16U> out;
  stream_->next_in = const_cast<Bytef*>(as_bytef(bytes));  // zlib reads it only
  stream_->avail_in = static_cast<uInt>(bytes.size());
  do {
    stream_->next_out = reinterpret_cast<Bytef*>(out.data());
    stream_->avail_out = static_cast<uInt>(out.size());
    deflate(stream_.get(), mode);
    put({out.data(), out.size() - stream_->avail_out});
  } while (stream_->avail_out == 0 && status_.ok());
}

void OutputFile::write(std::string_view bytes) {
  if (!gzip_) return put(bytes);
  constexpr size_t kPiece = 1U << 30U;  // zlib counts in 32 bits
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPiece))) {
    const std::string_view piece = bytes.substr(0, kPiece);
    body_crc_ = crc32(body_crc_, as_bytef(piece), static_cast<uInt>(piece.size()));
    body_size_ += piece.size();
    deflate_bytes(piece, Z_NO_FLUSH);
  }
}

Status OutputFile::flush() {
  if (gzip_) deflate_bytes({}, Z_SYNC_FLUSH);
  return status_;
}

Status OutputFile::finish(std::string_view head) {
  if (gzip_) {
    deflate_bytes({}, Z_FINISH);
    const uLong head_crc = crc32(0, as_bytef(head), static_cast<uInt>(head.size()));
    const uLong crc = crc32_combine(head_crc, body_crc_, static_cast<z_off_t>(body_size_));
    put(little_endian(crc, 4) + little_endian(head.size() + body_size_, 4));
  }
  put_at(head, gzip_ ? kGzipHeader.size() + kStoredHeader : 0);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail("closing", errno);
  if (status_.ok() && ::rename(part_path_.c_str(), path_.c_str()) != 0) fail("renaming", errno);
  done_ = status_.ok();
  return status_;
}

}  // namespace tenon::profiler
