// This is the standard output of this process. What cannot be written to it is said once, with the system's reason.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tenon::app {

// Gives each standard descriptor that the caller has closed to /dev/null, or the next file that is opened would get its
// number and the text. Writing to such an output fails as to a closed one. main calls it first of all.
void hold_standard_descriptors();

// Writes the text at once. Returns false if it, or anything before, could not be written.
bool print_now(std::string_view text);

// Writes all that was printed. Returns false if not all could be written.
bool flush_output();

// Does the same for a file that has a name.
bool flush_file(std::FILE* file, const std::string& name);

}  // namespace tenon::app
