// A file that appears complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tenon::weights {

// Written under a temporary name beside its own ("model.gguf.partial-4711"); destroyed before commit(), it leaves
// nothing. Everything throws Error(kIo) with the path and the system's reason.
class OutputFile {
 public:
  // `bytes` of room are asked for at once where the file system can, so that a full disk is known before the work.
  OutputFile(std::filesystem::path path, uint64_t bytes);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  // Brings it to the disk and gives it its name, over a file that has it.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace tenon::weights
