// Such a file appears under its name when it is whole, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace tenon {

struct AtomicFileOptions {
  // The file has this name until commit(), so that it can be read while it grows; a file of that name is written over.
  // If it is empty, the file has no name, so that even a killed process leaves nothing, or, on a file system that has
  // no files without a name, a name of its own.
  std::filesystem::path part_path = {};
  std::filesystem::path folder = {};  // it grows here if it has no part_path; empty: in the folder of its final name
  uint64_t bytes = 0;    // so much space is asked for at once if the file system can, so a full disk is known early
  uint32_t mode = 0666;  // the file's permissions, less the process's umask
  bool replace = true;   // false: a file that has the name by the time of commit() keeps it
};

// Renames a file. Without `replace` the result is EEXIST if something has the name `to`.
[[nodiscard]] std::error_code give_name(const std::filesystem::path& from, const std::filesystem::path& to,
                                        bool replace);

// If it is destroyed without a successful commit(), it leaves nothing. Thread: one at a time, but for write_at(), which
// any may call at once for bytes of its own.
class AtomicFile {
 public:
  // Throws Error(kIo) with the name that could not be opened and the system's reason.
  explicit AtomicFile(std::filesystem::path path, AtomicFileOptions options = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes all of it, or returns the reason why not; ENOSPC: nothing more can be written.
  [[nodiscard]] std::error_code write_at(std::span<const std::byte> bytes, uint64_t offset);
  // Brings what was written to the disk.
  [[nodiscard]] std::error_code sync();
  // Gives the file its name, and replaces a file that has it. EEXIST: that file was not to be replaced.
  [[nodiscard]] std::error_code commit();

 private:
  bool open_unnamed(uint32_t mode);
  std::filesystem::path own_name() const;
  std::error_code link_unnamed();

  std::filesystem::path path_, part_path_, folder_;  // part_path_ is empty while it has no name
  int descriptor_ = -1;
  bool replace_, done_ = false;
};

}  // namespace tenon
