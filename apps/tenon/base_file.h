// This file has a baseline's distributions, for `tenon eval kld`: a header of 96 bytes, then for every scored position
//   uint32 top; float step, negative_log_likelihood; uint16 code[vocab]
// as CodedRow has them. Little-endian; docs/quality.md describes it.
#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "divergence.h"
#include "tenon/profiler/output_file.h"

namespace tenon::app {

// A window of so many tokens scores those after the middle.
constexpr uint32_t scored_tokens(uint32_t context) {
  return context - context / 2 - 1;
}
inline constexpr uint32_t kLeastContext = 3;

struct BaseHeader {
  std::array<char, 8> magic{'T', 'E', 'N', 'O', 'N', 'K', 'L', 'D'};
  uint32_t version = 2;
  uint32_t vocab = 0;    // it is the model's, and the number of codes in a row
  uint32_t context = 0;  // a window has so many tokens
  uint32_t reserved = 0;
  uint64_t positions = 0;         // all windows together score so many tokens
  std::array<char, 64> sha256{};  // hexadecimal, see Windows::sha256()

  uint64_t windows() const;
  uint64_t row_bytes() const;
  uint64_t file_bytes() const;
};
static_assert(sizeof(BaseHeader) == 96);

// The file has its name once finish() has returned; see OutputFile.
class BaseWriter {
 public:
  BaseWriter(const std::string& path, const BaseHeader& header, bool replace = true);  // throws Error(kIo)
  void add(const CodedRow& row);  // throws Error(kIo), for a full disk too
  void finish();                  // throws Error(kIo)

 private:
  BaseHeader header_;
  profiler::OutputFile file_;
  std::string row_;
};

class BaseReader {
 public:
  // Throws Error(kIo) for a file that cannot be read, is none of these, or is cut short.
  explicit BaseReader(const std::string& path);
  const BaseHeader& header() const { return header_; }
  void next(CodedRow& row);  // it is called header().positions times at most; throws Error(kIo)

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  // Returns how many bytes there were; throws Error(kIo) if they cannot be read.
  size_t read(void* out, size_t bytes);
  [[noreturn]] void fail(const std::string& message) const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  BaseHeader header_;
  uint64_t read_ = 0;
};

}  // namespace tenon::app
