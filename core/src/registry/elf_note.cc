#include "registry/elf_note.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "tenon/core/error.h"

namespace tenon {
namespace {

constexpr uint64_t kMaxNotes = 64 << 10;  // bytes a section
constexpr int kMaxSections = 64;

[[noreturn]] void bad_note(const std::string& why) {
  throw Error(ErrorCode::kPlugin, why);
}

uint64_t aligned(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

// Collects every Tenon note in one run of notes. Sizes are 32-bit, so that sums of them in 64 bits do not wrap.
void collect(std::span<const std::byte> notes, uint64_t align, std::vector<tenon_note>& found) {
  uint64_t at = 0;
  while (notes.size() - at >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr header;
    std::memcpy(&header, notes.data() + at, sizeof(header));
    const uint64_t owner = at + sizeof(header);
    const uint64_t descriptor = at + aligned(sizeof(header) + header.n_namesz, align);
    const uint64_t end = descriptor + header.n_descsz;
    if (owner + header.n_namesz > notes.size() || end > notes.size()) bad_note("has a truncated note");
    const bool ours = header.n_type == TENON_NOTE_TYPE && header.n_namesz == sizeof(TENON_NOTE_OWNER) &&
                      std::memcmp(notes.data() + owner, TENON_NOTE_OWNER, sizeof(TENON_NOTE_OWNER)) == 0;
    if (ours) {
      if (header.n_descsz != sizeof(tenon_note)) {
        bad_note("has a plugin note of " + std::to_string(header.n_descsz) + " bytes; it should have " +
                 std::to_string(sizeof(tenon_note)));
      }
      std::memcpy(&found.emplace_back(), notes.data() + descriptor, sizeof(tenon_note));
    }
    at = std::min<uint64_t>(aligned(end, align), notes.size());
  }
}

template <size_t N>
void check_text(const char (&text)[N], const char* what, bool (*allowed)(char), bool may_be_empty) {
  const size_t length = strnlen(text, N);
  const bool good = length < N && (length > 0 || may_be_empty) && std::all_of(text, text + length, allowed);
  if (!good) bad_note(std::string("has a plugin note whose ") + what + " is no proper text");
}

bool name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

// A component's name may have its vendor's before it, with a dot between them.
void check_texts(const tenon_note& note) {
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  check_text(note.kind, "kind", name_character, false);
  const auto vendored = [](char c) { return name_character(c) || c == '.'; };
  check_text(note.name, "name", vendored, false);
  const std::string_view full(note.name);
  if (full.front() == '.' || full.back() == '.' || full.find("..") != full.npos) {
    bad_note("has a plugin note whose name is no proper text");
  }
  check_text(note.device, "device", name_character, false);
  check_text(note.schema_hash, "schema hash", printable, true);
  check_text(note.layout_hash, "layout hash", printable, false);
  check_text(note.targets, "list of targets", printable, true);
}

}  // namespace

std::optional<tenon_note> read_note(const ElfFile& file) {
  std::vector<tenon_note> found;
  int looked = 0;
  const auto look = [&](uint64_t offset, uint64_t size, uint64_t align) {
    if (++looked > kMaxSections) bad_note("has an absurd number of notes");
    collect(file.bytes(offset, size, kMaxNotes), align == 8 ? 8 : 4, found);
  };
  for (const ElfSection& s : file.sections()) {
    if (s.type == SHT_NOTE) look(s.offset, s.size, s.align);
  }
  if (found.empty()) {
    for (const ElfSegment& s : file.segments()) {
      if (s.type == PT_NOTE) look(s.offset, s.size, s.align);
    }
  }
  if (found.empty()) return std::nullopt;
  for (const tenon_note& note : found) {
    if (std::memcmp(&note, &found.front(), sizeof(note)) != 0) bad_note("has two plugin notes that differ");
  }
  check_texts(found.front());
  return found.front();
}

}  // namespace tenon
