// Reading files and folders, with the system's reason where they cannot be.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace tenon {

// The first `most` bytes of a file, all of it if it has fewer. `error` is cleared or set to the system's reason, and
// then the text is empty.
std::string read_start(const std::filesystem::path& path, uint64_t most, std::error_code& error);

// What is in a folder, without "." and "..", in order. `error` is cleared or set to the system's reason, and then there
// are no names. std::filesystem's iterators end the process where they have no memory.
std::vector<std::string> names_in_folder(const std::filesystem::path& folder, std::error_code& error);

}  // namespace tenon
