// A file that appears under its name when it is whole, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace tenon {

struct AtomicFileOptions {
  // The name that it has until then, to be read while it grows; a file of that name is written over. Empty: none, so
  // that even a killed process leaves nothing; where the file system has no files without a name, one of its own.
  std::filesystem::path part_path = {};
  std::filesystem::path folder = {};  // where it grows without a part_path; empty: where it will be
  uint64_t bytes = 0;    // asked for at once where the file system can, so that a full disk is known before the work
  uint32_t mode = 0666;  // less the process's umask
  bool replace = true;   // false: what has the name by the time of commit() keeps it
};

// Renames; without `replace` it is EEXIST where something has the name `to`.
[[nodiscard]] std::error_code give_name(const std::filesystem::path& from, const std::filesystem::path& to,
                                        bool replace);

// Destroyed without a successful commit() it leaves nothing.
class AtomicFile {
 public:
  // Throws Error(kIo) with the name that could not be opened and the system's reason.
  explicit AtomicFile(std::filesystem::path path, AtomicFileOptions options = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // All of it, or the reason why not; ENOSPC where nothing more can be written.
  [[nodiscard]] std::error_code write_at(std::span<const std::byte> bytes, uint64_t offset);
  // Brings it to the disk.
  [[nodiscard]] std::error_code sync();
  // Gives it its name: in the place of a file that has it, or else EEXIST, see AtomicFileOptions::replace.
  [[nodiscard]] std::error_code commit();

 private:
  bool open_unnamed(uint32_t mode);
  std::filesystem::path own_name() const;
  std::error_code link_unnamed();

  std::filesystem::path path_, part_path_, folder_;  // no part_path_: it has no name
  int descriptor_ = -1;
  bool replace_, done_ = false;
};

}  // namespace tenon
