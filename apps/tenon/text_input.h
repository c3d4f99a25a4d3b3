// These read a command's texts from files and pipes: never more than a limit, and never in silence.
#pragma once

#include <cstdint>
#include <string>

namespace tenon::app {

inline constexpr uint64_t kPromptBytes = uint64_t{64}
                                         << 20U;  // a prompt, a message, or a line of a chat has so many at most
inline constexpr uint64_t kTextBytes = uint64_t{1}
                                       << 30U;  // no larger text is scored, calibrated with or turned into tokens

// Reads all of the file. Throws Error: kIo with the system's reason, kRequest for more than `limit` bytes, naming the
// limit. If nobody has opened a pipe for writing, it says on standard error that it waits.
std::string text_of_file(const std::string& path, uint64_t limit = kTextBytes);
// Reads all of standard input.
std::string text_of_input(uint64_t limit);

// Returns "64 MiB" and the like for whole mebibytes.
std::string in_mebibytes(uint64_t bytes);

}  // namespace tenon::app
