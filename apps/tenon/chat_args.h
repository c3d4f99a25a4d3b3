// Options by which a command says more to the model's chat template than messages.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tenon/core/chat_template.h"

namespace tenon::app {

struct ChatArgs {
  std::string system, tools_file, variables;

  // Returns the options, in the order in which words() names them.
  std::vector<CLI::Option*> add_to(CLI::App& app);
  // Reads the file if there is one. Throws Error(kIo).
  ChatOptions options() const;
  // Returns the options that were given, with their values.
  std::vector<std::pair<const char*, std::string>> words() const;
};

}  // namespace tenon::app
