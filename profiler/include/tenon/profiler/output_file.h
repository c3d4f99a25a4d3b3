// An output file appears under its name only when it is whole (tenon/core/atomic_file.h). It is plain or gzipped,
// and its first bytes can be filled in last.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "tenon/core/error.h"

namespace tenon {
class AtomicFile;
}

namespace tenon::profiler {

class Deflate;

struct OutputFileOptions {
  std::string what = "trace";                                     // errors begin with it
  std::string consequence = "; the run goes on without a trace";  // errors of writing end with it
  bool gzip = true;                                               // it is gzipped if the path ends in ".gz"
  bool replace = true;                                            // it may take the place of a file that is there
};

// It writes to `path` + ".part". The first error sticks: later writes do nothing, and finish() returns it. If it is
// destroyed without a successful finish(), it removes what it wrote.
class OutputFile {
 public:
  // Leaves `head_size` blanks (1 to 65535) at the front. Throws Error(kIo).
  OutputFile(const std::string& path, size_t head_size, OutputFileOptions options = {});
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);

  // Makes all that was written readable in the part file.
  Status flush();

  // Puts `head` (head_size bytes) in front and gives the file its name.
  Status finish(std::string_view head);

 private:
  void put(std::string_view bytes);
  void put_at(std::string_view bytes, uint64_t offset);
  void keep(const char* doing, std::error_code error);

  OutputFileOptions options_;
  std::string part_path_;
  bool gzip_;
  std::unique_ptr<AtomicFile> file_;
  uint64_t written_ = 0;
  std::unique_ptr<Deflate> deflate_;  // it is null if the file is not gzipped
  unsigned long body_crc_ = 0;
  uint64_t body_size_ = 0;
  Status status_;
};

}  // namespace tenon::profiler
