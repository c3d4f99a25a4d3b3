// The registry loads a library only if nobody else could have put it there.
#pragma once

#include <filesystem>
#include <string>

namespace tenon {

// Returns "" if the file or folder belongs to the user or to root and nobody else can write to it; else the reason,
// with the mode. Writable for a group counts as writable by others unless it is the user's own private group.
std::string trust_problem(const std::filesystem::path& path);

}  // namespace tenon
