// This finds out how much memory the control groups of this process leave it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tenon {

struct MemoryLimit {
  uint64_t bytes = UINT64_MAX;  // UINT64_MAX: no group has a limit
  std::string file;             // this file states it; "" if none does
};

// Returns the least limit of the process's control groups and all groups above them that can be seen, of version 2
// (memory.max) and 1 (memory.limit_in_bytes). /proc and the mounted groups are looked for under `root`. Nothing is
// thrown: what cannot be read limits nothing.
MemoryLimit memory_limit(const std::filesystem::path& root = "/");

}  // namespace tenon
