// A library's note says what it is without the library being opened: dlopen would already run its constructors.
#pragma once

#include <optional>

#include "registry/elf_file.h"
#include "tenon/abi/plugin.h"

namespace tenon {

// Returns the library's note; nothing if it has none, and so is no plugin. Its strings are terminated and hold names
// only. Looks through the sections and, where a tool has stripped those, through the note segments. Throws
// Error(kPlugin): a note of the wrong size, two that differ, texts that are none.
std::optional<tenon_note> read_note(const ElfFile& file);

}  // namespace tenon
