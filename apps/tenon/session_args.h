// These options of `tenon generate` save a text's cache and begin from a saved one.
#pragma once

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>
#include <span>
#include <string>

#include "tenon/core/engine.h"

namespace tenon::app {

struct SessionArgs {
  std::string load, save;

  void add_to(CLI::App& command);
  // Looks at both files before anything is opened. The command also reads `inputs`. Throws Error: kUsage for an output
  // that may not be written, kIo for a session that cannot be read or is damaged.
  void open(std::span<const std::string> inputs, bool force);
  void allow(EngineOptions& options) const;
  // Looks at them once more when the model is known, before its weights are loaded. Throws Error: kUsage, or
  // kRequest if another pipeline saved the session.
  void check(const Engine& engine, bool force) const;
  void put_into(Request& request) const;
  // Writes the session that is to be saved, and says so. Throws Error(kIo).
  void finish(const Result& result, bool force) const;
  // Returns null without either option.
  boost::json::value to_json(const Result& result) const;

 private:
  std::shared_ptr<const SavedSequence> loaded_;
};

}  // namespace tenon::app
