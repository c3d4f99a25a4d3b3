// These options of a command prescribe the form of its text.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tenon/core/engine.h"

namespace tenon::app {

struct GrammarArgs {
  std::string schema_file, grammar_file;
  std::optional<std::string> regex;

  void add_to(CLI::App& app);
  // Reads the file if there is one. Throws Error(kIo).
  std::optional<GrammarText> text() const;
  // Returns the options that were given, with their values.
  std::vector<std::pair<const char*, std::string>> words() const;
};

}  // namespace tenon::app
