// These functions read files and folders, and give the system's reason if they cannot be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace tenon {

// Reads the first `most` bytes of a file, or all of it if it has fewer. `error` is cleared, or set to the
// system's reason; the text is empty then.
std::string read_start(const std::filesystem::path& path, uint64_t most, std::error_code& error);

// Lists what is in a folder, without "." and "..", sorted. `error` is cleared, or set to the system's reason; there are
// no names then. (std::filesystem's iterators end the process if they have no memory.)
std::vector<std::string> names_in_folder(const std::filesystem::path& folder, std::error_code& error);

}  // namespace tenon
