// This reads a plugin's file before it is opened, its note and its tables, from arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "src/registry/elf_note.h"
#include "tenon/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const tenon::ElfFile file(bytes);
    if (const auto note = tenon::read_note(file)) {
      // Its texts end within it.
      const auto ends = [](const auto& text) { return strnlen(text, sizeof(text)) < sizeof(text); };
      if (!ends(note->kind) || !ends(note->name) || !ends(note->device) || !ends(note->schema_hash) ||
          !ends(note->layout_hash) || !ends(note->targets)) {
        std::abort();
      }
    }
    file.dynamic_symbols();
    file.dynamic();
  } catch (const tenon::Error&) {
  }
  return 0;
}
