// This has the checks of a plugin, as a list. A check returns, throws Error with what is wrong, or throws NotTested.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tenon/abi/plugin.h"
#include "tenon/core/plugin_check.h"

namespace tenon {

[[noreturn]] void fail_check(const std::string& why);

// This is the library that is checked; its note is there from the first check on.
struct Subject {
  std::filesystem::path library;  // canonical
  tenon_note note{};
  std::vector<std::filesystem::path> plugin_dirs;  // its device is looked for here
};

struct Check {
  const char* name;
  std::vector<std::string> needs;  // checks without which this one means nothing
  void (*run)(const Subject&);
};

// These checks only read the file.
const std::vector<Check>& file_checks();
// These checks open it and use what is in it.
const std::vector<Check>& component_checks();
// These parts of component_checks look at what its own kind's interface must do in its corners, and what it makes of
// the structs of older and newer hosts.
void check_kind(const Subject& subject);
void check_struct_sizes(const Subject& subject);

}  // namespace tenon
