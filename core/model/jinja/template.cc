#include "template.h"

#include "functions.h"
#include "lexer.h"
#include "parser.h"
#include "tenon/core/error.h"

namespace tenon::jinja {
namespace {

SourcePosition position_of(const std::string& name, std::string_view source, size_t offset) {
  const std::string_view before = source.substr(0, offset);
  const size_t line = before.rfind('\n') + 1;
  SourcePosition position;
  position.file = name;
  position.line = 1;
  for (const char c : before) position.line += c == '\n' ? 1 : 0;
  position.column = static_cast<uint32_t>(count_characters(before.substr(line)) + 1);
  return position;
}

// A message may quote what the user wrote, however long that is.
std::string shortened(std::string message) {
  constexpr size_t kLongest = 1000;
  if (message.size() <= kLongest) return message;
  message.resize(character_start(message, count_characters(std::string_view(message).substr(0, kLongest)) - 1));
  return message + " [...]";
}

}  // namespace

Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  try {
    program_ = parse(source);
  } catch (const SyntaxFailure& failure) {
    throw Error(ErrorCode::kModel, position_of(name_, normalized(source), failure.offset), failure.what());
  }
}

Text Template::render(const Dict& variables, const RenderOptions& options) const {
  Run run(*program_, options.limits);
  const auto set = [&](std::string_view name, Value value) {
    const auto number = program_->names.find(name);
    if (number != program_->names.end()) run.set(number->second, std::move(value));
  };
  for (auto& [name, function] : functions(options.now)) set(name, function);
  for (const auto& [name, value] : variables.entries) set(name.as_text()->bytes(), value);
  try {
    const Run::Inner root(run);
    Run::Capture capture(run);
    execute(run, program_->block);
    return capture.take();
  } catch (const Failure& failure) {
    throw Error(ErrorCode::kRequest, position_of(name_, program_->source, run.offset()), shortened(failure.what()));
  }
}

}  // namespace tenon::jinja
