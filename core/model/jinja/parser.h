// The parser turns a template's tokens into statements.
#pragma once

#include <memory>
#include <string_view>

#include "program.h"

namespace tenon::jinja {

// Throws SyntaxFailure for what is no template, and for what a template asks for and is not supported.
std::unique_ptr<const Program> parse(std::string_view source);

}  // namespace tenon::jinja
