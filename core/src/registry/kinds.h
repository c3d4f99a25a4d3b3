// These are the kinds that cross the binary boundary, and what a plugin of each must bring.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/abi/plugin.h"

namespace tenon {

const std::vector<std::string>& plugin_kinds();  // they are sorted
bool is_plugin_kind(std::string_view kind);
// Returns "attention/1" and the like.
std::string interface_id(std::string_view kind);
// Returns the bytes of the kind's table as this host knows it.
size_t table_size(std::string_view kind);
// Returns the functions that a table must have and has not. The table has at least table_size(kind) bytes.
std::vector<std::string> missing_functions(std::string_view kind, const void* table);

// Returns "" if this host can take a library with that note, else why not, and what would help.
std::string compatibility_problem(const tenon_note& note);

}  // namespace tenon
