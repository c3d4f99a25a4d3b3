// Models publish chat templates in Jinja. Their environment is the one in which the package transformers runs them (a
// sandbox that lets nothing change, trim_blocks, lstrip_blocks, break and continue, tojson, raise_exception,
// strftime_now, generation blocks). What is not supported of Jinja is refused when a template is read.
//
// The way of a template: lexer.h -> token_stream.h -> parser.h, expression_parser.h -> statements.h, expressions.h,
// which run over values (value.h) by the rules of Python (operators.h, methods.h, filters.h, tests.h, python_text.h).
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "run.h"
#include "text.h"

namespace tenon::jinja {

struct Program;

struct RenderOptions {
  Limits limits = {};
  std::tm now = {};  // for strftime_now
};

// It never changes after construction, and any thread may render by it.
class Template {
 public:
  // `name` is for errors. Throws Error(kModel) with line and column.
  Template(std::string_view source, std::string name);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // The keys of `variables` are their names. Throws Error(kRequest) with line and column for what the template refuses,
  // for what goes wrong in it, and where a limit is passed.
  Text render(const Dict& variables, const RenderOptions& options) const;

 private:
  std::unique_ptr<const Program> program_;
  std::string name_;
};

}  // namespace tenon::jinja
