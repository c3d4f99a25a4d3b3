// These options of a command tell the model's chat template more than messages do.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tenon/core/chat_template.h"
#include "tenon/core/engine.h"

namespace tenon::app {

struct ChatArgs {
  std::string system, tools_file, variables;
  bool hide_thoughts = false;

  // Returns the options, in the order in which words() names them.
  std::vector<CLI::Option*> add_to(CLI::App& app);
  // Reads the file if there is one. Throws Error(kIo).
  ChatOptions options() const;
  // Returns what tells hidden thoughts from the text of an answer, and has the request show it what it looks for.
  // Nothing is a thought unless they are hidden.
  ThoughtReader thoughts(const Engine& engine, Request& request) const;
  // Returns the options that were given, with their values.
  std::vector<std::pair<const char*, std::string>> words() const;
};

}  // namespace tenon::app
