// A gzip file has a header of RFC 1952, one stored block that holds the head, then raw deflate blocks. The stored block
// can be overwritten in place, and the checksum at the end is combined from the head's and the body's.
#include "tenon/profiler/output_file.h"

#include <zlib.h>

#include <filesystem>

#include "deflate.h"
#include "tenon/core/atomic_file.h"

namespace tenon::profiler {
namespace {

constexpr std::string_view kGzipHeader("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", 10);
constexpr size_t kStoredHeader = 5;

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFFU);
  return text;
}

const Bytef* as_bytef(std::string_view bytes) {
  return reinterpret_cast<const Bytef*>(bytes.data());
}

std::unique_ptr<AtomicFile> open_part(const std::string& path, const std::string& part_path,
                                      const OutputFileOptions& options) {
  const std::string& what = options.what;
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular &&
      kind != std::filesystem::file_type::none) {
    throw Error(ErrorCode::kIo, {path},
                what + ": this exists and is no regular file; name a file that may be replaced");
  }
  try {
    return std::make_unique<AtomicFile>(
        path, AtomicFileOptions{.part_path = part_path, .mode = 0644, .replace = options.replace});
  } catch (const Error& error) {
    const Diagnostic& found = error.diagnostics().front();
    throw Error(ErrorCode::kIo, found.where, what + ": " + found.message);
  }
}

}  // namespace

OutputFile::OutputFile(const std::string& path, size_t head_size, OutputFileOptions options)
    : options_(std::move(options)),
      part_path_(path + ".part"),
      gzip_(options_.gzip && path.ends_with(".gz")),
      file_(open_part(path, part_path_, options_)) {
  const std::string head(head_size, ' ');
  if (!gzip_) {
    put(head);
    return;
  }
  deflate_ = make_isal_deflate();
  if (!deflate_) deflate_ = make_zlib_deflate();
  if (!deflate_) {
    throw Error(ErrorCode::kMemory, {part_path_}, options_.what + ": no memory for the compressor");
  }
  put(kGzipHeader);
  put('\0' + little_endian(head_size, 2) + little_endian(~head_size, 2) + head);
}

OutputFile::~OutputFile() = default;

void OutputFile::keep(const char* doing, std::error_code error) {
  if (!error || !status_.ok()) return;
  status_ =
      Status::error(ErrorCode::kIo, options_.what + ": " + doing + " " + part_path_ + " failed after " +
                                        std::to_string(written_) + " bytes: " + error.message() + options_.consequence);
}

void OutputFile::put_at(std::string_view bytes, uint64_t offset) {
  if (status_.ok()) keep("writing", file_->write_at(std::as_bytes(std::span(bytes)), offset));
}

void OutputFile::put(std::string_view bytes) {
  put_at(bytes, written_);
  if (status_.ok()) written_ += bytes.size();
}

void OutputFile::write(std::string_view bytes) {
  if (!gzip_) return put(bytes);
  constexpr size_t kPiece = 1U << 30U;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPiece))) {
    const std::string_view piece = bytes.substr(0, kPiece);
    body_crc_ = crc32(body_crc_, as_bytef(piece), static_cast<uInt>(piece.size()));
    body_size_ += piece.size();
    deflate_->run(piece, Deflate::Mode::kGoOn, [this](std::string_view packed) { put(packed); });
  }
}

Status OutputFile::flush() {
  if (gzip_) deflate_->run({}, Deflate::Mode::kFlush, [this](std::string_view packed) { put(packed); });
  return status_;
}

Status OutputFile::finish(std::string_view head) {
  if (gzip_) {
    deflate_->run({}, Deflate::Mode::kEnd, [this](std::string_view packed) { put(packed); });
    const uLong head_crc = crc32(0, as_bytef(head), static_cast<uInt>(head.size()));
    const uLong crc = crc32_combine(head_crc, body_crc_, static_cast<z_off_t>(body_size_));
    put(little_endian(crc, 4) + little_endian(head.size() + body_size_, 4));
  }
  put_at(head, gzip_ ? kGzipHeader.size() + kStoredHeader : 0);
  if (status_.ok()) keep("renaming", file_->commit());
  return status_;
}

}  // namespace tenon::profiler
