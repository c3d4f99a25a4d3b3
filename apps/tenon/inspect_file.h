// `tenon inspect --file` shows a library that nobody has looked at yet.
#pragma once

#include <string>

namespace tenon::app {

// Reads the library's note here and opens it in a child process, so that a crash is reported and not suffered. Returns
// the exit code. Throws Error(kPlugin) for what is no plugin or not fit for this host.
int inspect_file(const std::string& library, bool json);

// Prints the hash of the parameters that the library has, whatever its note states; in a child process, too.
int print_schema_hash(const std::string& library);

}  // namespace tenon::app
