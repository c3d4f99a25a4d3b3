#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "../../src/fault.h"
#include "tenon/core/error.h"

namespace tenon::weights {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& message) {
  throw Error(ErrorCode::kIo, {path.string()}, message);
}

std::string reason(int error) {
  return std::strerror(error);
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Without O_NONBLOCK the opening of a pipe would wait for a writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(path_, "cannot open: " + reason(errno));
  struct stat info {};
  const bool known = ::fstat(descriptor_, &info) == 0;
  const int error = errno;
  const auto size = static_cast<size_t>(info.st_size);
  void* start = nullptr;
  if (known && S_ISREG(info.st_mode)) {
    start = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor_, 0) : nullptr;
    if (start != MAP_FAILED) {
      bytes_ = {static_cast<const std::byte*>(start), size};
      if (size > 0) fault::remember_mapping(bytes_, path_, descriptor_);
      return;
    }
  }
  const int map_error = errno;
  ::close(descriptor_);
  if (!known) fail(path_, "cannot examine: " + reason(error));
  if (start == MAP_FAILED) fail(path_, "cannot map " + std::to_string(size) + " bytes: " + reason(map_error));
  fail(path_, "not a regular file");
}

MappedFile::~MappedFile() {
  fault::forget_mapping(bytes_);
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  if (descriptor_ >= 0) ::close(descriptor_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(std::exchange(other.bytes_, {})) {}

void MappedFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "cannot read at byte " + std::to_string(offset) + ": " + reason(errno));
    if (got == 0) fail(path_, "ends at byte " + std::to_string(offset) + " now; it was cut off after it was opened");
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

namespace {

// Gives the advice for the pages that have a byte of [offset, offset + size).
void advise(std::span<const std::byte> bytes, uint64_t offset, uint64_t size, int advice) {
  if (offset >= bytes.size() || size == 0) return;
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = offset / page * page;
  const uint64_t end = offset + std::min<uint64_t>(size, bytes.size() - offset);
  ::madvise(const_cast<std::byte*>(bytes.data() + begin), end - begin, advice);
}

}  // namespace

void MappedFile::prefetch(uint64_t offset, uint64_t size) const {
  advise(bytes_, offset, size, MADV_WILLNEED);
}

void MappedFile::release(uint64_t offset, uint64_t size) const {
  advise(bytes_, offset, size, MADV_DONTNEED);
}

}  // namespace tenon::weights
