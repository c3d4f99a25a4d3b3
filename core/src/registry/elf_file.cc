// Reads an ELF file's sections, symbols and notes as bytes (System V ABI, "Object Files"). Every offset and count is
// compared with the file's size before it is used.
#include "registry/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tenon/core/error.h"

namespace tenon {
namespace {

constexpr uint64_t kMaxTable = 64 << 20;

[[noreturn]] void broken(const std::string& why) {
  throw Error(ErrorCode::kPlugin, why);
}

// If a file is not there or the user may not read it, that is that file's problem; anything else is the system's.
[[noreturn]] void unreadable(int error) {
  const bool of_the_file = error == EACCES || error == EPERM || error == ENOENT || error == ENOTDIR || error == ELOOP;
  throw Error(of_the_file ? ErrorCode::kPlugin : ErrorCode::kIo,
              std::string("cannot be read: ") + std::strerror(error));
}

// Returns the text that begins at `offset` of a string table; it ends with the table at the latest.
std::string text_at(const std::string& strings, uint64_t offset) {
  if (offset >= strings.size()) return "";
  return std::string(strings.c_str() + offset);
}

ElfSection section_of(const Elf64_Shdr& s, const std::string& names) {
  return {text_at(names, s.sh_name), s.sh_type, s.sh_link, s.sh_offset, s.sh_size, s.sh_addralign};
}

void check_header(const Elf64_Ehdr& h) {
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) broken("is no ELF file");
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_machine != EM_X86_64) {
    broken("is an ELF file, but not of a 64-bit x86-64 machine");
  }
  if (h.e_type != ET_DYN) broken("is an ELF file, but no shared library");
}

}  // namespace

ElfFile::ElfFile(std::span<const std::byte> bytes)
    : size_(bytes.size()), read_([bytes](uint64_t offset, std::span<std::byte> out) {
        std::memcpy(out.data(), bytes.data() + offset, out.size());
      }) {
  parse();
}

ElfFile::ElfFile(const std::filesystem::path& path) {
  const std::shared_ptr<int> fd(new int(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), [](const int* p) {
    if (*p >= 0) ::close(*p);
    delete p;
  });
  struct stat info {};
  if (*fd < 0 || ::fstat(*fd, &info) != 0) unreadable(errno);
  if (!S_ISREG(info.st_mode)) broken("is not a regular file");
  size_ = static_cast<uint64_t>(info.st_size);
  read_ = [fd](uint64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
      const ssize_t n = ::pread(*fd, out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) unreadable(errno);
      if (n == 0) broken("cannot be read to its end");
      offset += static_cast<uint64_t>(n);
      out = out.subspan(static_cast<size_t>(n));
    }
  };
  parse();
}

std::vector<std::byte> ElfFile::bytes(uint64_t offset, uint64_t size, uint64_t limit) const {
  if (offset > size_ || size > size_ - offset) broken("is truncated: a part of it lies beyond its end");
  if (size > limit) broken("holds a part of absurd size (" + std::to_string(size) + " bytes)");
  std::vector<std::byte> out(size);
  if (size > 0) read_(offset, out);
  return out;
}

template <class T>
std::vector<T> ElfFile::table(uint64_t offset, uint64_t count, uint64_t entry_size, const char* what) const {
  if (count == 0) return {};
  if (entry_size != sizeof(T)) broken(std::string("has ") + what + " of an unknown size");
  if (count > kMaxTable / sizeof(T)) broken(std::string("claims too many ") + what);
  const std::vector<std::byte> raw = bytes(offset, count * sizeof(T), kMaxTable);
  std::vector<T> out(count);
  std::memcpy(out.data(), raw.data(), raw.size());
  return out;
}

void ElfFile::parse() {
  if (size_ < sizeof(Elf64_Ehdr)) broken("is no ELF file");
  Elf64_Ehdr header;
  std::memcpy(&header, bytes(0, sizeof(header), sizeof(header)).data(), sizeof(header));
  check_header(header);
  for (const auto& s : table<Elf64_Phdr>(header.e_phoff, header.e_phnum, header.e_phentsize, "program headers")) {
    segments_.push_back({s.p_type, s.p_offset, s.p_filesz, s.p_align});
  }
  const auto headers = table<Elf64_Shdr>(header.e_shoff, header.e_shnum, header.e_shentsize, "section headers");
  std::string names;
  if (header.e_shstrndx < headers.size()) names = strings_of(section_of(headers[header.e_shstrndx], names));
  for (const Elf64_Shdr& s : headers) sections_.push_back(section_of(s, names));
}

std::string ElfFile::strings_of(const ElfSection& section) const {
  if (section.type != SHT_STRTAB) broken("names its parts by a section that holds no strings");
  const std::vector<std::byte> raw = bytes(section.offset, section.size, kMaxTable);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

const ElfSection* ElfFile::section_of_type(uint32_t type) const {
  for (const ElfSection& s : sections_) {
    if (s.type == type) return &s;
  }
  return nullptr;
}

std::vector<ElfSymbol> ElfFile::dynamic_symbols() const {
  const ElfSection* section = section_of_type(SHT_DYNSYM);
  if (section == nullptr || section->link >= sections_.size()) broken("has no table of dynamic symbols");
  const std::string names = strings_of(sections_[section->link]);
  std::vector<ElfSymbol> symbols;
  for (const auto& s :
       table<Elf64_Sym>(section->offset, section->size / sizeof(Elf64_Sym), sizeof(Elf64_Sym), "dynamic symbols")) {
    symbols.push_back(
        {text_at(names, s.st_name), static_cast<uint8_t>(ELF64_ST_BIND(s.st_info)), s.st_shndx != SHN_UNDEF});
  }
  return symbols;
}

ElfDynamic ElfFile::dynamic() const {
  const ElfSection* section = section_of_type(SHT_DYNAMIC);
  if (section == nullptr || section->link >= sections_.size()) broken("has no dynamic section");
  const std::string names = strings_of(sections_[section->link]);
  ElfDynamic found;
  for (const auto& d :
       table<Elf64_Dyn>(section->offset, section->size / sizeof(Elf64_Dyn), sizeof(Elf64_Dyn), "dynamic entries")) {
    if (d.d_tag == DT_NULL) break;
    if (d.d_tag == DT_NEEDED) found.needed.push_back(text_at(names, d.d_un.d_val));
    if (d.d_tag == DT_RPATH || d.d_tag == DT_RUNPATH) found.run_paths.push_back(text_at(names, d.d_un.d_val));
  }
  return found;
}

}  // namespace tenon
