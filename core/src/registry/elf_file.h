// This reads an ELF64 x86-64 shared library as bytes: nothing of it is executed, and no number in it is trusted. The
// format is that of the System V ABI, chapters "Object Files" and "Program Loading".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

struct ElfSection {
  std::string name;
  uint32_t type = 0, link = 0;
  uint64_t offset = 0, size = 0, align = 0;
};

struct ElfSegment {
  uint32_t type = 0;
  uint64_t offset = 0, size = 0, align = 0;
};

struct ElfSymbol {
  std::string name;
  uint8_t binding = 0;  // STB_*
  bool defined = false;
};

// The dynamic section says this to whoever loads the library.
struct ElfDynamic {
  std::vector<std::string> needed;
  std::vector<std::string> run_paths;  // DT_RPATH and DT_RUNPATH, unsplit
};

// All functions throw Error(kPlugin) with the reason alone; the caller adds the file's name.
class ElfFile {
 public:
  // Borrows the bytes.
  explicit ElfFile(std::span<const std::byte> bytes);
  // Reads from the file only what is asked for. Throws Error(kIo) where the system fails, not the file: too many open
  // files, a disk that does not read.
  explicit ElfFile(const std::filesystem::path& path);

  const std::vector<ElfSection>& sections() const { return sections_; }
  const std::vector<ElfSegment>& segments() const { return segments_; }
  // Returns bytes of the file, no more than limit.
  std::vector<std::byte> bytes(uint64_t offset, uint64_t size, uint64_t limit) const;
  std::vector<ElfSymbol> dynamic_symbols() const;
  ElfDynamic dynamic() const;

 private:
  using Read = std::function<void(uint64_t offset, std::span<std::byte> out)>;

  void parse();
  template <class T>
  std::vector<T> table(uint64_t offset, uint64_t count, uint64_t entry_size, const char* what) const;
  const ElfSection* section_of_type(uint32_t type) const;
  std::string strings_of(const ElfSection& section) const;

  uint64_t size_ = 0;
  Read read_;
  std::vector<ElfSection> sections_;
  std::vector<ElfSegment> segments_;
};

}  // namespace tenon
