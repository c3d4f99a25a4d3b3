// These commands of the program are tried under faults, each as a short run on a tiny model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "run.h"

namespace tenon::faults {

struct Command {
  std::string name;
  std::function<Words()> words;
  std::string input;   // it is standard input
  Words outputs = {};  // it makes these files or folders
  std::string (*stable_out)(const std::string&) =
      nullptr;  // returns the part of standard output that is the same in every run
  std::string (*stable_file)(const std::string&) =
      nullptr;           // the same for output files; nullptr: they have times, and is_whole() looks at them
  bool folders = false;  // true: outputs are folders, and none may be there before
};

// Their inputs are made when words() is first called.
std::vector<Command> commands();

}  // namespace tenon::faults
