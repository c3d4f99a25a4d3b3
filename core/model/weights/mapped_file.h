// This is a whole file, mapped for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tenon::weights {

// Any thread may use it after construction. A file that shrinks while it is mapped faults like any mapping;
// mapped_file_at() of tenon/core/fault.h names it.
class MappedFile {
 public:
  // Throws Error(kIo) with the path and the system's reason; anything but a regular file is refused. May be empty.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Copies from the file, not from the mapping, so that an error of the medium is an Error(kIo).
  void read(uint64_t offset, std::span<std::byte> out) const;
  // Hints that [offset, offset + size) is to be paged in.
  void prefetch(uint64_t offset, uint64_t size) const;
  // Hints that [offset, offset + size) is not wanted soon: its pages no longer count as the process's.
  void release(uint64_t offset, uint64_t size) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::span<const std::byte> bytes_;
};

}  // namespace tenon::weights
