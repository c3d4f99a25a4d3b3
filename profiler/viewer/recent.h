// The user's state folder keeps the names of the files that were opened last.
#pragma once

#include <string>
#include <vector>

namespace tenon::view {

// Returns the newest first; those that are gone are left out. It is empty if there is no such folder.
std::vector<std::string> recent_files();
// Puts a file in front. What cannot be written is not kept.
void remember_file(const std::string& path);

}  // namespace tenon::view
