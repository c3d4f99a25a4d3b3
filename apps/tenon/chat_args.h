// These options of a command tell the model's chat template more than messages do.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/core/chat_template.h"
#include "tenon/core/engine.h"
#include "tenon/core/thoughts.h"

namespace tenon::app {

// Takes an answer piece by piece and makes what is shown of it: all of it, or of a model that answers in channels what it
// thinks and then its text, without their headers; or what comes after the thought alone.
class ShownAnswer {
 public:
  ShownAnswer(Thoughts thoughts, bool hide) : thoughts_(thoughts), hide_(hide), reader_(thoughts) {}
  // `last` is true for the final piece.
  std::string add(std::string_view text, bool last);
  // Returns what a whole answer would show, from its beginning on.
  std::string whole(std::string_view answer) const { return ShownAnswer(thoughts_, hide_).add(answer, true); }
  // Returns a whole answer as it stands in the conversation that goes on: channels are no part of it.
  std::string said(std::string_view answer) const;

 private:
  Thoughts thoughts_;
  bool hide_;
  ThoughtReader reader_;
  bool thought_ = false;  // a thought is shown, and no text after it yet
};

struct ChatArgs {
  std::string system, tools_file, variables;
  bool hide_thoughts = false;

  // Returns the options, in the order in which words() names them.
  std::vector<CLI::Option*> add_to(CLI::App& app);
  // Reads the file if there is one. Throws Error(kIo).
  ChatOptions options() const;
  // Returns what makes of an answer what is shown, and has the request show it what it looks for.
  ShownAnswer shown_answer(const Engine& engine, Request& request) const;
  // Returns the options that were given, with their values.
  std::vector<std::pair<const char*, std::string>> words() const;
};

}  // namespace tenon::app
