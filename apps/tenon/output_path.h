// A command may write to nothing that it reads, and to nothing that is there already unless --force says so.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <filesystem>
#include <span>
#include <string>

namespace tenon::app {

// Adds the option --force of a command that writes files.
void add_force(CLI::App& command, bool& force);

// Throws Error(kUsage) where `output`, or the name with ".part" that it has while it grows, is one of the inputs or a
// file of an input that is a folder, by whatever name or link; where it is a folder; and where it is a file, or a
// link, that is there and `force` is not given. An empty output is passed over, as are inputs that are no files
// ("synthetic:NAME", ""), and outputs that keep nothing, such as /dev/null or a pipe.
void check_output(const std::filesystem::path& output, std::span<const std::string> inputs, bool force);

// This names a file that is not whole yet, for an end of the process that no destructor sees; nullptr: there is none.
inline std::atomic<const char*> unfinished_output{nullptr};

// All commands refuse with this message. Throws Error(kUsage).
[[noreturn]] void refuse_to_replace(const std::filesystem::path& output);

}  // namespace tenon::app
