#include "chat_args.h"

#include "text_input.h"

namespace tenon::app {

std::vector<CLI::Option*> ChatArgs::add_to(CLI::App& app) {
  return {
      app.add_option("--system", system, "System message"),
      app.add_option("--tools", tools_file, "File with a JSON list of tools that the chat template tells the model of"),
      app.add_option("--template-variables", variables,
                     "JSON object of further variables of the chat template, such as {\"enable_thinking\": false}"),
      app.add_flag("--hide-thoughts", hide_thoughts,
                   "Leave out what the model thinks (<think>, or another channel) before it answers")};
}

ShownAnswer ChatArgs::shown_answer(const Engine& engine, Request& request) const {
  const ChatTemplate* chat = engine.chat_template();
  if (chat == nullptr || request.chat.empty()) return {Thoughts::kNone, false};
  const Thoughts thoughts = chat->thoughts(engine.tokenizer(), request.chat, request.chat_options);
  if (!hide_thoughts && thoughts != Thoughts::kChannels) return {Thoughts::kNone, false};
  request.shown = thought_tokens(thoughts, engine.tokenizer());
  return {thoughts, hide_thoughts};
}

std::string ShownAnswer::add(std::string_view text, bool last) {
  const ThoughtReader::Piece piece = reader_.add(text, last);
  if (hide_ || thoughts_ == Thoughts::kNone) return piece.text;
  thought_ |= !piece.thought.empty();
  const bool text_begins = thought_ && !piece.text.empty();
  if (text_begins) thought_ = false;
  return piece.thought + (text_begins ? "\n\n" : "") + piece.text;
}

std::string ShownAnswer::said(std::string_view answer) const {
  return ThoughtReader(thoughts_).add(answer, true).text;
}

ChatOptions ChatArgs::options() const {
  ChatOptions options;
  if (!tools_file.empty()) options.tools = text_of_file(tools_file, kPromptBytes);
  options.variables = variables;
  return options;
}

std::vector<std::pair<const char*, std::string>> ChatArgs::words() const {
  std::vector<std::pair<const char*, std::string>> all;
  if (!system.empty()) all.emplace_back("--system", system);
  if (!tools_file.empty()) all.emplace_back("--tools", tools_file);
  if (!variables.empty()) all.emplace_back("--template-variables", variables);
  return all;
}

}  // namespace tenon::app
